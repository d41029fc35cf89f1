"""Flags of the steps in a log, from lines that number steps. As text, a flag is "." (finite), "x" (overflow) or "?" (unknown)."""

import math

import pytest
from simulation.step_text import one_line_id, read_steps

from ampscale.simulation.recordings import log_steps
from ampscale.simulation.recordings.logs import read_log


def deepspeed(number, total):
    """Return a line of DeepSpeed after step *number*, with the total of its overflows."""
    return f"[Rank 0] step={number}, skipped={total}, lr=[0.1], mom=[0.9]\n"


def megatron(number, skipped, scale=8.0, stamp=""):
    """Return an iteration line of Megatron, with the number of overflows since the line before."""
    return f"{stamp} iteration {number:8d}/     100 | loss scale: {scale:.1f} | number of skipped iterations: {skipped:3d} |\n"


def new_megatron(number, skipped):
    """Return an iteration line of Megatron core 0.16, which has fractions of seconds."""
    return megatron(number, skipped, stamp=" [2026-02-03 04:05:06.430639]")


def fairseq(number, scale=None, inner=True):
    """Return a line of fairseq after *number* updates: within an epoch, or with inner=False at the end of an epoch."""
    suffix = "" if scale is None else f", loss_scale={scale:g}"
    return f"2022-10-04 11:12:15 | INFO | {'train_inner' if inner else 'train'} | num_updates={number}{suffix}\n"


def overflow(before, after):
    """Return DeepSpeed's message about an overflow."""
    return f"[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: {before}, reducing to {after}\n"


def note(after):
    """Return fairseq's message about an overflow."""
    return f"NOTE: gradient overflow detected, ignoring gradient, setting loss scale to: {after:.1f}\n"


def scales(text, **options):
    """Return the known scales by the number of steps before them."""
    scales = read_log(text, **options).observed.scales.tolist()
    return {step: scale for step, scale in enumerate(scales) if not math.isnan(scale)}


LOADED = "  successfully loaded checkpoint from ckpt at iteration {}\n"
STEPS_OF = {
    "new Megatron does not reset its count at the line of the first step": [
        (new_megatron(1, 1) + new_megatron(2, 2) + new_megatron(3, 0), "xx."),
        (new_megatron(1, 1) + new_megatron(2, 1) + new_megatron(3, 1), "x.x"),
        (new_megatron(1, 1) + new_megatron(5, 1) + new_megatron(10, 5), "x....xxxxx"),
        (new_megatron(1, 0) + new_megatron(5, 4) + new_megatron(10, 0), ".xxxx....."),
        (new_megatron(1, 1) + new_megatron(5, 2) + new_megatron(10, 0), "x????....."),
        (new_megatron(1001, 1) + new_megatron(1005, 5) + new_megatron(1010, 0), "xxxxx....."),
        (new_megatron(1005, 0) + new_megatron(1010, 5) + new_megatron(1015, 0), ".....xxxxx....."),
        (megatron(1, 1) + megatron(2, 1) + megatron(3, 1), "xxx"),
        (megatron(1, 0) + megatron(2, 1) + megatron(3, 0), ".x."),
    ],
    "updates do not count overflows, and only a line of train_inner follows a finite step": [
        (note(8) + note(4) + fairseq(1) + fairseq(2), "xx.."),
        (fairseq(1) + note(8) + fairseq(2) + note(4) + fairseq(3), ".x.x."),
        (fairseq(2) + note(8) + fairseq(4), "..??."),
        (fairseq(2) + fairseq(4) + note(8) + note(4) + fairseq(4, inner=False), "....xx"),
        (note(8) + fairseq(1, inner=False) + note(4) + fairseq(1, inner=False) + fairseq(2, inner=False), "??x."),
        (fairseq(1, inner=False) + fairseq(2, inner=False) + note(8) + fairseq(3, inner=False), "..??"),
        ("| no existing checkpoint found c.pt\n" + fairseq(9) + fairseq(10), "." * 10),
        (note(8) + fairseq(9) + note(4) + fairseq(10), "x."),
    ],
    "new Megatron does not reset its count at the first step of any run": [
        (new_megatron(1, 1) + new_megatron(5, 1) + new_megatron(10, 0) + LOADED.format(10) + new_megatron(11, 1), "x.........x"),
        (LOADED.format(10) + new_megatron(11, 1) + new_megatron(15, 1), "x...."),
        (LOADED.format(10) + new_megatron(11, 1) + new_megatron(12, 2) + new_megatron(13, 0), "xx."),
        (LOADED.format(10) + new_megatron(15, 2) + new_megatron(20, 5), "?????xxxxx"),
        (new_megatron(11, 1) + new_megatron(12, 1) + new_megatron(13, 0), "xx."),
        (new_megatron(0, 0), ""),
    ],
    "a run begins at its checkpoint, and of the steps between two runs nothing is known": [
        (LOADED.format(3) + megatron(8, 5), "xxxxx"),
        (LOADED.format(0) + megatron(5, 0), "....."),
        (LOADED.format(1005) + megatron(1010, 0) + megatron(1020, 10), "." * 5 + "x" * 10),
        (megatron(10, 0) + LOADED.format(12) + megatron(20, 0), "." * 10 + "??" + "." * 8),
        (megatron(10, 0) + LOADED.format(10) + megatron(20, 0), "." * 20),
        (new_megatron(10, 0) + LOADED.format(12), "." * 10 + "??"),
        ("Loaded checkpoint c.pt (epoch 3 @ 100 updates)\n" + note(8) + fairseq(101) + fairseq(102), "x.."),
    ],
    "the total of the first line counts overflows since step 0": [
        (deepspeed(1, 1) + deepspeed(2, 1) + deepspeed(3, 2), "x.x"),
    ],
    "two lines of one step are one line with the values of both": [
        (deepspeed(0, 0) + overflow(8, 4) + deepspeed(1, 1) + "steps: 1 loss: 6.9\n" + deepspeed(2, 2), "xx"),
        (deepspeed(0, 0) + deepspeed(1, 1) + "steps: 1 loss: 6.9\n" + deepspeed(2, 1), "x."),
    ],
}


