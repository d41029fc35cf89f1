"""`ampscale simulate`: its table, its JSON, its pictures, and all sources of an overflow trace."""

import json
import struct
import sys
from xml.etree import ElementTree

import pytest
from cli.runner import Runner

from ampscale import LossScaleRule, presets
from ampscale.cli.simulate import simulate
from ampscale.simulation.simulate import simulate as run
from ampscale.simulation.traces import from_model, from_string

RUNNER = Runner(simulate)
invoke, printed, report, error = RUNNER.invoke, RUNNER.printed, RUNNER.report, RUNNER.error

STEPS = "....x....x.x.....xx......x........"
SMALL = ("--set", "init_scale=8", "--set", "growth_interval=2")


def test_table_has_a_row_for_each_step():
    """A row shows the state before the step and the outcome of the step."""
    assert printed("torch", *SMALL, "--trace", "..x.") == [
        "step  scale  good   bad  outcome",
        "   0    2^3     0     0  finite",
        "   1    2^3     1     0  finite: grows to 2^4",
        "   2    2^4     0     0  overflow: backs off to 2^3",
        "   3    2^3     0     0  finite",
        " end    2^3     1     0",
        "torch: 4 steps, 1 overflow, 1 growth, 1 backoff; final scale 2^3.",
    ]


def test_error_of_the_published_scaler_is_the_last_row():
    """The summary counts the steps that are not simulated."""
    assert printed("deepspeed:init_scale=2,hysteresis=1", "--trace", "x.x..")[1:] == [
        "   0    2^1    -1     0  overflow: backs off to 2^0",
        "   1    2^0    -1     1  finite",
        "   2    2^0     0     1  overflow: raises an error",
        "deepspeed:init_scale=2,hysteresis=1: 3 steps, 2 overflows, 0 growths, 1 backoff;",
        "  final scale 2^0.",
        "The published scaler raises an error at step 2. 2 later steps not simulated.",
    ]


def test_scales_are_powers_of_two_with_a_factor():
    """The factor is between 1 and 2. Zero and infinity are printed as such."""
    assert "1.2*2^3" in printed("torch", *SMALL, "--set", "growth_factor=1.2", "--trace", "..")[-1]
    assert printed("torch", "--set", "init_scale=0x1p-149", "--trace", "x")[-1].endswith("final scale 0.")
    unguarded = ("paddle", "--set", "init_scale=2**127", "--set", "growth_interval=1")
    assert printed(*unguarded, "--trace", ".")[-1].endswith("final scale inf.")


def numbers_of(lines):
    """Return the numbers of the steps that have a row."""
    return [int(line.split()[0]) for line in lines if line.split()[0].isdigit()]


@pytest.mark.parametrize(
    ("arguments", "steps", "rows", "omitted"),
    [
        ("torch:growth_interval=60", 70 * "." + "x" + 79 * ".", [59, 70, 130], "147 steps"),
        ("paddle:hysteresis=2", 60 * "." + "x" + 60 * ".", [60], "120 steps"),  # an overflow without backoff
        ("deepspeed:hysteresis=1,init_scale=2", 50 * "." + "x" + 60 * "." + "x..", [50, 111], "110 steps"),
        ("torch", "x" + 100 * ".", [0], "100 steps"),
        ("torch --events", "...x..", [3], "5 steps"),
        ("torch --events", "xx.", [0, 1], "1 step"),
    ],
)
def test_table_of_events_has_only_overflows_and_scale_changes(arguments, steps, rows, omitted):
    """More than 100 steps have such a table by default. The other steps are counted."""
    lines = printed(*arguments.split(), "--trace", steps)
    assert numbers_of(lines) == rows
    options = "--every --all" if len(steps) > 100 else "--every"
    assert f"Omitted: {omitted} without overflow or scale change; {options} prints them." in lines


@pytest.mark.parametrize(
    ("steps", "options", "rows"),
    [("x" + 99 * ".", [], 100), ("xxx", ["--events"], 3), (120 * ".", ["--every", "--all"], 120), (300 * "x", ["--all"], 300)],
    ids=["short table", "events only", "every step", "all rows"],
)
def test_table_can_have_every_step(steps, options, rows):
    """Nothing is omitted."""
    lines = printed("torch", "--trace", steps, *options)
    assert numbers_of(lines) == list(range(rows))
    assert not any("prints them" in line for line in lines)


