"""Traces, from wherever they come: a dot is a finite step, an x an overflow."""

import math
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import alike

from ampscale.simulation import Observed, Trace, from_csv, from_file, from_flags, from_model, from_string, observed_csv

MESSAGE = "Found inf or nan, current scale is: 8.0, decrease to: 8.0*0.5\n"
LOG = f"{MESSAGE}step 1\nstep 2\n"
METRICS = "epoch,loss_scale,step\n0,8.0,0\n0,4.0,1\n0,4.0,2\n"
BOTH = "epoch,finite,loss_scale,step\n0,1,8.0,0\n0,1,4.0,1\n0,1,4.0,2\n"
UNKNOWN = "of 2 of 4 steps it is not known whether they were finite, the first is step 1"


def drawn(trace):
    """A recorded trace as text."""
    assert np.isinf(trace.limits).all()
    return "".join("." if limit > 0 else "x" for limit in trace.limits)


def written(folder, text, name="trace.csv"):
    """A file with this text."""
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def close_to(share, steps):
    """What a share of so many independent steps lies within, but for one time in ten thousand million."""
    return pytest.approx(share, abs=6.5 * math.sqrt(share * (1 - share) / steps))


def below(power, noise):
    """The share of log-normal limits that lie below 2**power times their median, in closed form."""
    return (1 + math.erf(power / noise / math.sqrt(2))) / 2


def test_a_recorded_step_is_finite_at_any_scale_or_at_none():
    """A finite step has the limit inf, an overflow -inf, in float64."""
    trace = from_flags([True, False, np.True_])
    assert alike(trace.limits, np.array([math.inf, -math.inf, math.inf]))
    assert len(trace) == 3
    assert len(from_flags([])) == 0


@pytest.mark.parametrize("kind", [list, tuple, iter, np.array])
def test_flags_come_in_any_iterable(kind):
    """Lists, generators and arrays of bools alike."""
    assert drawn(from_flags(kind([True, False, True]))) == ".x."


@pytest.mark.parametrize("flags", [[True, 1], [True, None], [True, "x"], [True, np.int64(0)]])
def test_a_flag_that_is_no_bool_is_refused(flags):
    """A number could mean either; the message names the step."""
    with pytest.raises(TypeError, match=r"flags must be bools, got .* at step 1"):
        from_flags(flags)


def test_an_array_of_flags_is_one_row_of_bools():
    """Numbers and tables are refused."""
    with pytest.raises(TypeError, match="flags must be a NumPy array of bool, got dtype int64"):
        from_flags(np.array([1, 0]))
    with pytest.raises(ValueError, match=r"flags must have one axis, got shape \(1, 2\)"):
        from_flags(np.array([[True, False]]))


def test_a_text_draws_a_trace():
    """Dots are finite, both kinds of x overflow, and whitespace means nothing."""
    assert drawn(from_string("..xX\n\t. x\r\n")) == "..xx.x"
    assert len(from_string(" \n")) == 0


@given(st.text(".xX \n\t", max_size=40))
def test_a_text_has_as_many_steps_as_characters_that_are_no_space(text):
    """Drawn again, it is the same text."""
    assert drawn(from_string(text)) == "".join(text.split()).lower()


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("..o", "'o' in line 1, column 3"),
        ("..x\n.-", "'-' in line 2, column 2"),
        ("1", "'1' in line 1, column 1"),
        ("x.\n\n\n..é", "'é' in line 4, column 3"),
        (".\x00", r"'\x00' in line 1, column 2"),
    ],
)
def test_another_character_is_named_with_its_place(text, where):
    """Line and column are counted from 1."""
    with pytest.raises(ValueError, match="a trace is written with") as caught:
        from_string(text)
    assert str(caught.value).endswith(f"got {where}")


def test_a_text_is_a_string():
    """Bytes are refused."""
    with pytest.raises(TypeError, match=r"text must be a string of '.' and 'x', got b'\.' of type bytes"):
        from_string(b".")


@pytest.mark.parametrize("name", ["finite", "FINITE", "overflow", "found_inf", "Skipped"])
def test_a_known_column_says_what_true_means(tmp_path, name):
    """A true cell is a finite step under finite, and an overflow under the other names, in any case."""
    path = written(tmp_path, f"step,{name}\n1,true\n2,false\n3,False\n")
    assert drawn(from_csv(path)) == (".xx" if name.lower() == "finite" else "x..")
    assert drawn(from_csv(path, column=name)) == drawn(from_csv(path))


