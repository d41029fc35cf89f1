"""Log messages of each project and version, and the values that are read from them."""

import math
from itertools import product

import pytest

from ampscale.simulation.recordings import log_formats
from ampscale.simulation.recordings.log_formats import LOG_FORMATS, find_events, find_steps
from ampscale.simulation.recordings.log_formats import MESSAGES as ALL_MESSAGES

STAMP = "[2024-05-06 07:08:09,985] [INFO] [loss_scaler.py:190:update_scale] "
MEGATRON = (
    " iteration      300/  500000 | consumed samples:        19200 | elapsed time per iteration (ms): 412.5 |"
    " learning rate: 1.500E-04 | global batch size:    64 | lm loss: 6.123456E+00 | loss scale: {:.1f} | grad norm: 1.234 |"
    " num zeros: 0.0 | params norm: 321.123 | number of skipped iterations: {:3d} | number of nan iterations:   0 |"
)
HYSTERESIS = "[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 8, but hysteresis is 2"
INNER = "2020-08-01 12:39:39 | INFO | train_inner | epoch 001:"
INNER_JSON = '[2021-05-26 12:00:00,123][train_inner][INFO] - {"epoch": 1,'


def only_event(text):
    """Return the only log format with messages in a text, and its only event."""
    [(log_format, [event])] = find_events(text).items()
    return log_format, event


MESSAGES = {  # for each project, its messages with the scales before and after the overflow
    "apex": {
        "Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to 32768.0": (None, 32768),
        "Gradient overflow. Skipping step, loss scaler 12 reducing loss scale to 8.1651e-202": (None, 8.1651e-202),
        "Gradient overflow.  Skipping step, reducing loss scale to 0.5": (None, 0.5),
        "Gradient overflow, skipping update": (None, None),
        "OVERFLOW! Skipping step, reducing loss scale to 64.0": (None, 64),
        "OVERFLOW within closure! Skipping step, reducing loss scale to 64.0": (None, 64),
        "\nGrad overflow on iteration 7\nUsing dynamic loss scale of 65536.0": (65536, None),
        "\nGrad overflow on iteration 7\nUsing static loss scale of 8.0": (8, None),
    },
    "deepspeed": {
        "[deepspeed] OVERFLOW! Skipping step. Attempted loss scale: 65536, reducing to 32768.0": (65536, 32768),
        "[deepscale] OVERFLOW! Rank 3 Skipping step. Attempted loss scale: 1, reducing to 1": (1, 1),
        "[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 128.0, reducing to 64.0": (128, 64),
        "[deepspeed] fp16 dynamic loss scale overflow! Skipping step. Attempted loss scale: 64, reducing to 32.0": (64, 32),
        "[deepspeed] fp16 dynamic loss scale overflow! Rank 1 Skipping step. Attempted loss scale: 2.0, reducing to 1": (2, 1),
        f"{HYSTERESIS}. Reducing hysteresis to 1": (8, 8),
        "[deepspeed] OVERFLOW! Rank 0 Skipping step.": (None, None),
        # scales are printed as integers, so 0 can be any scale below 1
        "[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 1, reducing to 0": (1, None),
        "[Rank 0] Overflow detected. Skipping step. Attempted loss scale: 8.0, reducing to 4.0": (8, 4),
        "[Rank -1] Overflow detected. Skipping step. Attempted loss scale: 8.0, reducing to 4.0": (8, 4),
    },
    "paddle": {
        "Found inf or nan, current scale is: 32768.0, decrease to: 32768.0*0.5": (32768, 16384),
        "Found inf or nan, current scale is: 1000.0, decrease to: 1000.0*0.800000011920929": (1000, 800),
        "Found inf or nan, current scale is: 3.0517578125e-05, decrease to: 3.0517578125e-05*0.5": (2**-15, 2**-16),
        "Found inf or nan, current scale is: 0.0, decrease to: 0.0*0.5": (0, 0),
    },
    "fairseq": {
        "| WARNING: overflow detected, setting loss scale to: 0.0001220703125": (None, 2**-13),
        "2020-08-01 12:39:16 | INFO | fairseq.trainer | NOTE: overflow detected, setting loss scale to: 1024.0": (None, 1024),
        "NOTE: gradient overflow detected, ignoring gradient, setting loss scale to: 4.0": (None, 4),
        "AMP: overflow detected, setting scale to to 32768.0": (None, 32768),
    },
}
STAMPS = ["", STAMP, " 12%|█▎        | 47/378 [00:21<01:09,  3.52s/it]", "noise "]


@pytest.mark.parametrize("log_format", MESSAGES)
def test_message_is_an_overflow_with_its_scales(log_format):
    """The line can have any text before the message, and a message may start with a line feed. A missing scale is NaN."""
    for (message, scales), stamp in product(MESSAGES[log_format].items(), STAMPS):
        detected_format, event = only_event(f"first\n{stamp}{message}\nlast")
        line, *reported = event.overflow()
        assert (detected_format, event.meaning, line) == (log_format, "overflow", 3 if message.startswith("\n") else 2)
        assert reported == pytest.approx([math.nan if scale is None else scale for scale in scales], rel=0, abs=0, nan_ok=True)


