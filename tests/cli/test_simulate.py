"""`ampscale simulate`: its table, its JSON, its pictures, and every place that a trace can come from."""

import json
import struct
import subprocess
import sys
from xml.etree import ElementTree

import numpy as np
import pytest
from cli.runs import Runs

from ampscale import LossScaleRule, presets
from ampscale.cli.simulate import simulate
from ampscale.simulation.simulate import simulate as run
from ampscale.simulation.traces import from_model, from_string

RUNS = Runs(simulate)
invoke, printed, report, refused = RUNS.invoke, RUNS.printed, RUNS.report, RUNS.refused

STEPS = "....x....x.x.....xx......x........"
SMALL = ("--set", "init_scale=8", "--set", "growth_interval=2")


def test_a_short_trace_is_printed_step_by_step():
    """What each step began with, whether it was finite, what then happened, and how it ended."""
    assert printed("torch", *SMALL, "--trace", "..x.") == [
        "step  scale  good   bad  gradients",
        "   0    2^3     0     0  finite",
        "   1    2^3     1     0  finite: grows to 2^4",
        "   2    2^4     0     0  overflow: backs off to 2^3",
        "   3    2^3     0     0  finite",
        " end    2^3     1     0",
        "torch: 4 steps, 1 overflow, 1 growth, 1 backoff; the scale ends at 2^3.",
    ]


def test_a_stop_is_the_last_row():
    """The state in which the published scaler raises; it is said that the rest is not simulated."""
    lines = printed("deepspeed", "--set", "init_scale=2", "--set", "hysteresis=1", "--trace", "x.x..")
    assert lines[1:] == [
        "   0    2^1    -1     0  overflow: backs off to 2^0",
        "   1    2^0    -1     1  finite",
        "   2    2^0     0     1  overflow: the scaler raises",
        "deepspeed: 3 steps, 2 overflows, 0 growths, 1 backoff; the scale ends at 2^0.",
        "The published scaler raises at step 2; of 5 steps no more are simulated.",
    ]


def test_no_steps_leave_the_first_state():
    """An empty text is a trace, of no steps."""
    assert printed("torch", "--trace", "")[1:] == [
        " end   2^16     0     0",
        "torch: 0 steps, 0 overflows, 0 growths, 0 backoffs; the scale ends at 2^16.",
    ]


def test_scales_that_are_no_powers_of_two_are_products():
    """A factor between 1 and 2 and a power; zero and infinity as they are."""
    assert "1.2*2^3" in printed("torch", *SMALL, "--set", "growth_factor=1.2", "--trace", "..")[-1]
    assert printed("torch", "--set", "init_scale=0x1p-149", "--trace", "x")[-1].endswith("the scale ends at 0.")
    unguarded = ("paddle", "--set", "init_scale=2**127", "--set", "growth_interval=1")
    assert printed(*unguarded, "--trace", ".")[-1].endswith("the scale ends at inf.")


def test_a_long_trace_is_printed_where_something_happened():
    """Overflows and changes of the scale; the other steps are counted."""
    lines = printed("torch", "--set", "growth_interval=60", "--trace", 70 * "." + "x" + 79 * ".")
    assert [line.split()[0] for line in lines[1:-2]] == ["59", "70", "130", "end"]
    assert lines[-2] == "Left out: 147 steps at which nothing happened; --every prints them."


def test_a_step_that_overflows_without_a_backoff_happened():
    """It is a row, though the scale stays."""
    lines = printed("paddle", "--set", "hysteresis=2", "--trace", 60 * "." + "x" + 60 * ".")
    assert lines[1] == "  60   2^16    60     0  overflow"


def test_a_stop_happened():
    """It is a row among the events, and the last one."""
    lines = printed("deepspeed:hysteresis=1,init_scale=2", "--trace", 50 * "." + "x" + 60 * "." + "x..")
    assert [line.split()[0] for line in lines[1:3]] == ["50", "111"]
    assert lines[2].endswith("overflow: the scaler raises")
    assert lines[3] == "Left out: 110 steps at which nothing happened; --every prints them."


def test_every_step_can_be_had_and_only_events():
    """`--every` prints the quiet steps of a long trace too, `--events` leaves out those of a short one."""
    assert len(printed("torch", "--trace", 120 * ".", "--every", "--all")) == 1 + 120 + 2
    lines = printed("torch", "--trace", "...x..", "--events")
    assert [line.split()[0] for line in lines[1:-2]] == ["3", "end"]
    assert lines[-2] == "Left out: 5 steps at which nothing happened; --every prints them."


def test_one_step_that_is_left_out_is_counted():
    """And where none is, nothing is said."""
    assert (
        printed("torch", "--trace", "xx.", "--events")[-2] == "Left out: 1 step at which nothing happened; --every prints them."
    )
    assert printed("torch", "--trace", "xxx", "--events")[-2].split()[0] == "end"


