"""CSV files with a row for each step: flags and observed scales."""

import gc
import math
from io import TextIOWrapper

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulation.step_text import as_text, one_line_id
from strategies import alike

from ampscale.parsing import LONGEST_ROW
from ampscale.simulation import from_csv, observed_from_csv


@pytest.fixture
def written(tmp_path):
    """Return a function that writes text or bytes to a file, and returns its path."""

    def write(content):
        path = tmp_path / "trace.csv"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def test_name_of_the_column_determines_the_meaning(written):
    """A true cell is a finite step in the column `finite`, and an overflow in other known columns."""
    for name in ("finite", "FINITE", "overflow", "found_inf", "Skipped"):
        path = written(f"step,{name}\n1,true\n2,false\n3,False\n")
        assert as_text(from_csv(path)) == as_text(from_csv(path, column=name)) == (".xx" if name.lower() == "finite" else "x..")


def test_flags_can_be_numbers_or_words(written):
    """Case and spaces are ignored."""
    for yes, no in [("1", "0"), ("1.0", "0.0"), ("TRUE", "FALSE"), ("True", "False"), ("yes", "No")]:
        assert as_text(from_csv(written(f"finite\n{yes}\n {no} \n{yes}\n"))) == ".x."


def test_unknown_column_requires_a_meaning(written):
    """The meaning is "finite" or "overflow". That of a known column cannot be changed."""
    path = written("nan_seen\n1\n0\n")
    with pytest.raises(ValueError, match=r"a true cell of 'nan_seen' is unknown; specify means, 'finite' or 'overflow'"):
        from_csv(path, column="nan_seen")
    assert as_text(from_csv(path, column="nan_seen", means="overflow")) == "x."
    assert as_text(from_csv(path, column="nan_seen", means="finite")) == ".x"
    path = written("finite\n1\n")
    assert as_text(from_csv(path, means="finite")) == "."
    with pytest.raises(ValueError, match="a true cell of 'finite' means 'finite', got means='overflow'"):
        from_csv(path, means="overflow")
    with pytest.raises(ValueError, match="means must be 'finite' or 'overflow', got 'good'"):
        from_csv(path, means="good")


def test_the_file_is_closed_after_an_error(written):
    """The traceback of the error refers to the file, which would keep it open."""
    path = written("finite\n1\n")
    with pytest.raises(ValueError, match="got means='overflow'") as error:
        from_csv(path, means="overflow")
    files = [file for file in gc.get_objects() if type(file) is TextIOWrapper and str(file.name) == str(path)]
    assert all(file.closed for file in files), error


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        ("", {}, "a row of names and at least one row of values, got no row"),
        ("finite\n", {}, "a row of names and at least one row of values, got 1 row"),
        ("step,scale\n1,2\n", {}, "one column of .*, got .. in .'step', 'scale'."),
        ("finite,overflow\n1,0\n", {}, "one column of .*, got .'finite', 'overflow'. in"),
        ("finite,finite\n1,0\n", {}, "one column of .*, got .'finite', 'finite'. in"),
        ("finite,step\n1,1\n0\n", {}, "line 3: every row must have as many cells as the first row, 2, got 1"),
        ("finite\n1\n\n0,1\n", {}, "line 4: every row must have as many cells as the first row, 1, got 2"),
        ("finite\n1\n2\n", {}, "line 3: 'finite' must be one of 1, 1.0, true, yes, 0, 0.0, false, no, got '2'"),
        ("step,finite\n1,1\n2,\n", {}, "line 3: 'finite' must be one of .*, got ''"),
        ("Step,finite\n0,1\n10.0,1\n", {}, "line 3: 'Step' must increase by 1, .* got '10.0' after '0'"),
        ("step,finite\n0,1\nx,1\n7,1\n7,1\n", {}, "line 5: 'step' must increase by 1, .* got '7' after '7'"),
        ("a,a\n1,1\n", {"column": "bad"}, r"one column 'bad', got 0 in \['a', 'a'\]"),
        ("a,a\n1,1\n", {"column": "a", "means": "finite"}, r"one column 'a', got 2 in \['a', 'a'\]"),
        (b"finite\n\xff\n", {}, " must be a CSV file in UTF-8"),
        (b"finite\n1\x00\n", {}, "(, line 2: 'finite' must be| must be a CSV file in UTF-8)"),
        (b'finite\n"' + b"1" * 200_000 + b'"\n', {}, " must be a CSV file in UTF-8"),
    ],
    ids=one_line_id,
)
def test_invalid_csv_file_raises_an_error(written, content, options, message):
    """The message contains the path, and the line if there is one."""
    with pytest.raises(ValueError, match=rf"trace\.csv.*{message}"):
        from_csv(written(content), **options)


