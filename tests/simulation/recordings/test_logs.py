"""Training logs: steps and scales of recorded and simulated logs of each project."""

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulation.step_text import one_line_id, read_steps, steps_of
from strategies import alike

from ampscale import LossScaleRule
from ampscale.simulation.recordings.logs import read_log, recognized_formats
from ampscale.simulation.simulate import simulate
from ampscale.simulation.traces import from_string

LOGS = Path(__file__).parent / "logs"
NAN = math.nan
APEX = "Gradient overflow.  Skipping step, loss scaler {} reducing loss scale to {}\n"
PADDLE = "Found inf or nan, current scale is: {}, decrease to: {}*{}\n"
ZERO = "[deepspeed] OVERFLOW! Rank {} Skipping step. Attempted loss scale: {}, reducing to {}\n"  # DeepSpeed's ZeRO
STEP = r"^step (?P<step>\d+)$"


def sample(name):
    return (LOGS / name).read_text(encoding="utf-8")


# For each sample: the step pattern, its steps, and the binary logarithms of its scales, with - for an unknown scale.
SAMPLES = {
    "apex_amp.log": (r"Epoch: \[\d+\]\[(?P<step>\d+)/", "xx......x.x...", "- 15 14 - - - - - - 14 - 13 - - -"),
    "apex_contrib_fp16_optimizer.log": (None, "x....xx..x", "16 - - - - 16 15 - - 14 -"),
    "apex_fp16_utils_2018.log": ("^step ", "xx....x.", "32 31 30 - - - 31 30 -"),
    "deepspeed_0.16.log": (None, "xxx.....x....xx..", "16 16 15 14 - - - - 15 15 - - - 16 16 15 - -"),
    "deepspeed_0.16_every_5.log": (None, "?????.....??????????..........", "- " * 31),
    "deepspeed_0.3_huggingface.log": (r"\| +(?P<step>\d+)/\d+ \[", "xxx..x..", "32 31 30 29 - 29 28 - -"),
    "deepspeed_0.9_fp16_optimizer.log": (None, "xx.....x..x", "16 15 14 - - - - 15 14 - 14 13"),
    "fairseq_0.12_simple.log": (None, "xxx.....x.x...x", "- 6 5 4 4 4 4 5 5 4 4 3 3 3 3 2"),
    "fairseq_0.12_json_every_4.log": (None, "????.....????............", "- - - - - 7 - - - 8 - - - - 7 - - - 8 - - - 9 - - 10"),
    "fairseq_0.9.log": (None, "????....x.x...x", "- - - - - 4 4 5 5 4 4 3 3 3 3 2"),
    "lightning_2.6_metrics.csv": (None, "xx...x...x.", "16 15 14 14 14 15 14 14 14 15 14 14"),
    "megatron_1.0.log": (None, "xx....x...", "16 15 14 14 14 15 15 14 14 14 15"),
    "megatron_23.04_every_5.log": (None, "xxxxx.....?????.....xxxxx", "- - - - - 28 - - - - 29 - - - - 29 - - - - 31 - - - - 27"),
    "megatron_core_0.12.log": (None, "xxx......x.x..", "- 32 31 30 30 30 30 31 31 31 31 31 30 30 30"),
    "megatron_core_0.16.log": (None, "xxx......x.x..", "- 32 31 30 30 30 30 31 31 31 31 31 30 30 30"),
    "megatron_core_0.16_every_5.log": (None, "x....xxxxx.....", "- 32 - - - 33 - - - - 29 - - - - 30"),
    "paddle_3.log": (None, "xx....x.....x", "15 14 13 - - - 14 13 - - - - 14 13"),
}


@pytest.mark.parametrize("name", SAMPLES)
def test_sample_is_read(name):
    """Flags and scales are those in `SAMPLES`. The source can be text, lines or an open file, with any line ends."""
    step_pattern, steps, powers = SAMPLES[name]
    text = sample(name)
    log = read_log(text, step_pattern=step_pattern)
    assert log.log_format == name.split("_")[0]
    assert alike(log.observed.scales, np.array([NAN if power == "-" else 2.0 ** int(power) for power in powers.split()]))
    if "?" not in steps:
        assert alike(log.trace().limits, from_string(steps).limits)
    with (LOGS / name).open(encoding="utf-8") as file:
        for source in (text, file, text.splitlines(), text.replace("\n", "\r\n")):
            assert read_steps(source, step_pattern=step_pattern) == steps