def test_of_many_rows_the_first_and_the_last_are_printed():
    """How many lie between is said; `--all` prints these too, and then nothing is left out."""
    lines = printed("torch", "--trace", 300 * "x")
    assert [line.split()[0] for line in (lines[1], lines[50], lines[52], lines[101])] == ["0", "49", "250", "299"]
    assert lines[51] == "... 200 rows more, with --all ..."
    assert [line.split()[0] for line in printed("torch", "--trace", 300 * "x", "--all")[1:301]] == [str(k) for k in range(300)]


@pytest.mark.parametrize(("steps", "rows"), [(100, 100), (101, 1)])
def test_a_hundred_steps_are_few(steps, rows):
    """A trace of a hundred is printed whole, one of a hundred and one is not."""
    lines = printed("torch", "--trace", "x" + (steps - 1) * ".")
    assert sum(line.split()[0].isdigit() for line in lines) == rows


def test_lines_fit_into_eighty_columns():
    """Also with a million steps, and scales that are no powers of two."""
    model = ("--overflow-above", "2**15", "--noise", "2", "--steps", "1000000")
    lines = printed("torch", "--set", "growth_factor=1.1", "--set", "backoff_factor=0.7", "--set", "growth_interval=9", *model)
    assert max(map(len, lines[:-1])) <= 80
    assert any("*2^" in line for line in lines)


def test_the_json_is_the_trajectory():
    """Every key, and every number of it."""
    found = report("torch", *SMALL, "--trace", STEPS)
    rule = presets.torch(init_scale=8.0, growth_interval=2)
    wanted = run(rule, from_string(STEPS))
    assert found == {
        "name": "torch",
        "rule": json.loads(rule.to_json()),
        "steps": 34,
        "stopped": None,
        "final_scale": wanted.scales[-1],
        "growths": wanted.growths,
        "backoffs": wanted.backoffs,
        "overflows": 6,
        "trace": STEPS,
        "scales": wanted.scales.tolist(),
        "good_steps": wanted.good_steps.tolist(),
        "bad_steps": wanted.bad_steps.tolist(),
    }
    assert LossScaleRule.from_json(json.dumps(found["rule"])) == rule
    text = invoke("--help").stdout
    assert all(key in text for key in found)


def test_the_json_of_a_stop_ends_with_it():
    """The step in which the scaler raises is the last, an overflow; there is no scale after it."""
    found = report("deepspeed", "--set", "init_scale=2", "--set", "hysteresis=1", "--trace", "x.x..")
    assert (found["steps"], found["stopped"], found["trace"], found["overflows"]) == (3, 2, "x.x", 2)
    assert (found["scales"], found["good_steps"]) == ([2.0, 1.0, 1.0], [-1, -1, 0])


def test_infinity_is_a_string_that_python_reads():
    """JSON has no infinity; float() reads "inf"."""
    found = report("paddle", "--set", "init_scale=2**127", "--set", "growth_interval=1", "--trace", "..")
    assert found["scales"] == [2.0**127, "inf", "inf"]
    assert float(found["final_scale"]) == np.inf


def test_scales_are_read_back_bit_for_bit():
    """Also those of float32 with an odd factor, and of float64."""
    for dtype in ("float32", "float64"):
        odd = {"init_scale": 7.0, "growth_factor": 1.1, "growth_interval": 1, "dtype": dtype}
        settings = [word for key, value in odd.items() for word in ("--set", f"{key}={value}")]
        found = report("torch", *settings, "--trace", 40 * "." + 200 * "x")
        wanted = run(LossScaleRule(**odd, wide_factor=True), from_string(40 * "." + 200 * "x"))
        assert np.array_equal(np.array(found["scales"]), wanted.scales)


def test_a_trace_of_the_json_can_be_given_back():
    """What a model led to is a trace in text; along it, the same rule does the same."""
    found = report("torch", *SMALL, "--overflow-above", "2**15", "--noise", "2", "--steps", "500")
    assert report("torch", *SMALL, "--trace", found["trace"]) == found
    assert set(found["trace"]) == {".", "x"}


def test_the_model_is_the_library_s():
    """All of its numbers reach it, and ten thousand steps are its length where none is given."""
    options = ("--overflow-above", "0x1p12", "--noise", "1.5", "--drift", "-2", "--seed", "7", "--steps", "3000")
    wanted = run(presets.torch(growth_interval=20), from_model(3000, 2.0**12, noise=1.5, seed=7, drift=-2.0))
    assert report("torch:growth_interval=20", *options)["scales"] == wanted.scales.tolist()
    plain = report("torch", "--overflow-above", "2**12")
    assert plain["scales"] == run(presets.torch(), from_model(10_000, 2.0**12)).scales.tolist()


def test_a_file_holds_a_text(tmp_path):
    """In lines, as one likes."""
    path = tmp_path / "trace.txt"
    path.write_text("....x\n....x .X\n")
    assert report("torch", "--file", path)["trace"] == "....x....x.x"
    path.write_text("step,overflow\n")
    assert "line 1, column 1; for a CSV file there is --csv" in refused("torch", "--file", path)


