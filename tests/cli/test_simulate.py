"""`ampscale simulate`: its table, its JSON, its pictures, and every place that a trace can come from."""

import json
import struct
import sys
from xml.etree import ElementTree

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
    """The state in which the published scaler raises; it is said that the rest is not simulated. No steps leave the first."""
    assert printed("deepspeed:init_scale=2,hysteresis=1", "--trace", "x.x..")[1:] == [
        "   0    2^1    -1     0  overflow: backs off to 2^0",
        "   1    2^0    -1     1  finite",
        "   2    2^0     0     1  overflow: the scaler raises",
        "deepspeed:init_scale=2,hysteresis=1: 3 steps, 2 overflows, 0 growths, 1 backoff; the scale ends at 2^0.",
        "The published scaler raises at step 2; of 5 steps no more are simulated.",
    ]
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


@pytest.mark.parametrize(
    ("words", "rows", "left_out"),
    [
        (["torch:growth_interval=60", "--trace", 70 * "." + "x" + 79 * "."], [59, 70, 130], "147 steps"),
        (["paddle:hysteresis=2", "--trace", 60 * "." + "x" + 60 * "."], [60], "120 steps"),  # no backoff follows it
        (["deepspeed:hysteresis=1,init_scale=2", "--trace", 50 * "." + "x" + 60 * "." + "x.."], [50, 111], "110 steps"),
        (["torch", "--trace", "...x..", "--events"], [3], "5 steps"),
        (["torch", "--trace", "xx.", "--events"], [0, 1], "1 step"),
        (["torch", "--trace", "xxx", "--events"], [0, 1, 2], ""),
        (["torch", "--trace", "x" + 99 * "."], range(100), ""),  # a hundred steps are few
        (["torch", "--trace", "x" + 100 * "."], [0], "100 steps"),
        (["torch", "--trace", 120 * ".", "--every", "--all"], range(120), ""),
        (["torch", "--trace", 300 * "x"], [*range(50), *range(250, 300)], ""),
        (["torch", "--trace", 300 * "x", "--all"], range(300), ""),
    ],
)
def test_a_long_trace_is_printed_where_something_happened(words, rows, left_out):
    """At overflows, changes of the scale and a stop; the other steps are counted. Of many rows the first and last are printed."""
    lines = printed(*words)
    found = [line.split()[0] for line in lines if line.split()[0].isdigit()]
    assert found == [str(step) for step in rows]
    told = [line for line in lines if line.startswith("Left out: ")]
    assert told == ([f"Left out: {left_out} at which nothing happened; --every prints them."] if left_out else [])
    assert [line for line in lines if "rows more" in line] == ["... 200 rows more, with --all ..."] * (
        rows[-1] == 299 != len(rows) - 1
    )


def test_lines_fit_into_eighty_columns():
    """Also with many steps, and scales that are no powers of two."""
    model = ("--overflow-above", "2**15", "--noise", "2", "--steps", "100000")
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
        "raised_at": None,
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
    """The step in which the scaler raises is the last, an overflow; there is no scale after it. Infinity is a string."""
    found = report("deepspeed:init_scale=2,hysteresis=1", "--trace", "x.x..")
    assert (found["steps"], found["raised_at"], found["trace"], found["overflows"]) == (3, 2, "x.x", 2)
    assert (found["scales"], found["good_steps"]) == ([2.0, 1.0, 1.0], [-1, -1, 0])
    found = report("paddle:init_scale=2**127,growth_interval=1", "--trace", "..")
    assert (found["scales"], found["final_scale"]) == ([2.0**127, "inf", "inf"], "inf")


def test_the_model_is_the_library_s():
    """All of its numbers reach it, ten thousand steps are its length where none is given, and its trace can be given back."""
    options = ("--overflow-above", "0x1p12", "--noise", "1.5", "--drift", "-2", "--seed", "7", "--steps", "3000")
    wanted = run(presets.torch(growth_interval=20), from_model(3000, 2.0**12, noise=1.5, seed=7, drift=-2.0))
    found = report("torch:growth_interval=20", *options)
    assert found["scales"] == wanted.scales.tolist()
    assert set(found["trace"]) == {".", "x"}
    assert report("torch:growth_interval=20", "--trace", found["trace"]) == found
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


MESSAGE = "[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, reducing to 32768"


def test_a_log_is_read_and_its_notes_are_said(tmp_path):
    """What was decided in reading it goes to stderr, so that the JSON stays alone."""
    path = tmp_path / "train.log"
    path.write_text(f"step 1\n{MESSAGE}\nstep 2\nstep 3\n")
    result = invoke("torch", "--log", path, "--step-pattern", r"^step (?P<step>\d+)", "--json")
    assert json.loads(result.stdout)["trace"] == ".x."
    assert "deepspeed" in result.stderr
    assert "--log" in refused("torch", "--log", path, "--log-format", "fairseq")


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


def test_a_picture_is_a_png_or_an_svg(tmp_path):
    """Said on the last line; a PNG is 1,600 pixels wide, and an SVG is XML. Neither holds a date."""
    png, svg, *again = (tmp_path / name for name in ("scales.png", "scales.svg", "again.png", "again.svg"))
    assert printed("torch", "--trace", STEPS, "--picture", png)[-1] == f"The picture is {png}."
    data = png.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">I", data[16:20]) == (1600,)
    assert report("torch", "--trace", STEPS, "--picture", svg)["steps"] == 34
    assert ElementTree.fromstring(svg.read_bytes()).tag == "{http://www.w3.org/2000/svg}svg"
    for first, second in zip((png, svg), again, strict=True):
        printed("torch", "--trace", STEPS, "--picture", second)
        assert first.read_bytes() == second.read_bytes()


def test_a_missing_package_is_one_line(monkeypatch):
    """Only a picture needs matplotlib; without one, it is not missed."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.delitem(sys.modules, "ampscale.cli.scale_plot", raising=False)
    assert invoke("torch", "--trace", ".").exit_code == 0
    result = invoke("torch", "--trace", ".", "--picture", "scales.png")
    assert (result.exit_code, result.output) == (1, 'ampscale: matplotlib is not installed: pip install "ampscale[cli]"\n')