def test_middle_of_more_than_100_rows_is_omitted():
    """The first 50 and the last 50 are printed."""
    lines = printed("torch", "--trace", 300 * "x")
    assert numbers_of(lines) == [*range(50), *range(250, 300)]
    assert "... 200 more rows; --all prints them ..." in lines


def test_output_fits_80_columns():
    """The scales are not powers of two, and the name of the rule is long."""
    model = ("--overflow-above", "2**15", "--noise", "2", "--steps", "100000")
    lines = printed("torch:init_scale=2**16,backoff_factor=0.7,growth_factor=1.1", "--set", "growth_interval=9", *model)
    assert max(map(len, lines)) <= 80
    assert any("*2^" in line for line in lines)


def test_json_equals_the_trajectory():
    """The rule can be read again. The help documents every key."""
    document = report("torch", *SMALL, "--trace", STEPS)
    rule = presets.torch(init_scale=8.0, growth_interval=2)
    trajectory = run(rule, from_string(STEPS))
    expected = {"name": "torch", "rule": json.loads(rule.to_json()), "trace": STEPS, "steps": 34, "overflows": 6}
    expected |= {name: getattr(trajectory, name) for name in ("growths", "backoffs", "raised_at")}
    expected |= {"final_scale": trajectory.scales[-1]}
    assert document == expected | {name: getattr(trajectory, name).tolist() for name in ("scales", "good_steps", "bad_steps")}
    assert LossScaleRule.from_json(json.dumps(document["rule"])) == rule
    text = invoke("--help").stdout
    assert all(key in text for key in document)


def test_json_ends_at_an_error_of_the_published_scaler():
    """The last step is an overflow, and no scale follows it."""
    document = report("deepspeed:init_scale=2,hysteresis=1", "--trace", "x.x..")
    assert (document["steps"], document["raised_at"], document["trace"], document["overflows"]) == (3, 2, "x.x", 2)
    assert (document["scales"], document["good_steps"]) == ([2.0, 1.0, 1.0], [-1, -1, 0])


def test_infinity_is_a_string_in_json():
    document = report("paddle:init_scale=2**127,growth_interval=1", "--trace", "..")
    assert (document["scales"], document["final_scale"]) == ([2.0**127, "inf", "inf"], "inf")


def test_overflow_above_generates_the_trace_of_from_model():
    """The options are arguments of `from_model`, the default length is 10,000 steps, and the printed trace repeats the run."""
    options = ("--overflow-above", "0x1p12", "--noise", "1.5", "--drift", "-2", "--seed", "7", "--steps", "3000")
    trajectory = run(presets.torch(growth_interval=20), from_model(3000, 2.0**12, noise=1.5, seed=7, drift=-2.0))
    document = report("torch:growth_interval=20", *options)
    assert document["scales"] == trajectory.scales.tolist()
    assert set(document["trace"]) == {".", "x"}
    assert report("torch:growth_interval=20", "--trace", document["trace"]) == document
    plain = report("torch", "--overflow-above", "2**12")
    assert plain["scales"] == run(presets.torch(), from_model(10_000, 2.0**12)).scales.tolist()


def test_trace_can_be_a_text_file(tmp_path):
    """Line breaks are ignored. The error for a CSV file names the option for it."""
    path = tmp_path / "trace.txt"
    path.write_text("....x\n....x .X\n")
    assert report("torch", "--file", path)["trace"] == "....x....x.x"
    path.write_text("step,overflow\n")
    assert "line 1, column 1; use --csv for a CSV file" in error("torch", "--file", path)


def test_trace_can_be_a_column_of_a_csv_file(tmp_path):
    """A column with an unknown name requires options for its name and its meaning; an error names the missing option."""
    path = tmp_path / "run.csv"
    path.write_text("step,found_inf,ok\n0,0,yes\n1,1,no\n2,0,no\n")
    assert report("torch", "--csv", path)["trace"] == ".x."
    assert report("torch", "--csv", path, "--column", "ok", "--means", "finite")["trace"] == ".xx"
    assert report("torch", "--csv", path, "--column", "ok", "--means", "overflow")["trace"] == "x.."
    assert "specify --means, 'finite' or 'overflow'" in error("torch", "--csv", path, "--column", "ok")
    assert "run.csv must have exactly one column 'nan'" in error("torch", "--csv", path, "--column", "nan")
    path.write_text("step,ok\n0,yes\n")
    assert "; specify --column" in error("torch", "--csv", path)