def test_every_sample_is_listed():
    """Each file in the folder is in SAMPLES and in the README."""
    names = {path.name for path in LOGS.iterdir()} - {"README.md"}
    assert names == set(SAMPLES)
    assert all(f"`{name}`" in sample("README.md") for name in names)


def apex(run, every):
    """
    Yield the message of Apex and the line of the training loop for each step; Apex does not number the steps.

    *run* yields a flag, the scale before and the scale after each step. A line is printed at each *every*-th step.
    """
    for step, (finite, _, after) in enumerate(run, 1):
        yield "" if finite else APEX.format(0, after), "" if step % every else f"step {step}\n"


def paddle(run, every):
    """Yield the message of Paddle and the line of PaddleNLP's trainer for each step."""
    for step, (finite, before, _) in enumerate(run, 1):
        line = "" if step % every else f"[    INFO] - loss: 1.5, learning_rate: 0.1, global_step: {step}, ppl: 4\n"
        yield "" if finite else PADDLE.format(before, before, 0.5), line


def deepspeed(run, every):
    """Yield the message and the line of DeepSpeed's ZeRO for each step: the message names a rank, the line the overflow count."""
    skipped = 0
    for step, (finite, before, after) in enumerate(run, 1):
        skipped += not finite
        line = "" if step % every else f"[INFO] [logging.py:128:log_dist] [Rank 0] step={step}, skipped={skipped}, lr=[0.1]\n"
        yield "" if finite else ZERO.format("#", int(before), int(after)), line


def old_deepspeed(run, every):
    """Yield the message and the line of DeepSpeed 0.1 for each step; its messages have no rank."""
    for message, line in deepspeed(run, every):
        yield message.replace(" Rank #", ""), line


def megatron(run, every):
    """Yield an empty message and the line of Megatron for each step: it contains the number of overflows since the last line."""
    skipped = 0
    for step, (finite, _, after) in enumerate(run, 1):
        skipped += not finite
        line = f" iteration {step:8d}/     100 | lm loss: 6.1E+00 | loss scale: {after:.1f} |"
        yield "", "" if step % every else f"{line} number of skipped iterations: {skipped:3d} |\n"
        if step % every == 0:
            skipped = 0


def new_megatron(run, every):
    """Yield lines like `megatron`; core 0.16 also prints a line after the first step, and does not reset the count there."""
    skipped = 0
    for step, (finite, _, after) in enumerate(run, 1):
        skipped += not finite
        line = f" [2026-02-03 04:05:06.{step:06d}] iteration {step:8d}/     100 | loss scale: {after:.1f} |"
        yield "", "" if step % every and step > 1 else f"{line} number of skipped iterations: {skipped:3d} |\n"
        if step % every == 0 and step > 1:
            skipped = 0


def fairseq(run, every):
    """Yield the message and the line of fairseq 0.12 for each step; it prints a line at each *every*-th finite step."""
    updates = 0
    for finite, _, after in run:
        updates += finite
        line = f"2022-10-04 11:12:13 | INFO | train_inner | epoch 001: num_updates={updates}, loss_scale={after:g}\n"
        message = f"fairseq.trainer | NOTE: gradient overflow detected, ignoring gradient, setting loss scale to: {after}\n"
        yield "" if finite else message, line if finite and updates % every == 0 else ""


def old_fairseq(run, every):
    """Yield the message and the line of fairseq 0.9 for each step; its lines contain the values after the last finite step."""
    yield "", "| no existing checkpoint found checkpoint_last.pt\n"
    updates, shown = 0, ""
    for step, (finite, _, after) in enumerate(run, 1):
        if finite:
            updates, shown = updates + 1, f"num_updates={updates + 1}, loss_scale={after:.3f}"
        line = f"| epoch 001:  {step} / 99 {shown}\n" if shown and step % every == 0 else ""
        yield "" if finite else f"| WARNING: overflow detected, setting loss scale to: {after}\n", line


OPTIONS = {apex: {"log_format": "apex", "step_pattern": STEP}}  # the other projects need no options
PROJECTS = [apex, paddle, deepspeed, old_deepspeed, megatron, new_megatron, fairseq, old_fairseq]
STEPS = st.text(".x", min_size=1, max_size=30)
WINDOWS = st.integers(1, 5)