def test_a_csv_file_has_a_column_of_flags(tmp_path):
    """A known one, or one that is named and explained."""
    path = tmp_path / "run.csv"
    path.write_text("step,found_inf,ok\n0,0,yes\n1,1,no\n2,0,no\n")
    assert report("torch", "--csv", path)["trace"] == ".x."
    assert report("torch", "--csv", path, "--column", "ok", "--means", "finite")["trace"] == ".xx"
    assert report("torch", "--csv", path, "--column", "ok", "--means", "overflow")["trace"] == "x.."
    assert "--csv" in refused("torch", "--csv", path, "--column", "ok")
    assert "run.csv must have one column 'nan'" in refused("torch", "--csv", path, "--column", "nan")


LOG = """\
step 1
[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, reducing to 32768
step 2
step 3
"""


def test_a_log_is_read_and_its_notes_are_said(tmp_path):
    """What was decided in reading it goes to stderr, so that the JSON stays alone."""
    path = tmp_path / "train.log"
    path.write_text(LOG)
    result = invoke("torch", "--log", path, "--step-pattern", r"^step (?P<step>\d+)", "--json")
    assert json.loads(result.stdout)["trace"] == ".x."
    assert "deepspeed" in result.stderr
    assert "--log" in refused("torch", "--log", path, "--dialect", "fairseq")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["torch"], "a trace is wanted from one of --trace, --file, --csv, --log, --overflow-above, got none"),
        (["torch", "--trace", ".", "--overflow-above", "8"], "got --trace and --overflow-above"),
        (["torch", "--trace", ".", "--steps", "5"], "--steps goes with --overflow-above, got --trace"),
        (["torch", "--trace", ".", "--seed", "0"], "--seed goes with --overflow-above, got --trace"),
        (["torch", "--overflow-above", "8", "--column", "ok"], "--column goes with --csv, got --overflow-above"),
        (["torch", "--trace", "..y"], "Invalid value for '--trace': a trace is written with '.' and 'x', got 'y'"),
        (["torch", "--overflow-above", "-1"], "Invalid value for '--overflow-above': above must be a positive, finite number"),
        (["torch", "--overflow-above", "much"], "Invalid value for '--overflow-above': a number must be written like"),
        (["torch", "--overflow-above", "8", "--steps", "0"], "Invalid value for '--steps'"),
        (["torch", "--overflow-above", "8", "--noise", "-1"], "Invalid value for '--overflow-above' / '--noise': noise must be"),
        (["torch", "--file", "nowhere.txt", "--json"], "'nowhere.txt' does not exist"),
        (["torch", "--trace", ".", "--json", "--every"], "--json has every step"),
        (["torch", "--trace", ".", "--json", "--all"], "--json has every step"),
        (["torhc", "--trace", "."], "torhc: a rule must be a preset"),
        (["torch", "--trace", ".", "--set", "growth=2"], "a setting must be written once as FIELD=VALUE"),
        (["torch", "--trace", ".", "--picture", "scales.jpg"], "a picture must end in .png or .svg, got 'scales.jpg'"),
        (["torch", "--trace", ".", "--picture", "no/folder.png"], "there is no folder 'no'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_use_is_refused(arguments, said):
    """Exit code 2, one sentence of what was wanted and what came, and nothing on stdout."""
    assert said in refused(*arguments)


def test_a_rule_can_be_pasted():
    """As Python prints it, with settings on top."""
    found = report(repr(LossScaleRule(init_scale=4.0)), "--trace", "..", "--set", "growth_interval=1")
    assert found["scales"] == [4, 8, 16]


def test_a_picture_is_a_png_or_an_svg(tmp_path):
    """Said on the last line; a PNG is 1,600 pixels wide, and an SVG is XML."""
    png, svg = tmp_path / "scales.png", tmp_path / "scales.svg"
    assert printed("torch", "--trace", STEPS, "--picture", png)[-1] == f"The picture is {png}."
    data = png.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">I", data[16:20]) == (1600,)
    assert report("torch", "--trace", STEPS, "--picture", svg)["steps"] == 34
    assert ElementTree.fromstring(svg.read_bytes()).tag == "{http://www.w3.org/2000/svg}svg"
    assert "date" not in svg.read_text()


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_a_picture_is_the_same_every_time(suffix, tmp_path):
    """Bit for bit: there is no date in it."""
    for name in ("one", "other"):
        printed("torch", "--trace", STEPS, "--picture", tmp_path / f"{name}.{suffix}")
    assert (tmp_path / f"one.{suffix}").read_bytes() == (tmp_path / f"other.{suffix}").read_bytes()


def test_a_missing_package_is_one_line():
    """Only a picture needs matplotlib; without one, it is not missed."""
    code = (
        "import sys\nsys.modules['matplotlib'] = sys.modules['rich'] = None\n"
        "from ampscale.cli.simulate import simulate\nsimulate({!r})"
    )
    without = ["torch", "--trace", "."]
    done = subprocess.run([sys.executable, "-c", code.format(without)], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    with_one = [*without, "--picture", "scales.png"]
    done = subprocess.run([sys.executable, "-c", code.format(with_one)], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines() == ['ampscale: matplotlib is not installed: pip install "ampscale[cli]"']