MESSAGE = "[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, reducing to 32768"


def test_trace_can_be_a_log(tmp_path):
    """Notes are printed to stderr, so that stdout is JSON. Errors name the options that are wrong or missing."""
    path = tmp_path / "train.log"
    path.write_text(f"step 1\n{MESSAGE}\nstep 2\nstep 3\n")
    result = invoke("torch", "--log", path, "--step-pattern", r"^step (?P<step>\d+)", "--json")
    assert json.loads(result.stdout)["trace"] == ".x."
    assert "deepspeed" in result.stderr
    assert "--log" in error("torch", "--log", path, "--log-format", "fairseq")
    path.write_text(f"{MESSAGE}\n")
    assert "specify --step-pattern, a regular expression" in error("torch", "--log", path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["torch"], "the overflow trace must come from one of --trace, --file, --csv, --log, --overflow-above, got none"),
        (["torch", "--trace", ".", "--overflow-above", "8"], "got --trace and --overflow-above"),
        (["torch", "--trace", ".", "--steps", "5"], "--steps requires --overflow-above, got --trace"),
        (["torch", "--trace", ".", "--seed", "0"], "--seed requires --overflow-above, got --trace"),
        (["torch", "--overflow-above", "8", "--column", "ok"], "--column requires --csv, got --overflow-above"),
        (["torch", "--trace", ""], "Invalid value for '--trace': the overflow trace must have at least one step, such as '..x.'"),
        (["torch", "--log", __file__, "--log-format", "megatorn"], "unknown log format 'megatorn'; did you mean megatron?"),
        (["torch", "--trace", __file__], "; pass a file with --file"),
        (["torch", "--overflow-above", "-1"], "Invalid value for '--overflow-above': above must be a positive, finite number"),
        (["torch", "--overflow-above", "much"], "Invalid value for '--overflow-above': a number must be written like"),
        (["torch", "--overflow-above", "8", "--steps", "0"], "Invalid value for '--steps'"),
        (["torch", "--overflow-above", "8", "--noise", "-1"], "Invalid value for '--overflow-above' / '--noise': noise must be"),
        (["torch", "--file", "nowhere.txt", "--json"], "'nowhere.txt' does not exist"),
        (["torch", "--trace", ".", "--json", "--every"], "--json prints every step"),
        (["torch", "--trace", ".", "--json", "--all"], "--json prints every step"),
        (["torhc", "--trace", "."], "torhc: a rule must be a preset, a JSON file or LossScaleRule(...); did you mean torch?"),
        (["torch.json", "--trace", "."], "torch.json: [Errno 2] No such file or directory"),
        (["torch", "--trace", ".", "--picture", "scales.jpg"], "the file name must end in .png or .svg, got 'scales.jpg'"),
        (["torch", "--trace", ".", "--picture", "no/folder.png"], "there is no folder 'no'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_usage_error_has_a_message(arguments, message):
    """The exit code is 2, and nothing is printed on stdout."""
    assert message in error(*arguments)


def test_picture_is_a_png_or_an_svg(tmp_path):
    """A PNG is 1,600 pixels wide, and an SVG is XML. Both are reproducible."""
    png, svg, *repeated = (tmp_path / name for name in ("scales.png", "scales.svg", "again.png", "again.svg"))
    assert printed("torch", "--trace", STEPS, "--picture", png)[-1] == f"Picture: {png}"
    data = png.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">I", data[16:20]) == (1600,)
    assert report("torch", "--trace", STEPS, "--picture", svg)["steps"] == 34
    assert ElementTree.fromstring(svg.read_bytes()).tag == "{http://www.w3.org/2000/svg}svg"
    for first, second in zip((png, svg), repeated, strict=True):
        printed("torch", "--trace", STEPS, "--picture", second)
        assert first.read_bytes() == second.read_bytes()


def test_missing_matplotlib_is_reported_in_one_line(monkeypatch):
    """Without --picture, matplotlib is not required."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.delitem(sys.modules, "ampscale.cli.scale_plot", raising=False)
    assert invoke("torch", "--trace", ".").exit_code == 0
    result = invoke("torch", "--trace", ".", "--picture", "scales.png")
    assert (result.exit_code, result.output) == (2, 'ampscale: matplotlib is not installed: pip install "ampscale[cli]"\n')