@pytest.mark.parametrize(("yes", "no"), [("1", "0"), ("1.0", "0.0"), ("TRUE", "FALSE"), ("True", "False"), ("yes", "No")])
def test_cells_are_read_in_the_usual_ways(tmp_path, yes, no):
    """Numbers, and words in any case, with spaces around."""
    assert drawn(from_csv(written(tmp_path, f"finite\n{yes}\n {no} \n{yes}\n"))) == ".x."


def test_another_column_needs_a_meaning(tmp_path):
    """Its polarity is not guessed, and it is read in the one that is given."""
    path = written(tmp_path, "nan_seen\n1\n0\n")
    with pytest.raises(ValueError, match=r"what does a true cell of 'nan_seen' mean\? give means='finite' or means='overflow'"):
        from_csv(path, column="nan_seen")
    assert drawn(from_csv(path, column="nan_seen", means="overflow")) == "x."
    assert drawn(from_csv(path, column="nan_seen", means="finite")) == ".x"


def test_a_meaning_cannot_contradict_a_name(tmp_path):
    """A column named finite is about finite steps."""
    path = written(tmp_path, "finite\n1\n")
    assert drawn(from_csv(path, means="finite")) == "."
    with pytest.raises(ValueError, match="a true cell of 'finite' means 'finite', got means='overflow'"):
        from_csv(path, means="overflow")
    with pytest.raises(ValueError, match="means must be 'finite' or 'overflow', got 'good'"):
        from_csv(path, means="good")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a row of names and at least one row of values, got 0 rows"),
        ("finite\n", "a row of names and at least one row of values, got 1 rows"),
        ("step,scale\n1,2\n", "one column of .*, or one be named; got .. among .'step', 'scale'."),
        ("finite,overflow\n1,0\n", "one column of .*; got .'finite', 'overflow'. among"),
        ("finite,finite\n1,0\n", "one column of .*; got .'finite', 'finite'. among"),
        ("finite,step\n1,1\n0\n", "line 3: every row must have 2 cells"),
        ("finite\n1\n\n0,1\n", "line 4: every row must have 1 cells"),
        ("finite\n1\n2\n", "line 3: 'finite' must be one of 1, 1.0, true, yes, 0, 0.0, false, no, got '2'"),
        ("step,finite\n1,1\n2,\n", "line 3: 'finite' must be one of .*, got ''"),
        ("finite\n.\n", "line 2: 'finite' must be one of .*, got '.'"),
    ],
)
def test_a_csv_file_that_is_no_record_is_refused(tmp_path, text, message):
    """Each complaint names the file, and the line where there is one."""
    with pytest.raises(ValueError, match=rf"trace\.csv.*{message}"):
        from_csv(written(tmp_path, text))


def test_a_named_column_must_be_there_once(tmp_path):
    """The message lists those that are there."""
    with pytest.raises(ValueError, match=r"one column 'bad', got 0 among \['a', 'a'\]"):
        from_csv(written(tmp_path, "a,a\n1,1\n"), column="bad")
    with pytest.raises(ValueError, match=r"one column 'a', got 2 among \['a', 'a'\]"):
        from_csv(written(tmp_path, "a,a\n1,1\n"), column="a", means="finite")


def test_csv_files_come_from_many_programs(tmp_path):
    """A byte order mark, quotes, carriage returns, spaces and empty lines do not matter."""
    path = tmp_path / "trace.csv"
    path.write_bytes('\ufeffstep, "finite"\r\n"1","1"\r\n\r\n2, 0\r\n'.encode())
    assert drawn(from_csv(path, column="finite")) == ".x"


@pytest.mark.parametrize("content", [b"finite\n\xff\n", b"finite\n1\x00\n", b'finite\n"' + b"1" * 200_000 + b'"\n'])
def test_a_file_that_is_no_csv_file_is_refused(tmp_path, content):
    """Bytes that are no UTF-8, and what Python's reader refuses."""
    path = tmp_path / "trace.csv"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"trace\.csv(, line 2: 'finite' must be| is no CSV file in UTF-8)"):
        from_csv(path)


