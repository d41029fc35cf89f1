"""Detection of the file type: overflow trace as text, CSV file, or training log."""

import pytest
from simulation.step_text import as_text, one_line_id

from ampscale.simulation import from_file

MESSAGE = "Found inf or nan, current scale is: 8.0, decrease to: 8.0*0.5\n"
LOG = f"{MESSAGE}step 1\nstep 2\n"
METRICS = "epoch,loss_scale,step\n0,8.0,0\n0,4.0,1\n0,4.0,2\n"
BOTH = "epoch,finite,loss_scale,step\n0,1,8.0,0\n0,1,4.0,1\n0,1,4.0,2\n"


@pytest.mark.parametrize(
    ("name", "text", "options", "expected"),
    [
        ("trace.txt", "..x\n.x\n", {}, "..x.x"),
        ("trace.csv", "..x\n.x\n", {}, "..x.x"),
        ("trace.csv", "finite\n1\n0\n", {}, ".x"),
        ("flags.CSV", "overflow\n1\n0\n", {}, "x."),
        ("flags.txt", "overflow\n1\n0\n", {"column": "overflow"}, "x."),
        ("flags.txt", "bad\n1\n0\n", {"column": "bad", "means": "overflow"}, "x."),
        ("flags.csv", "finite\n1\n0\n", {"means": "finite"}, ".x"),
        ("train.log", LOG, {"step_pattern": r"step (?P<step>\d+)"}, "x."),
        ("train.csv", LOG, {"step_pattern": "^step"}, "x."),
        ("train.log", LOG, {"log_format": "paddle", "step_pattern": "^step"}, "x."),
        ("train.log", b" 12%|\x96\xff\xfe\n" + LOG.encode(), {"step_pattern": "^step"}, "x."),  # some bytes are not UTF-8
        ("train.log", LOG.encode("utf-16"), {"step_pattern": "^step"}, "x."),
        ("train.log", b"\xfe\xff" + LOG.replace("\n", "\r\n").encode("utf-16-be"), {"step_pattern": "^step"}, "x."),
        ("train.log", MESSAGE + "global_step: 1\nglobal_step: 2\n", {}, "x."),
        ("metrics.csv", METRICS, {}, "x."),
        ("metrics.csv", BOTH, {"log_format": "lightning"}, "x."),
        ("metrics.csv", BOTH, {"column": "finite"}, "..."),
        ("train.log", METRICS, {}, "x."),
    ],
    ids=one_line_id,
)
def test_file_type_is_detected(tmp_path, name, text, options, expected):
    (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    assert as_text(from_file(tmp_path / name, **options)) == expected


@pytest.mark.parametrize(
    ("name", "text", "options", "message"),
    [
        ("trace.txt", " \n", {}, "is empty"),
        ("trace.txt", "..x\n.o", {}, "no known messages of apex.* read as an overflow trace, it has 'o' in line 2, column 2"),
        ("trace.txt", b"..\xff", {}, "column 3"),
        ("flags.csv", "bad\n1\n", {}, "must have exactly one column of .*specify column"),
        ("flags.csv", "", {"column": "finite"}, "is empty"),
        ("m.csv", "epoch,finite,scale,step\n0,1,8.0,0\n", {}, "the flag columns .'finite'. and also .*; choose one with column="),
        ("train.log", MESSAGE * 2, {}, "read as a training log: the log does not number its steps.*step_pattern"),
        ("train.log", LOG, {"log_format": "apex"}, "the log has no known messages of apex; but it has messages of paddle"),
        ("train.log", LOG, {"step_pattern": "x", "column": "a"}, "column and means require a CSV file, log_format and"),
        ("train.log", LOG, {"log_format": "paddle", "means": "finite"}, "column and means require a CSV file, log_format and"),
    ],
    ids=one_line_id,
)
def test_invalid_file_raises_an_error(tmp_path, name, text, options, message):
    (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ValueError, match=message):
        from_file(tmp_path / name, **options)


def test_missing_file_raises_file_not_found_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        from_file(tmp_path / "none.txt")