def test_csv_files_of_many_programs_are_read(written):
    """A byte order mark, quotes, carriage returns, spaces and empty lines are accepted."""
    path = written('\ufeffstep, "finite"\r\n"1","1"\r\n\r\n2, 0\r\n')
    assert as_text(from_csv(path, column="finite")) == ".x"


@pytest.mark.parametrize(
    ("text", "options", "scales", "finite"),
    [
        ("step,scale,overflow\n1,8,0\n2,,1\n3,4.0,\n4,inf,false\n5,2e3,\n", {}, [8, math.nan, 4, math.inf, 2000], [1, 0, -1, 1]),
        ("finite,scale\n0,8\n1,4\n", {}, [8, 4, math.nan], [0, 1]),  # a last row with a flag is a step
        ("S,loss\n8,1.5\n4,1.4\n4,1.3\n", {"scale_column": "S"}, [8, 4, 4], [-1, -1]),
        ("scale,bad,finite\n8,1,1\n4,0,1\n", {"overflow_column": "bad"}, [8, 4, math.nan], [0, 1]),
        ("scale,bad,finite\n8,1,1\n4,0,1\n", {"overflow_column": "finite"}, [8, 4, math.nan], [1, 1]),
        ("scale,bad,finite\n8,1,1\n4,0,1\n", {}, [8, 4, math.nan], [1, 1]),
    ],
    ids=one_line_id,
)
def test_observed_may_have_unknown_scales_and_flags(written, text, options, scales, finite):
    """Empty cells and missing columns are unknown."""
    observed = observed_from_csv(written(text), **options)
    assert alike(observed.scales, np.array(scales, np.float64))
    assert alike(observed.finite, np.array(finite, np.int8))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Scale,overflow\n8,1\n", "one column 'scale', got 0"),
        ("scale,overflow\nbig,1\n", "line 2: 'scale' must be a number of at least 0, or empty, got 'big'"),
        ("scale,overflow\nnan,1\n", "line 2: 'scale' must be a number of at least 0, or empty, got 'nan'"),
        ("scale,overflow\n8,1\n-1,1\n", "line 3: 'scale' must be a number of at least 0, or empty, got '-1'"),
        ("scale,overflow\n8,maybe\n", "line 2: 'overflow' must be one of .*, got 'maybe'"),
        ("scale,overflow,finite\n8,1,0\n", "one column of .*, got .'overflow', 'finite'."),
    ],
    ids=one_line_id,
)
def test_invalid_table_of_scales_raises_an_error(written, text, message):
    """The message contains the path, and the line if there is one."""
    with pytest.raises(ValueError, match=rf"trace\.csv.*{message}"):
        observed_from_csv(written(text))


@given(st.lists(st.tuples(st.floats(0, 2.0**40) | st.none(), st.sampled_from([True, False, None])), min_size=1, max_size=20))
def test_written_table_is_read_back(written, rows):
    """If the last row has no flag, its scale is the one after the last step."""
    lines = [f"{'' if scale is None else repr(scale)},{'' if overflow is None else overflow}\n" for scale, overflow in rows]
    observed = observed_from_csv(written("scale,overflow\n" + "".join(lines)))
    flags = [-1 if overflow is None else int(not overflow) for _, overflow in rows]
    scales = [math.nan if scale is None else scale for scale, _ in rows]
    is_end = flags[-1] == -1
    assert observed.finite.tolist() == (flags[:-1] if is_end else flags)
    assert alike(observed.scales, np.array(scales if is_end else [*scales, math.nan], np.float64))


def test_a_row_may_have_the_greatest_length(tmp_path):
    """A row of one character more is rejected."""
    path, columns = tmp_path / "flags.csv", 2**10
    names, short = ("," + ",".join(map(str, range(columns)))), "," * columns
    for longer in (0, 1):
        long = "," + ",".join(["x" * 1000] * columns)
        long += "x" * (LONGEST_ROW - len(long) - 2 + longer)
        path.write_text(f"finite{names}\n1{long}\n0{short}\n")
        if longer:
            with pytest.raises(ValueError, match=f"each line must have at most {LONGEST_ROW} characters"):
                from_csv(path, "finite")
        else:
            assert len(from_csv(path, "finite")) == 2