def test_a_record_may_know_less_than_a_trace(tmp_path):
    """Empty cells: a scale that was not seen, a flag that is not known, and the scale after the last step."""
    path = written(tmp_path, "step,scale,overflow\n1,8,0\n2,,1\n3,4.0,\n4,inf,false\n5,2e3,\n")
    seen = observed_csv(path)
    assert alike(seen.scales, np.array([8.0, math.nan, 4.0, math.inf, 2000.0]))
    assert alike(seen.finite, np.array([1, 0, -1, 1], np.int8))


def test_without_a_scale_after_the_last_step_it_was_not_seen(tmp_path):
    """A last row with a flag is a step."""
    seen = observed_csv(written(tmp_path, "scale,finite\n8,0\n4,1\n"))
    assert alike(seen.scales, np.array([8.0, 4.0, math.nan]))
    assert alike(seen.finite, np.array([0, 1], np.int8))


def test_a_record_may_have_scales_alone(tmp_path):
    """Then no flag is known, and the last scale is the one after the last step."""
    seen = observed_csv(written(tmp_path, "S,loss\n8,1.5\n4,1.4\n4,1.3\n"), scale_column="S")
    assert alike(seen.scales, np.array([8.0, 4.0, 4.0]))
    assert alike(seen.finite, np.array([-1, -1], np.int8))


def test_a_named_flag_of_a_record_speaks_of_overflows(tmp_path):
    """Except where it is named finite."""
    path = written(tmp_path, "scale,bad,finite\n8,1,1\n4,0,1\n")
    assert alike(observed_csv(path, overflow_column="bad").finite, np.array([0, 1], np.int8))
    assert alike(observed_csv(path, overflow_column="finite").finite, np.array([1, 1], np.int8))
    assert alike(observed_csv(path).finite, np.array([1, 1], np.int8))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Scale,overflow\n8,1\n", "one column 'scale', got 0"),
        ("scale,overflow\nbig,1\n", "line 2: 'scale' must be a number of at least 0, or empty, got 'big'"),
        ("scale,overflow\n8,1\n-1,1\n", "line 3: 'scale' must be a number of at least 0, or empty, got '-1'"),
        ("scale,overflow\n8,maybe\n", "line 2: 'overflow' must be one of .*, got 'maybe'"),
        ("scale,overflow,finite\n8,1,0\n", "one column of .*; got .'overflow', 'finite'."),
    ],
)
def test_a_record_that_cannot_be_read_is_refused(tmp_path, text, message):
    """Each complaint names the file, and the line where there is one."""
    with pytest.raises(ValueError, match=rf"trace\.csv.*{message}"):
        observed_csv(written(tmp_path, text))


@given(st.lists(st.tuples(st.floats(0, 2.0**40) | st.none(), st.sampled_from([True, False, None])), min_size=1, max_size=20))
def test_a_written_record_is_read_as_it_was(tmp_path_factory, rows):
    """Every scale and every flag comes back; the last row is a step where it has a flag."""
    lines = [f"{'' if scale is None else repr(scale)},{'' if bad is None else bad}\n" for scale, bad in rows]
    seen = observed_csv(written(tmp_path_factory.mktemp("csv"), "scale,overflow\n" + "".join(lines)))
    flags = [-1 if bad is None else int(not bad) for _, bad in rows]
    scales = [math.nan if scale is None else scale for scale, _ in rows]
    ends = flags[-1] == -1
    assert seen.finite.tolist() == (flags[:-1] if ends else flags)
    assert alike(seen.scales, np.array(scales if ends else [*scales, math.nan], np.float64))


def test_a_record_gives_a_trace_where_every_flag_is_known():
    """Else the message counts the unknown steps, names the first, and says what to do."""
    scales = np.ones(5)
    assert drawn(Observed(scales, np.array([1, 0, 0, 1], np.int8)).trace()) == ".xx."
    with pytest.raises(ValueError, match=UNKNOWN + ".*a log with a line for each step"):
        Observed(scales, np.array([1, -1, -1, 1], np.int8)).trace()


