"""Run files: written records are read again, also while the file grows, and errors name the line."""

import math
import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ampscale import LossScaleRule
from ampscale.diagnostics import Diagnosis, Histogram, StepRecord, TensorStatistics, Verdict, read_run
from ampscale.diagnostics.run_files import RunReader, header_line, step_line
from ampscale.parsing import LONGEST_JSON, LONGEST_RUN, MOST_ENTRIES

NUMBERS = st.floats() | st.integers(-(2**70), 2**70).map(float)
HISTOGRAMS = st.builds(Histogram, st.integers(-150, 127), st.lists(st.integers(0, 2**31 - 1), max_size=4).map(tuple))
TENSORS = st.builds(TensorStatistics, *[st.integers(-(2**15), 2**31 - 1)] * 8)
RECORDS = st.builds(
    StepRecord, st.integers(0, 2**53), NUMBERS, NUMBERS, st.booleans(), st.booleans(), st.none() | NUMBERS, st.none() | NUMBERS
)
MEASURED = st.builds(
    replace, RECORDS,
    measured_scale=st.none() | NUMBERS,
    tensors=st.none() | st.lists(TENSORS, max_size=3).map(tuple),
    histograms=st.none() | st.lists(HISTOGRAMS, max_size=3).map(tuple),
    rank=st.none() | st.integers(0, 9),
    finite_ranks=st.none() | st.lists(st.booleans(), max_size=3).map(tuple),
    finite_at_one=st.none() | st.booleans(),
    is_original=st.booleans(), stale=st.booleans(), modified=st.booleans(),
    change=st.none() | NUMBERS,
)  # fmt: skip
HEADER = header_line(None, None).encode()
PLAIN = '{"step":%d,"scale":8.0,"next_scale":8.0,"finite":true,"applied":true,"loss":0.5,"norm":1.25}'


def run_of(text):
    """Return the run that is read from a header followed by the lines in *text*."""
    reader = RunReader()
    reader.feed(HEADER + text.encode())
    return reader.run()


@given(st.lists(RECORDS | MEASURED, max_size=20))
@settings(deadline=None)
def test_records_are_read_as_they_were_written(records):
    """Representations are compared, since a NaN does not equal itself."""
    run = run_of("".join(map(step_line, records)))
    assert repr(list(run.records())) == repr(records)
    assert run.steps.tolist() == [record.step for record in records]


@given(st.integers(1, 60), st.booleans())
@settings(max_examples=20, deadline=None)
def test_parts_of_any_size_give_the_same_run(size, is_windows):
    """A line can be cut anywhere. Line ends can be those of Windows."""
    record = StepRecord(0, 8.0, 8.0, finite=True, applied=True, loss=1e-7, measured_scale=8.0, tensors=((0,) * 8,))
    lines = [step_line(replace(record, step=step)) for step in range(3)]
    text = (HEADER.decode() + "".join(lines)).replace("\n", "\r\n" if is_windows else "\n").encode()
    reader = RunReader()
    for start in range(0, len(text), size):
        reader.feed(text[start : start + size])
    assert reader.bytes == len(text)
    assert reader.run().losses.tolist() == [1e-7] * 3
    assert [measurement.position for measurement in reader.run().measurements] == [0, 1, 2]


def test_header_has_rule_and_names(tmp_path):
    """Names can have any characters."""
    rule = LossScaleRule(init_scale=2.0**20, hysteresis=2)
    path = tmp_path / "run.jsonl"
    path.write_text(header_line(rule, ["层.weight", '"\n']), "utf-8")
    run = read_run(path)
    assert (run.rule, run.names, run.steps.size) == (rule, ("层.weight", '"\n'), 0)


def test_diagnoses_are_read_as_they_were_written():
    """A number that JSON lacks becomes a string. A message may contain text that looks like a key."""
    record = StepRecord(3, 8.0, 4.0, finite=False, applied=False)
    diagnosis = Diagnosis(3, Verdict.FORWARD, 'the loss was "nan":', {"loss": math.nan, "skips": 2}, stall="20 steps")
    run = run_of(step_line(record, diagnosis) + step_line(StepRecord(4, 8.0, 4.0, finite=True, applied=True)))
    assert run.diagnoses == (Diagnosis(3, Verdict.FORWARD, 'the loss was "nan":', {"loss": "nan", "skips": 2}, "20 steps"),)
    assert run.steps.tolist() == [3, 4]


def test_unfinished_last_line_is_ignored(tmp_path):
    """A last line without a line feed is ignored even if it is a complete JSON object. Progress is reported up to 1."""
    path, shares = tmp_path / "run.jsonl", []
    path.write_bytes(HEADER + (PLAIN % 0 + "\n" + PLAIN % 1).encode())
    assert read_run(path, shares.append).steps.tolist() == [0]
    assert shares == [1.0]