def printed(project, text, window, every, ranks=1):
    """Return the log and the scales of a training in which *ranks* processes print messages, and rank 3 prints lines of steps."""
    scales = simulate(LossScaleRule(2.0**40, growth_interval=window), from_string(text)).scales.tolist()
    run = zip((step == "." for step in text), scales[:-1], scales[1:], strict=True)
    logged = [
        (message.replace("#", str(rank)) if rank < ranks else "") + (line if rank == 3 else "")
        for message, line in project(run, every)
        for rank in (2, 1, 0, 3)
    ]
    return "".join(logged), scales


@pytest.mark.parametrize("project", PROJECTS)
@given(text=STEPS, window=WINDOWS, every=st.integers(1, 5))
def test_simulated_log_is_read_back(project, text, window, every):
    """
    Flags and scales equal those of the simulation, or are unknown. The log has all steps up to the last line.

    If each step has a line, all flags are known. Otherwise, if both finite steps and overflows lie between two lines, the flags
    there are unknown. fairseq prints lines for finite steps only.
    """
    every, text = min(every, window), text + "." * 5
    lines, scales = printed(project, text, window, every)
    log = read_log(lines, **OPTIONS.get(project, {}))
    reported = steps_of(log)
    assert len(text) - every < len(reported) <= len(text)
    assert all(flag in (expected, "?") for flag, expected in zip(reported, text, strict=False))
    assert all(math.isnan(scale) or scale == expected for scale, expected in zip(log.observed.scales, scales, strict=False))
    if every == 1:
        assert "?" not in reported[text.index(".") + 1 if project is old_fairseq else 0 :]
    if project in (apex, paddle, deepspeed, old_deepspeed, megatron):
        between = [text[start : start + every] for start in range(0, len(reported), every)]
        assert reported == "".join(steps if len(set(steps)) == 1 else "?" * every for steps in between)


@pytest.mark.parametrize("project", [apex, paddle, deepspeed, old_deepspeed])
@given(text=STEPS, window=WINDOWS, every=st.integers(1, 5), ranks=st.integers(2, 3))
def test_messages_of_several_processes_are_read_once(project, text, window, every, ranks):
    """The result equals that of the log of one process, and a note reports that messages were printed several times."""
    every, text = min(every, window), text + "." * 5
    log = read_log(printed(project, text, window, every, ranks)[0], **OPTIONS.get(project, {}))
    expected_log = read_log(printed(project, text, window, every)[0], **OPTIONS.get(project, {}))
    assert alike(log.observed.finite, expected_log.observed.finite)
    assert alike(log.observed.scales, expected_log.observed.scales)
    assert len(log.overflows) == len(expected_log.overflows)
    assert ("x" in text) == (len(log.notes) > len(expected_log.notes))


def paddle_messages(*scales, copies=1):
    """Return Paddle's messages about overflows at these scales."""
    return "".join(PADDLE.format(scale, scale, 0.5) * copies for scale in scales)


AT_BOUND, ABOVE_BOUND = (f"OVERFLOW! Skipping step. Attempted loss scale: {scale}, reducing to 1\n" for scale in (1, 2))
FAIRSEQ = "NOTE: gradient overflow detected, ignoring gradient, setting loss scale to: 4.0\n"
WITH_STEP = "\nGrad overflow on iteration {}\nUsing dynamic loss scale of {}\n"
WITH_STEP_BEFORE = "Grad overflow on iteration 1\n[deepspeed] OVERFLOW! Skipping step. Attempted loss scale: 8, reducing to 4.0\n"
THREE_PROCESSES = (APEX.format(0, 4.0) + "step 1\n") * 3 + "step 2\n" * 3 + (APEX.format(0, 2.0) + "step 3\n") * 3
TWICE = "each overflow message occurs 2 times in a row and was read once, assuming 2 processes"
COUNTED = {  # for each fact: log, step pattern, steps if they are known, number of overflows, and note on copies
    "equal messages in a row are several overflows": (paddle_messages(8.0, 4.0, 4.0), None, None, 3, None),
    "if all messages have copies, each is read once": (paddle_messages(8.0, 4.0, 4.0, copies=2), None, None, 3, TWICE),
    "one fairseq process prints messages": (FAIRSEQ * 2 + "| INFO | train_inner | num_updates=5\n", None, "??????.", 2, None),
    "at the lower bound the scale does not change": (AT_BOUND * 4, None, None, 4, None),
    "copies above the bound show that messages at the bound have copies": (ABOVE_BOUND * 2 + AT_BOUND * 6, None, None, 4, TWICE),
    "a single message above the bound shows that there are no copies": (ABOVE_BOUND + AT_BOUND * 6, None, None, 7, None),
    "copies of a message precede each copy of a line": (THREE_PROCESSES, STEP, "x.x", 2, None),
    "a message contains its step": (WITH_STEP.format(3, 8.0) * 2 + WITH_STEP.format(4, 4.0) * 2, None, "...xx", 2, None),
    "if messages contain their step, the pattern only gives the last step": (WITH_STEP_BEFORE + "step 3\n", STEP, ".x.", 1, None),
    "a carriage return ends a line": (f"\r 1/3 [1s]{ZERO.format(0, 8, 4)}\r 2/3 [2s]\r 3/3 [3s]\n", r"\d/3 \[", ".x.", 1, None),
}