@pytest.mark.parametrize(
    ("limits", "error", "message"),
    [
        ([1.0], TypeError, r"limits must be a NumPy array of float64, got \[1.0\] of type list"),
        (np.ones(2, np.float32), TypeError, "limits must be a NumPy array of float64, got dtype float32"),
        (np.ones((2, 1)), ValueError, r"limits must have one axis, got shape \(2, 1\)"),
        (np.array([1, np.nan]), ValueError, "limits must hold no NaN, got one at step 1"),
    ],
)
def test_limits_are_float64_and_no_nan(limits, error, message):
    """Nothing is converted."""
    with pytest.raises(error, match=message):
        Trace(limits)


@pytest.mark.parametrize(
    ("scales", "finite", "error", "message"),
    [
        ([1.0, 1.0], np.ones(1, np.int8), TypeError, "scales must be a NumPy array of float64, got .* of type list"),
        (np.ones(2), np.ones(1, bool), TypeError, "finite must be a NumPy array of int8, got dtype bool"),
        (np.ones((2, 1)), np.ones(1, np.int8), ValueError, "scales must have one axis"),
        (np.ones(2), np.ones(2, np.int8), ValueError, "scales must have one element more than finite, got 2 and 2"),
        (np.array([1.0, -2.0]), np.ones(1, np.int8), ValueError, "scales must not be negative, got -2.0"),
        (np.ones(2), np.full(1, 2, np.int8), ValueError, r"finite must hold -1, 0 and 1 alone, got \[2\]"),
    ],
)
def test_a_record_has_fitting_arrays(scales, finite, error, message):
    """Their dtypes, lengths and values are checked."""
    with pytest.raises(error, match=message):
        Observed(scales, finite)


@pytest.mark.parametrize("power", [-3, -1, 0, 0.5, 2])
def test_a_model_is_log_normal(power):
    """As many limits lie below a scale as the closed form says, and half below `above`."""
    trace = from_model(200_000, above=2.0**15, noise=1.5, seed=3)
    assert (trace.limits < 2.0 ** (15 + power)).mean() == close_to(below(power, 1.5), 200_000)


def test_the_steps_of_a_model_are_independent():
    """A step above the median is followed by one above as often as by one below."""
    high = from_model(200_000, above=1.0, noise=0.7).limits > 1
    assert (high[1:] == high[:-1]).mean() == close_to(0.5, 199_999)


def test_noise_is_in_powers_of_two():
    """The logarithm to base 2 has the standard deviation that was asked for."""
    powers = np.log2(from_model(200_000, above=8.0, noise=0.25, seed=1).limits)
    assert powers.mean() == pytest.approx(3, abs=6.5 * 0.25 / math.sqrt(200_000))
    assert powers.std() == pytest.approx(0.25, rel=6.5 / math.sqrt(2 * 200_000))


def test_a_drift_moves_the_median():
    """By so many powers of two in 1000 steps, without noise exactly, and with noise as the median of windows."""
    still = from_model(3001, above=8.0, drift=-2.0).limits
    assert still[[0, 500, 1000, 3000]].tolist() == [8.0, 4.0, 2.0, 0.125]
    noisy = from_model(3001, above=8.0, noise=1.0, drift=-2.0).limits
    assert np.log2(noisy / still).mean() == pytest.approx(0, abs=6.5 / math.sqrt(3001))


def test_without_noise_every_limit_is_the_same():
    """Bit for bit, also where it is no power of two."""
    assert alike(from_model(4, above=0.1).limits, np.full(4, 0.1))


def test_a_seed_gives_the_same_trace_again():
    """Another seed gives another, and more steps go on where fewer ended."""
    first = from_model(100, 1.0, noise=1.0, seed=5)
    assert alike(first.limits, from_model(100, 1.0, noise=1.0, seed=5).limits)
    assert not np.isclose(first.limits, from_model(100, 1.0, noise=1.0, seed=6).limits).any()
    assert alike(first.limits, from_model(200, 1.0, noise=1.0, seed=5).limits[:100])


def test_limits_beyond_float64_are_infinite_or_zero():
    """Without a warning: such steps are finite at any scale, or at no positive one."""
    wild = from_model(1000, 1.0, noise=1000.0).limits
    assert {0.0, math.inf} < set(wild)
    assert from_model(2000, 8.0, drift=1000.0).limits[-1] == math.inf
    assert from_model(2000, 8.0, drift=-1000.0).limits[-1] == 0