def test_fp16_utils_and_the_first_megatron_have_the_same_message():
    events = find_events("OVERFLOW! Skipping step. Attempted loss scale: 4294967296, reducing to 2147483648.0\n")
    assert list(events) == ["apex", "megatron"]
    assert [event.overflow() for (event,) in events.values()] == [(1, 2.0**32, 2.0**31)] * 2


LINES = {  # for each project, lines with their step number and some of their other values
    "deepspeed": [
        (f"{STAMP}[Rank 0] step=10, skipped=6, lr=[1e-05], mom=[(0.9, 0.95)]", 10, {"total": "6"}),
        ("INFO:root:rank:1 step=10, skipped=6, lr=[0.001], mom=[0.9]", 10, {"total": "6"}),
        ("steps: 20 loss: 6.9078 iter time (s): 0.412 samples/sec: 77.6", 20, {}),
        (f"{STAMP}\nGrad overflow on iteration 4", 4, {}),
        (f"{STAMP}Grad overflow on iteration: 4", 4, {}),
    ],
    "paddle": [
        ("[2025-04-24 15:19:26,044] [    INFO] - loss: 1.44202387, learning_rate: 0.0, global_step: 3, ppl: 4.2", 3, {}),
    ],
    "megatron": [
        (MEGATRON.format(65536.0, 2), 300, {"scale": "65536.0", "skipped": "2"}),
        (" [2025-02-03 04:05:06]" + MEGATRON.format(1.0, 0), 300, {"scale": "1.0", "skipped": "0", "fraction": None}),
        (" [2026-02-03 04:05:06.430639]" + MEGATRON.format(1.0, 0), 300, {"fraction": ""}),
        ("  successfully loaded checkpoint from ckpt [ t 1/2, p 1/1 ] at iteration 1000", 1000, {}),
        ("  successfully loaded checkpoint from ckpt at iteration 1000", 1000, {}),
    ],
    "fairseq": [
        ("| epoch 027 | loss 6.343 | num_updates 10198 | lr 0.0006 | loss_scale 0.500 | wall 9", 10198, {"rounded": "0.500"}),
        ("| epoch 001:    100 / 1000 num_updates=99, loss_scale=64.000, wall=9", 99, {"rounded": "64.000", "inner": None}),
        (f"{INNER}   3615 / 6547 loss=0.4, num_updates=3600, loss_scale=1399", 3600, {"rounded": "1399", "inner": ""}),
        (INNER_JSON + ' "num_updates": "200", "lr": "0.1", "loss_scale": "64"}', 200, {"rounded": "64", "inner": ""}),
        ('| INFO | train | {"train_num_updates": "500", "train_loss_scale": "8.000"}', 500, {"rounded": "8.000"}),
        ("| epoch 028 | valid on 'valid' subset | loss 9.329 | num_updates 9165 | best_loss 9.11817", 9165, {"rounded": None}),
        ("| loaded checkpoint checkpoints/checkpoint_last.pt (epoch 3 @ 1000 updates)", 1000, {}),
        ("INFO | fairseq.trainer | Loaded checkpoint c.pt (epoch 3 @ 1000 updates)", 1000, {}),
    ],
}


@pytest.mark.parametrize("log_format", LINES)
def test_number_of_the_step_is_read(log_format):
    """Other values in the line are groups of the event."""
    for line, number, groups in LINES[log_format]:
        detected_format, event = only_event(f"first\n{line}\n")
        assert (detected_format, event.number) == (log_format, number)
        assert {name: event.groups.get(name) for name in groups} == groups


def test_other_lines_match_nothing():
    """Among these lines are fairseq's progress bars, whose number of updates is that of an earlier step."""
    for line in [
        "",
        "No overflow today. Skipping lunch.",
        "Namespace(min_loss_scale=0.0001, fp16_scale_window=None, total_num_update=1000)",
        "epoch 001:  10%|█         | 100/1000 [00:10<01:30, loss=9.1, num_updates=100, loss_scale=64]",
        "epoch 001:  10%|█         | 100/1000 [00:10<01:30, loss=9.1, num_updates=100]2022-10-04 | INFO | next",
        "[2024-05-06 07:08:09] [INFO] No Grad overflow for 1000 iterations",
        "saved checkpoint checkpoint28.pt (epoch 28 @ 9165 updates) (writing took 7 seconds)",
        "micro_steps: 20 loss: 6.9",
        " validation loss at iteration 300 | lm loss value: 6.1 |",
    ]:
        assert find_events(line) == {}, line