@pytest.mark.parametrize("fact", STEPS_OF)
def test_lines_determine_the_flags(fact):
    """Megatron resets its count of overflows at each line; since core 0.16, not at the line of the first step."""
    for text, expected in STEPS_OF[fact]:
        assert read_steps(text) == expected, text


def test_scales_of_overflows_with_known_steps_are_known():
    """Between two lines with overflows and finite steps, the steps of the overflows are unknown."""
    text = deepspeed(0, 0) + overflow(8, 4) + overflow(4, 2) + deepspeed(2, 2) + overflow(16, 8) + deepspeed(5, 3)
    assert scales(text) == {0: 8, 1: 4, 2: 2}
    assert [overflow.before for overflow in read_log(text).overflows] == [8, 4, 16]
    assert "the flags of 3 of 5 steps are unknown" in read_log(text).notes


def test_count_of_a_line_takes_precedence_over_messages():
    """A note reports the lines whose count differs from the number of messages, whose scales are not read."""
    text = deepspeed(0, 0) + overflow(8, 4) + deepspeed(2, 2) + deepspeed(3, 2)
    assert read_steps(text) == "xx."
    assert scales(text) == {}
    label = "lines whose number of overflows differs from the number of messages before them"
    assert f"{label}: 1, the first is line 3" in read_log(text).notes
    for consistent in (deepspeed(0, 0) + overflow(8, 4) + deepspeed(2, 1), megatron(5, 0) + megatron(10, 5)):
        assert not any(label in note for note in read_log(consistent).notes)


@pytest.mark.parametrize(
    ("text", "start", "expected"),
    [
        (megatron(10, 0) + megatron(20, 0), None, "." * 20),
        (megatron(1010, 0) + megatron(1020, 10), 1000, "." * 10 + "x" * 10),
        (megatron(3, 0), None, "..."),
        (deepspeed(7, 0) + deepspeed(17, 0) + deepspeed(27, 10), None, "." * 17 + "x" * 10),
        (deepspeed(0, 0) + deepspeed(1, 1), None, "x"),
        # if the log starts late, the total includes earlier overflows
        (deepspeed(100, 7) + deepspeed(102, 7) + deepspeed(104, 9), 98, "....xx"),
        (overflow(8, 4) + overflow(4, 2) + deepspeed(100, 7) + deepspeed(102, 7) + deepspeed(104, 9), 98, "xx..xx"),
        (deepspeed(2, 0) + deepspeed(3, 1), 1, ".x"),
        (overflow(8, 4) + deepspeed(0, 1) + deepspeed(1, 1), None, "x."),
    ],
    ids=one_line_id,
)
def test_log_starts_one_distance_before_its_first_number(text, start, expected):
    """The distance is that of the first two numbers. No log starts before the first step; a note reports any later start."""
    assert read_steps(text) == expected
    notes = [note for note in read_log(text).notes if "begins" in note]
    assert notes == ([f"the log begins after step {start}"] if start else [])


def test_overflows_before_the_first_number_are_steps():
    """After an overflow before step 0, steps are counted from 0. A log with more overflows than its distance starts at step 0."""
    text = overflow(8, 4) + "step 0\nstep 1\n" + overflow(4, 2) + "step 2\n"
    assert read_steps(text, step_pattern=r"step (?P<step>\d+)") == "x.x"
    assert "the log counts its steps from 0" in read_log(text, step_pattern=r"step (?P<step>\d+)").notes
    text = overflow(8, 4) + overflow(4, 2) + overflow(2, 1) + "step 4\nstep 5\nstep 6\n"
    assert read_steps(text, step_pattern=r"step (?P<step>\d+)") == "????.."