def test_histograms_have_gradient_and_exponent_of_each_bin():
    """A gradient without finite values has no bin."""
    histograms = (Histogram(-3, (5, 0, 7)), Histogram(0, ()), Histogram(9, (1,)))
    record = StepRecord(0, 8.0, 8.0, finite=True, applied=True, measured_scale=8.0, histograms=histograms)
    (measurement,) = run_of(step_line(record)).measurements
    gradients, exponents = measurement.histograms.bins()
    assert list(zip(gradients, exponents, measurement.histograms.counts, strict=True)) == [
        (0, -3, 5), (0, -2, 0), (0, -1, 7), (2, 9, 1),
    ]  # fmt: skip
    assert measurement.gradient_count == 3


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "Expecting value: column 1"),
        (HEADER.decode().rstrip(), "a run file must have one header, in line 1: write each run to a file of its own"),
        ("[]", "a step must be a JSON object, got []"),
        ("{}", "a step of a run file must have the members of StepRecord"),
        (PLAIN[:-1] % 1, "Expecting ',' delimiter"),
        (PLAIN.replace("0.5", "0.5.1") % 1, "Expecting ',' delimiter"),
        (PLAIN.replace("0.5", "05") % 1, "Expecting ',' delimiter"),
        (PLAIN.replace("0.5", "") % 1, "Expecting value"),
        (PLAIN.replace('"step":%d', '"st1ep":'), "Expecting value"),
        (PLAIN.replace("0.5", "NaN") % 1, "each number must be finite, got NaN"),
        (PLAIN.replace("0.5", "1e999") % 1, "each number must be in the range of float64, got 1e999"),
        (PLAIN.replace("0.5", "9" * 400 + ".0") % 1, "each number must be in the range of float64"),
        (PLAIN.replace("0.5", "null") % 1, 'expected a finite number, "inf", "-inf" or "nan", got None'),
        (PLAIN.replace("0.5", '"0.5"') % 1, "or \"nan\", got '0.5'"),
        (PLAIN.replace("0.5", "true") % 1, 'or "nan", got True'),
        (PLAIN.replace("8.0", "true") % 1, 'or "nan", got True'),
        (PLAIN.replace("%d", "1.5"), "expected an int, got 1.5"),
        (PLAIN % 2**63, "each step must be an int64, got [9223372036854775808]"),
        (PLAIN.replace("8.0", "9" * 30) % 1, "each scale must be a finite float64 or an int64, got [9999"),
        (PLAIN.replace("true", "false") % 2**63, "each integer must be in the range of int64"),
        (PLAIN.replace("true", "tr5ue") % 1, "Expecting value"),
        (PLAIN.replace("true", "1") % 1, "expected true or false, got 1"),
        (PLAIN.replace('"loss"', '"lo5s"') % 1, "unknown members of a step ['lo5s']"),
        (PLAIN.replace('"loss"', '"norm"') % 1, "duplicate key in JSON object: 'norm'"),
        (PLAIN[:-1] % 1 + ',"tensors":[[1,2]]}', "Expected 8 arguments, got 2"),
        (PLAIN[:-1] % 1 + ',"tensors":[[1,2,3,4,5,6,7],[1,2,3,4,5,6,7,8,9]]}', "a step of a run file must have"),
        (PLAIN[:-1] % 1 + ',"tensors":[[1,2,3,4,5,6,7,true]]}', "expected an int, got True"),
        (PLAIN[:-1] % 1 + ',"histograms":[[0.5,[1]]]}', "expected an int, got 0.5"),
        (PLAIN[:-1] % 1 + ',"histograms":[[0,[1,-2]]]}', "the counts of a histogram must not be negative, got -2"),
        (PLAIN[:-1] % 1 + ',"diagnosis":{}}', "a diagnosis must have verdict, message and evidence, got {}"),
        (
            PLAIN[:-1] % 1 + ',"diagnosis":{"verdict":"healthy","message":1,"evidence":{}}}',
            "a diagnosis must have a str as message",
        ),
        (PLAIN[:-1] % 1 + ',"diagnosis":{"verdict":"fine","message":"","evidence":{}}}', "'fine' is not a valid Verdict"),
        (PLAIN[:-1] % 1 + ',"stale":' + "[" * 10_000 + "}", "nested too deeply"),
        (PLAIN % 1 + "," + PLAIN % 2, "Extra data"),
    ],
)
@pytest.mark.parametrize("before", [1, 30])
def test_invalid_line_is_named_by_its_number(line, message, before):
    """Line 1 is the header."""
    text = "".join(PLAIN % step + "\n" for step in range(before)) + line + "\n" + PLAIN % 9 + "\n"
    with pytest.raises(ValueError, match=f"^line {before + 2}: ") as error:
        run_of(text)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("", "must start with a header line"),
        ("\n", "line 1 must be the header of a run file"),
        (PLAIN % 0 + "\n", 'line 1 must be the header of a run file, {"format": "ampscale-run", ...}, got {"step"'),
        ('{"format":"ampscale-run","version":2}\n', "line 1: the version of the run file must be 1, got 2"),
        ('{"format":"ampscale-run","version":1,"names":"w"}\n', "line 1: names must be a list of strings or null, got 'w'"),
        (
            f'{{"format":"ampscale-run","version":1,"names":{["w"] * (MOST_ENTRIES + 1)}}}\n'.replace("'", '"'),
            "line 1: there must be",
        ),
        ('{"format":"ampscale-run","version":1,"rule":{"growth":2}}\n', "line 1: the keys of a rule must be among"),
        ("a" * (LONGEST_JSON + 1), f"a line must have at most {LONGEST_JSON} bytes"),
    ],
)
def test_file_without_a_valid_header_is_rejected(header, message, tmp_path):
    """A training log, for example, is not a run file."""
    path = tmp_path / "run.jsonl"
    path.write_text(header)
    with pytest.raises(ValueError, match=re.escape(message)):
        read_run(path)


def test_file_above_the_size_limit_is_rejected(tmp_path):
    """Devices are rejected, too."""
    path = tmp_path / "run.jsonl"
    with path.open("wb") as file:
        file.truncate(LONGEST_RUN + 1)
    with pytest.raises(ValueError, match=f"must have at most {LONGEST_RUN} bytes"):
        read_run(path)
    with pytest.raises(ValueError, match="must be a file or a pipe, got a device"):
        read_run("/dev/zero")