@pytest.mark.parametrize(
    ("line", "scale"),
    [
        (MEGATRON.format(4294967296.0, 0), 2.0**32),
        (MEGATRON.format(12345.0, 0), 12345.0),
        (MEGATRON.format(0.5, 0), 0.5),
        (MEGATRON.format(math.inf, 0), math.inf),
        (MEGATRON.format(0.25, 0), math.nan),
        (MEGATRON.format(0.0001, 0), math.nan),
        (MEGATRON.format(1.25, 0), math.nan),
        ("num_updates=5, loss_scale=64", 64.0),
        ("num_updates=5, loss_scale=1.04858e+06", 2.0**20),
        ("num_updates=5, loss_scale=1.34218e+08", 2.0**27),
        ("num_updates=5, loss_scale=0.125", 0.125),
        ("num_updates=5, loss_scale=1399", math.nan),
        ("num_updates=5, loss_scale=1.04857e+06", math.nan),
        ("num_updates=5, loss_scale=0.031", math.nan),
        ("num_updates=5, loss_scale=0.000", math.nan),
        ("num_updates=5, loss_scale=inf", math.nan),
        ("num_updates=5, lr=0.1", math.nan),
    ],
)
def test_scale_of_a_line_is_read_if_its_digits_determine_it(line, scale):
    """Six digits determine a power of two. Averages, and numbers that one decimal does not determine, are unknown."""
    _, event = only_event(line)
    assert event.scale_after() == scale or (math.isnan(scale) and math.isnan(event.scale_after()))


@pytest.mark.parametrize(
    ("line", "rank"),
    [
        ("[deepspeed] OVERFLOW! Rank 3 Skipping step.", 3),
        ("[default2]:Gradient overflow, skipping update", 2),
        ("[rank5]: Gradient overflow, skipping update", 5),
        ("[1,7]<stdout>:Gradient overflow, skipping update", 7),
        ("[1,7]<stderr>: Gradient overflow, skipping update", 7),
        ("[default2]:[deepspeed] OVERFLOW! Rank 3 Skipping step.", 3),
        ("12: Gradient overflow, skipping update", None),
        ("[12]: Gradient overflow, skipping update", None),
        ("Gradient overflow, skipping update [rank5]:", None),
    ],
)
def test_rank_is_in_the_message_or_before_the_line(line, rank):
    """The prefixes are those of torchrun and mpirun. A line number is not a rank."""
    assert only_event(f"first\n{line}")[1].rank == rank


def test_line_can_have_two_messages():
    """Processes that write at the same time produce such lines."""
    message = "Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to {}"
    [(_, events)] = find_events(message.format(8.0) + message.format(4.0)).items()
    assert [event.overflow().after for event in events] == [8, 4]
    assert events[0].position < events[1].position


def test_log_format_with_most_reports_comes_first():
    """Reports are overflow messages, and lines that count overflows. Formats with equally many reports are sorted by lines."""
    message, line = "Found inf or nan, current scale is: 8.0, decrease to: 8.0*0.5\n", "steps: 20 loss: 6.9\n"
    assert list(find_events(message + line * 5)) == ["paddle", "deepspeed"]
    assert list(find_events("global_step: 3\n" + line * 5)) == ["deepspeed", "paddle"]
    assert list(find_events(message + "[Rank 0] step=1, skipped=0,\n" * 2)) == ["deepspeed", "paddle"]
    assert list(find_events(message + MEGATRON.format(1.0, 0) + "\n" + MEGATRON.format(1.0, 0))) == ["megatron", "paddle"]
    assert list(find_events(message * 2 + MEGATRON.format(1.0, 0))) == ["paddle", "megatron"]


def test_messages_of_all_projects_are_limited_together(monkeypatch):
    monkeypatch.setattr(log_formats, "MOST_MESSAGES", 2)
    assert len(find_events("global_step: 1\nsteps: 2 loss: 6.9\n")) == 2
    with pytest.raises(ValueError, match="a log must have at most 2 messages, got more"):
        find_events("global_step: 1\nsteps: 2 loss: 6.9\nglobal_step: 3\n")


def test_every_log_format_except_lightning_has_messages():
    """The log of Lightning is a table."""
    assert {log_format for log_format, _, _ in ALL_MESSAGES} == set(LOG_FORMATS) - {"lightning"}


@pytest.mark.parametrize(
    ("pattern", "numbers", "lines"),
    [
        (r"step (?P<step>\d+)", [5, 6, 7], [1, 3, 3]),
        (r"^step (?P<step>\d+)", [5, 6], [1, 3]),
        (r"step \d+", [1, 2], [1, 3]),
        (r"loss$", [1], [4]),
    ],
)
def test_step_pattern_finds_the_lines_of_steps(pattern, numbers, lines):
    """With a group `step`, each match is a step; without this group, each line with a match is a step."""
    events = find_steps("step 5\n\nstep 6 step 7\nloss", pattern)
    assert [event.number for event in events] == numbers
    assert [event.line for event in events] == lines
    assert {event.meaning for event in events} == {"steps"}


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("(", r"step_pattern must be a regular expression, got '\('"),
        ("stage", "step_pattern 'stage' matches nothing in the log"),
        (r"step (?P<step>\S+)", "the group 'step' of step_pattern must match digits only, got '5,000' in 'step 5,000'"),
        (r"step|(?P<step>\d+)", "the group 'step' of step_pattern must match digits only, got None in 'step'"),
    ],
)
def test_invalid_step_pattern_raises_an_error(pattern, message):
    with pytest.raises(ValueError, match=message):
        find_steps("step 5,000\n", pattern)