PIPELINE_LOG = deepspeed(0, 0) + overflow(8, 4) + "steps: 1 loss: 6.9\n" + overflow(4, 2) + deepspeed(2, 2) + deepspeed(3, 2)
END_OF_EPOCH = fairseq(1, 8, inner=False)
SCALES_OF = {  # for each fact: logs with their steps, and the known scales by the number of steps before them
    "a line of DeepSpeed's pipeline engine has no count, so messages are counted instead": [
        (PIPELINE_LOG, "xx.", {0: 8, 1: 4, 2: 2}),
    ],
    "after a missing line, Megatron's count covers one distance, and the flags of the missing line are unknown": [
        (megatron(2, 0) + megatron(4, 2) + megatron(6, 0) + megatron(10, 2), "..xx..??xx", {2: 8, 4: 8, 6: 8, 10: 8}),
    ],
    "a line contains the scale after its steps, or after the last finite step if an overflow may lie in between": [
        (fairseq(1, 8) + note(4) + fairseq(2, 4), ".x.", {1: 8, 2: 4, 3: 4}),
        (END_OF_EPOCH + note(4) + END_OF_EPOCH + fairseq(2, 4, inner=False), ".x.", {1: 8, 2: 4, 3: 4}),
        (fairseq(2, 8, inner=False) + note(4) + fairseq(4, 8, inner=False), "..???", {2: 8}),
        (fairseq(2, 8) + note(4) + fairseq(4, 4), "..??.", {2: 8, 5: 4}),
    ],
}


@pytest.mark.parametrize("fact", SCALES_OF)
def test_lines_determine_the_scales(fact):
    for text, steps, expected in SCALES_OF[fact]:
        assert (read_steps(text), scales(text)) == (steps, expected), text


def test_message_of_an_overflow_can_contain_its_step():
    """In messages of Apex and of DeepSpeed's FP16_Optimizer, the index is the number of steps before the overflow."""
    apex = "\nGrad overflow on iteration {}\nUsing dynamic loss scale of {}\n"
    assert read_steps(apex.format(0, 8) + apex.format(3, 8.0)) == "x..x"
    assert read_steps(apex.format(2, 8)) == "..x"
    assert scales(apex.format(0, 8) + apex.format(3, 8.0)) == {0: 8, 3: 8}
    fp16 = "Grad overflow on iteration {}\n" + overflow(8, 4)
    assert read_steps(fp16.format(1) + deepspeed(5, 1) + fp16.format(5) + deepspeed(10, 2)) == ".x...x...."


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (overflow(8, 4) * 2, {}, "the log does not number its steps.*specify step_pattern"),
        (deepspeed(10, 0) + deepspeed(9, 0), {}, "decrease from 10 in line 1 to 9 in line 2; use the lines of one run"),
        (deepspeed(1, 0) + deepspeed(2, 2), {}, "line 2: expected 0 to 1 overflows in the step before this line, got 2;"),
        (deepspeed(1, 0) + deepspeed(2, 1) + deepspeed(3, 0), {}, "line 3: expected 0 to 1 overflows in .*, got -1;"),
        (megatron(5, 0) + megatron(10, 6), {}, "line 2: expected 0 to 5 overflows in the 5 steps before this line, got 6;"),
        (overflow(8, 4) * 3 + "step 1\n", {"step_pattern": "^step"}, "line 4: expected 0 to 1 overflows in .*, got 3;"),
        (deepspeed(0, 0) + "step 1\n" + overflow(8, 4) * 2 + "step 2\n", {"step_pattern": "^step"}, "line 5: .*, got 2;"),
    ],
    ids=one_line_id,
)
def test_log_without_consistent_steps_has_overflows_only(text, options, message):
    log = read_log(text, **options)
    assert log.observed is None
    assert len(log.overflows) == text.count("OVERFLOW!")
    with pytest.raises(ValueError, match=message):
        log.trace()


def test_number_of_steps_is_limited(monkeypatch):
    """The limit itself is allowed."""
    monkeypatch.setattr(log_steps, "MOST_STEPS", 2)
    assert read_steps(deepspeed(1, 0) + deepspeed(2, 0)) == ".."
    with pytest.raises(ValueError, match="the log must have at most 2 steps, got step 3 in line 2"):
        read_log(deepspeed(1, 0) + deepspeed(3, 0))


def test_overflows_after_the_last_line_are_ignored():
    """The number of finite steps before such an overflow is unknown. A note counts the ignored overflows."""
    text = deepspeed(0, 0) + deepspeed(2, 0) + overflow(8, 4) + overflow(4, 2)
    assert read_steps(text) == ".."
    assert "ignored overflows after the last line that numbers steps: 2, the first in line 3" in read_log(text).notes
    assert len(read_log(text).overflows) == 2
