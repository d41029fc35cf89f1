"""`ampscale watch`: the state of a run, once or while another process writes it."""

import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress

import pytest
from cli.run_samples import write_run, write_steps
from cli.runner import Runner

from ampscale.cli.watch import watch
from ampscale.diagnostics import StepRecord
from ampscale.diagnostics.run_files import header_line, step_line

RUNNER = Runner(watch)


def test_state_has_scale_skips_norm_and_gradients(tmp_path):
    """The gradients are those of the last measured step. Verdicts are counted, and markup in a name is printed as it is."""
    lines = RUNNER.printed(write_run(tmp_path / "run.jsonl"), "--once")
    text = " ".join(" ".join(lines).split())
    assert "40 steps, the last is 39; 3 skipped (7.5 %) scale 2^13" in text
    assert "loss 0.25 norm 2 at step 30 skipped last 0, 1, 20" in text
    assert "searching: 2 steps, the last is 1: <i>overflow</i> at step 1" in text
    assert "occasional: 1 step, the last is 20" in text
    table = [line.split() for line in lines[-4:]]
    assert table[0] == ["at", "step", "30", "lost", "subnormal", "largest", "finite"]
    assert table[2:] == [
        ["layers.0.weight", "50", "%", "100", "%", "<", "2^-33", "yes"],
        ["<b>&amp;", "0", "%", "0", "%", "<", "2^2", "yes"],
    ]


def test_worst_ten_gradients_are_listed_in_80_columns(tmp_path):
    """Long names are wrapped. The numbers of the lost values are 0 to 29 of 100."""
    tensors = tuple((100, 0, index, index, 0, 0, -30, 3) for index in range(30))
    record = StepRecord(0, 1.0, 1.0, finite=True, applied=True, measured_scale=1.0, tensors=tensors)
    path = write_steps(tmp_path / "run.jsonl", [record], [f"{index:x}{'n' * 100}" for index in range(30)])
    lines = RUNNER.printed(path, "--once")
    assert max(map(len, lines)) <= 80
    _, *rows = (line.split() for line in lines if "%" in line)  # the first line has the share of skipped steps
    assert [row[-7] for row in rows] == [str(share) for share in range(29, 19, -1)]


@pytest.mark.parametrize(
    ("scales", "blocks"),
    [([1.0], "▁"), ([1.0, 2.0], "▁█"), ([0.0, 1.0, float("inf")], "▁▅█"), ([4.0, 2.0**11] * 99, "▁" * 60)],
    ids=["one step", "two steps", "zero and infinity", "many steps"],
)
def test_line_of_blocks_has_the_largest_scale_of_each_part(tmp_path, scales, blocks):
    """The line has at most 60 characters."""
    records = [StepRecord(step, scale, scale, finite=True, applied=True) for step, scale in enumerate(scales)]
    lines = RUNNER.printed(write_steps(tmp_path / "run.jsonl", records), "--once")
    (index,) = (index for index, line in enumerate(lines) if line.startswith("scale "))
    assert lines[index + 1].split() == [blocks]


@pytest.mark.parametrize(
    ("loss", "text"), [({}, "unknown"), ({"loss": float("nan")}, "NaN"), ({"loss": float("inf")}, "inf"), ({"loss": 0.5}, "0.5")]
)
@pytest.mark.parametrize("applied", [True, False])
def test_loss_is_unknown_only_without_a_loss(tmp_path, loss, text, applied):
    """The loss is that of the last step, which may be NaN or infinite."""
    records = [
        StepRecord(step, 1.0, 1.0, finite=True, applied=applied, **members) for step, members in ((0, {"loss": 9.0}), (1, loss))
    ]
    lines = RUNNER.printed(write_steps(tmp_path / "run.jsonl", records), "--once")
    assert [line.split()[1] for line in lines if line.startswith("loss ")] == [text]


def test_run_without_steps_is_described(tmp_path):
    """The file has only a header."""
    assert RUNNER.printed(write_steps(tmp_path / "run.jsonl", []), "--once") == ["run.jsonl: no step yet"]


@pytest.mark.parametrize(
    ("text", "arguments", "message"),
    [
        (None, ["--once"], "run.jsonl' does not exist"),
        (header_line(None, None) + "x\n", ["--once"], "line 2: "),
        ("", [], "stdout must be a terminal, unless --once is given, which prints the current state"),
    ],
    ids=["no file", "damaged step", "no terminal"],
)
def test_usage_error_has_a_message(tmp_path, text, arguments, message):
    """The exit code is 2."""
    path = tmp_path / "run.jsonl"
    if text is not None:
        path.write_text(text)
    assert message in RUNNER.error(path, *arguments)


def test_file_is_followed_until_control_c(tmp_path):
    """The command waits for the file, and reads it from its start after it is replaced. The exit code is 0."""
    pty = pytest.importorskip("pty", reason="capability pty: no pseudo-terminals on this system")
    path, (terminal, stream) = tmp_path / "run.jsonl", pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "200"}
    command = [sys.executable, "-m", "ampscale", "watch", str(path)]
    # A shell's background processes ignore SIGINT, and so would the command.
    old_handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    process = subprocess.Popen(command, stdin=stream, stdout=stream, stderr=stream, env=environment)
    signal.signal(signal.SIGINT, old_handler)
    try:
        os.close(stream)
        read_until(terminal, "Waiting for ")
        write_run(path)
        read_until(terminal, "40 steps")
        with path.open("a") as file:
            file.write(step_line(StepRecord(40, 2.0**20, 2.0**21, finite=True, applied=True)))
        read_until(terminal, "41 steps")
        path.unlink()
        write_run(path, steps=30)
        read_until(terminal, "30 steps")
        process.send_signal(signal.SIGINT)
        assert exit_code(process, terminal) == 0
    finally:
        process.kill()
        process.wait()
        os.close(terminal)


def exit_code(process, terminal):
    """Wait for a process, at most 30 seconds. Meanwhile read what it prints, since it cannot end while the terminal is full."""
    end = time.monotonic() + 30
    while process.poll() is None:
        assert time.monotonic() < end
        with suppress(OSError):  # the process has closed the terminal
            if select.select([terminal], [], [], 0.1)[0]:
                os.read(terminal, 65536)
    return process.returncode


def read_until(terminal, text):
    """Read from a pseudo-terminal until *text* appears, at most 30 seconds."""
    output, end = "", time.monotonic() + 30
    while text not in output:
        assert time.monotonic() < end, output
        if select.select([terminal], [], [], 0.1)[0]:
            output += os.read(terminal, 65536).decode(errors="replace")