@pytest.mark.parametrize("fact", COUNTED)
def test_overflows_are_counted_once(fact):
    text, step_pattern, steps, overflows, note = COUNTED[fact]
    log = read_log(text, step_pattern=step_pattern)
    assert len(log.overflows) == overflows
    assert note is None or note in log.notes
    assert log.missing if steps is None else steps_of(log) == steps


def test_rank_is_read_from_the_prefix_of_a_launcher():
    """For each type of message, the lowest rank is read."""
    text = "".join(f"[default{rank}]:{APEX.format(0, 4.0)}[default{rank}]:step 1\n[default{rank}]:step 2\n" for rank in (1, 0))
    log = read_log(text, step_pattern=r"step (?P<step>\d+)")
    assert steps_of(log) == "x."
    assert [overflow.line for overflow in log.overflows] == [4]
    assert log.notes[1:] == (
        "ranks [0, 1] print messages (overflow); those of rank 0 were read",
        "ranks [0, 1] print messages (steps); those of rank 0 were read",
    )
    mixed = f"[default0]:{ZERO.format(0, 8, 4)}[default7]: iteration        1/     100 | loss scale: 4.0 |\n"
    assert read_log(mixed).overflows == ((1, 8.0, 4.0),)


def test_first_loss_scaler_is_read():
    """A note lists all loss scalers."""
    text = APEX.format(1, 4.0) + APEX.format(0, 8.0) + "step 1\n" + APEX.format(1, 2.0) + "step 2\n"
    log = read_log(text, step_pattern=STEP)
    assert steps_of(log) == "x."
    assert log.overflows == ((2, pytest.approx(NAN, nan_ok=True), 8.0),)
    assert "loss scalers [0, 1] print messages; those of loss scaler 0 were read" in log.notes


def test_log_format_with_most_reports_is_read():
    """A note names the other formats, which can be requested. `recognized_formats` lists the format with most reports first."""
    paddle_lines = [PADDLE.format(scale, scale, 0.5) + f"global_step: {step}\n" for step, scale in ((1, 4.0), (2, 2.0))]
    text = ZERO.format(0, 8, 4) + "".join(paddle_lines)
    log = read_log(text)
    assert (log.log_format, steps_of(log)) == ("paddle", "xx")
    assert "reports of deepspeed that were not read: 1" in log.notes
    requested = read_log(text, log_format="deepspeed", step_pattern="global_step")
    assert (requested.log_format, steps_of(requested)) == ("deepspeed", "x.")
    assert "reports of paddle that were not read: 2" in requested.notes
    assert recognized_formats(text) == ("paddle", "deepspeed")


def test_log_without_overflows_is_read_if_its_format_is_known():
    """The format is an argument, or the lines of the steps show it. Otherwise, overflows could have unknown messages."""
    assert read_steps("step 1\nstep 2\n", "apex", STEP) == read_steps("global_step: 1\nglobal_step: 2\n") == ".."


def test_unknown_messages_are_counted():
    """A note quotes the first of them. If no message of the log is known, an error quotes it."""
    unknown = "Loss overflow! skipping, new scale 4"
    log = read_log(f"{PADDLE.format(8.0, 8.0, 0.5)}{unknown}\n{unknown}\n")
    label = "lines that seem to report overflows, but match no known message"
    assert log.notes[:2] == ("read as a log of paddle", f"{label}: 2, the first is line 2: {unknown!r}")
    with pytest.raises(ValueError, match=rf"{label}: 2, the first is line 1: 'Loss overflow!"):
        read_log(f"{unknown}\n{unknown}\n")