def test_a_million_steps_take_no_time():
    """Far less than a second, at the best of three times."""

    def seconds():
        start = time.perf_counter()
        from_model(1_000_000, 2.0**16, noise=1.0, drift=0.1)
        return time.perf_counter() - start

    assert min(seconds() for _ in range(3)) < 0.3


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"steps": 0}, ValueError, "steps must be an int from 1"),
        ({"steps": 1.0}, TypeError, "steps must be an int"),
        ({"above": 0.0}, ValueError, "above must be a positive, finite number"),
        ({"above": math.inf}, ValueError, "above must be a positive, finite number"),
        ({"above": "8"}, TypeError, "above must be a positive, finite number"),
        ({"noise": -1.0}, ValueError, "noise must be a number from 0 to 1000"),
        ({"noise": 1001}, ValueError, "noise must be a number from 0 to 1000"),
        ({"noise": math.nan}, ValueError, "noise must be a number from 0 to 1000"),
        ({"drift": -1e9}, ValueError, "drift must be a number from -1000 to 1000"),
        ({"drift": None}, TypeError, "drift must be a number from -1000 to 1000"),
        ({"seed": -1}, ValueError, "seed must be an int from 0"),
        ({"seed": None}, TypeError, "seed must be an int from 0"),
    ],
)
def test_a_model_has_sensible_numbers(arguments, error, message):
    """Others are refused, with what was wanted and what came."""
    with pytest.raises(error, match=message):
        from_model(**{"steps": 10, "above": 8.0, **arguments})


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
        ("train.log", LOG, {"dialect": "paddle", "step_pattern": "^step"}, "x."),
        ("train.log", MESSAGE + "global_step: 1\nglobal_step: 2\n", {}, "x."),
        ("metrics.csv", METRICS, {}, "x."),
        ("metrics.csv", BOTH, {"dialect": "lightning"}, "x."),
        ("metrics.csv", BOTH, {"column": "finite"}, "..."),
        ("train.log", METRICS, {}, "x."),
    ],
)
def test_a_file_is_read_as_what_it_is(tmp_path, name, text, options, expected):
    """By its content, its name, or an option."""
    assert drawn(from_file(written(tmp_path, text, name), **options)) == expected


@pytest.mark.parametrize(
    ("name", "text", "options", "message"),
    [
        ("trace.txt", " \n", {}, "is empty"),
        ("trace.txt", "..x\n.o", {}, "no known words of apex.* as a text of '.' and 'x' it has 'o' in line 2, column 2"),
        ("flags.csv", "bad\n1\n", {}, "must have one column of .*, or one be named"),
        ("flags.csv", "", {"column": "finite"}, "is empty"),
        (
            "m.csv",
            "epoch,finite,scale,step\n0,1,8.0,0\n",
            {},
            "flags, .'finite'., and .*: give column=..., or dialect='lightning'",
        ),
        ("train.log", MESSAGE * 2, {}, "read as a training log: the log does not number its steps.*step_pattern"),
        ("train.log", LOG, {"dialect": "apex"}, "read as a training log: the log has no known words of apex; but of paddle"),
        ("train.log", LOG, {"step_pattern": "("}, "read as a training log: step_pattern must be a regular expression"),
        ("train.log", LOG, {"step_pattern": "stage"}, "step_pattern 'stage' matches nothing"),
        ("train.log", LOG, {"step_pattern": "x", "column": "a"}, "column and means speak of a CSV file, dialect and"),
        ("train.log", LOG, {"dialect": "paddle", "means": "finite"}, "column and means speak of a CSV file, dialect and"),
    ],
)
def test_a_file_that_is_nothing_of_these_is_refused(tmp_path, name, text, options, message):
    """The message says what it was read as, and which option would help."""
    with pytest.raises(ValueError, match=message):
        from_file(written(tmp_path, text, name), **options)


def test_a_missing_file_is_the_systems_error(tmp_path):
    """FileNotFoundError, as from open."""
    with pytest.raises(FileNotFoundError):
        from_file(tmp_path / "none.txt")


def test_a_log_may_have_bytes_that_are_no_text(tmp_path):
    """They are not taken for steps, and do not end the reading."""
    path = tmp_path / "train.log"
    path.write_bytes(b"\xff\xfe 12%|\x96\n" + LOG.encode())
    assert drawn(from_file(path, step_pattern="^step")) == "x."
    path.write_bytes(b"..\xff")
    with pytest.raises(ValueError, match="column 3"):
        from_file(path)