def test_note_states_that_paddle_reports_backoffs_only():
    """The note names the option on which this depends."""
    assert any("decr_every_n_nan_or_inf exceeds 1" in note for note in read_log(sample("paddle_3.log")).notes)
    assert not any("decr_every" in note for note in read_log(sample("megatron_1.0.log")).notes)


METRICS = "epoch,loss_scale,step,val_loss\n0,8.0,4,\n0,4.0,5,\n0,,5,1.5\n0,4.0,6,\n0,2.0,9,\n0,4.0,10,\n"


def test_flags_of_lightning_follow_from_its_scales():
    """A decrease of the scale is an overflow. Steps that the log omits are unknown, and notes describe them and name a remedy."""
    log = read_log(METRICS)
    assert steps_of(log) == "x.???."
    assert alike(log.observed.scales, np.array([8, 4, 4, NAN, NAN, 2, 4]))
    assert log.overflows == ((2, 8.0, 4.0),)
    assert "the log omits steps; Trainer(log_every_n_steps=1) logs all" in log.notes
    assert "the log begins after step 4" in log.notes


def test_scales_of_lightning_may_have_another_column():
    """The column of averages over an epoch is ignored."""
    assert read_steps("epoch,scale_epoch,scale_step,step\n0,,8.0,0\n0,6.0,4.0,1\n") == "x"
    assert read_steps("GradScaler,epoch,step\n8,0,0\n8,0,1\n", log_format="lightning") == "."


def test_largest_scale_of_lightning_is_read_without_a_warning():
    """The ratio of the scales in the last two rows is the largest float64."""
    largest = "1.7976931348623157e308"
    assert read_steps(f"epoch,scale,step\n0,{largest},0\n0,{largest},1\n0,1,2\n") == ".x"


def test_decreasing_steps_of_lightning_raise_an_error():
    """The log contains several runs. Its overflows are read, but it has no trace."""
    log = read_log("epoch,loss_scale,step\n0,8.0,5\n0,4.0,6\n0,4.0,2\n")
    assert log.overflows == ((2, 8.0, 4.0),)
    with pytest.raises(ValueError, match="the step numbers must increase, got 2 after 6; use the lines of one run only"):
        log.trace()


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("epoch,scale_a,scale_b,step\n0,1,1,1\n", {}, "one column of scales, got .'scale_a', 'scale_b'."),
        ("epoch,loss_scale,step\n", {}, "rows with numbers in the columns 'step' and 'loss_scale'"),
        ("epoch,loss_scale,step\n0,8.0,one\n", {}, "rows with numbers in the columns 'step' and 'loss_scale', .*'one'"),
        (f"epoch,GradScaler,step\n0,8,{'1' * 19}\n0,8,2\n", {}, "each step must be a number from 0"),
        ("epoch,loss_scale,step\n0,big,1\n", {}, "rows with numbers in the columns 'step' and 'loss_scale', .*'big'"),
        ("epoch,loss_scale,step\n0,8.0\n", {}, "rows with numbers in the columns 'step' and 'loss_scale'"),
        (METRICS, {"step_pattern": "0"}, "numbers its steps itself"),
        (METRICS, {"log_format": "apex"}, "no known messages of apex"),
        ("step 1\n", {"log_format": "lightning", "step_pattern": "step"}, "no known messages of lightning"),
        ("step 1\nstep 2\n", {"step_pattern": STEP}, "no known messages of apex, deepspeed, paddle"),
        ("step 1\nstep 2\n", {"log_format": "apex"}, r"no known messages of apex$"),
        ("", {"log_format": "torch"}, r"log_format must be one of \['apex', .*'lightning'\], got 'torch'"),
    ],
    ids=one_line_id,
)
def test_invalid_log_raises_an_error(text, options, message):
    with pytest.raises(ValueError, match=message):
        read_log(text, **options)


def test_log_must_be_text():
    """A log can also be an iterable of str."""
    for log in (b"bytes", [b"bytes"], 3, None, ["text", 3]):
        with pytest.raises(TypeError, match="a log must be text or lines of text, got"):
            read_log(log)
