"""`ampscale compare`: its table of rules, the divergences of pairs of rules, its JSON and its picture."""

from itertools import combinations

import pytest
from cli.runner import Runner

from ampscale import presets
from ampscale.cli.compare import compare
from ampscale.cli.simulate import simulate
from ampscale.simulation.compare import compare as compare_rules
from ampscale.simulation.traces import from_model, from_string

RUNNER = Runner(compare)
printed, report, error = RUNNER.printed, RUNNER.report, RUNNER.error

STEPS = "....x....x.x.....xx......x........"
SHARED = ("--trace", STEPS, "--set", "init_scale=2**16", "--set", "growth_interval=4")
RULES = ["torch", "keras", "jmp", "flax", "fairseq", "paddle", "paddle:hysteresis=2"]


def test_table_has_a_row_for_each_rule():
    """The columns are number, rule, overflows, growths, backoffs, the step of an error, and the final scale."""
    lines = printed("torch", "deepspeed:hysteresis=1", "--set", "init_scale=4", "--set", "growth_interval=2", "--trace", "..xxxx")
    assert lines[0].split() == ["raises", "final"]
    assert lines[1].split() == ["rule", "overflows", "growths", "backoffs", "at", "step", "scale"]
    assert lines[3].split() == ["1", "torch", "4", "1", "4", "-", "2^-1"]
    assert lines[4].split() == ["2", "deepspeed:hysteresis=1", "3", "0", "2", "4", "2^0"]


def test_divergences_of_few_rules_are_sentences():
    """Up to three rules have no matrix. The text explains divergences and the numbers of steps."""
    lines = printed("torch", "paddle", "megatron", "--set", "growth_interval=2", "--trace", "..x")
    assert lines[-3:] == [
        "  torch and paddle do not diverge on this trace.",
        "  torch and megatron start with different scales.",
        "  paddle and megatron start with different scales.",
    ]
    lines = printed("torch", "megatron:init_scale=2**16", "--trace", "..x")
    assert lines[-1] == "  torch and megatron:init_scale=2**16 diverge at step 2."
    assert "diverge at the first step after which their scales differ, or at which only one of the two raises" in " ".join(lines)
    assert "Steps are counted from 0." in " ".join(lines)


def matrix(lines):
    """Return a dict from the numbers of two rules to their cell in a printed matrix."""
    start = max(index for index, line in enumerate(lines) if line.lstrip().startswith("─"))
    columns = lines[start - 1].split()
    rows = [line.split() for line in lines[start + 1 :] if line]
    return {(int(column), int(row[0])): cell for row in rows for column, cell in zip(columns, row[1:], strict=False)}


def test_divergences_of_many_rules_are_a_matrix():
    """The matrix has the same pairs as the JSON."""
    rules = [*RULES, "megatron:init_scale=8"]
    actual = matrix(printed(*rules, *SHARED))
    texts = {None: "-", -1: "start"}
    expected = {}
    for divergence in report(*rules, *SHARED)["divergences"]:
        first, second = (rules.index(name) + 1 for name in divergence["rules"])
        expected[first, second] = texts.get(divergence["step"], str(divergence["step"]))
    assert actual == expected
    assert {"-", "start", "3", "4"} <= set(actual.values())


def test_divergences_are_sentences_if_the_matrix_is_too_wide():
    """No column is cut off. Here each column of the matrix contains the word "start"."""
    rules = [f"torch:init_scale={scale}" for scale in range(1, 13)]
    pairs = [f"  {first} and {second}" for first, second in combinations(rules, 2)]
    lines = printed(*rules, "--trace", "x", columns=20)
    assert [line.partition(" start with")[0] for line in lines[-len(pairs) :]] == pairs
    assert not set(pairs) & {line.partition(" start with")[0] for line in printed(*rules, "--trace", "x", columns=80)}


def test_output_fits_80_columns():
    """Long names of twelve rules are wrapped."""
    rules = [f"torch:init_scale=2**{power},backoff_factor=0.5,growth_factor=2,growth_interval=2000" for power in range(10, 21)]
    lines = printed("deepspeed", *rules, "--overflow-above", "2**15", "--noise", "1", "--steps", "20000")
    assert max(map(len, lines)) <= 80
    assert "growth_interval=2000" in "".join("".join(line.split()) for line in lines)


def test_json_equals_the_comparison():
    """The JSON object of each rule equals the output of `simulate --json`."""
    names, model = ("torch", "flax", "paddle"), ("--overflow-above", "2**15", "--noise", "2", "--seed", "3", "--steps", "300")
    for source, trace in ((("--trace", STEPS), from_string(STEPS)), (model, from_model(300, 2.0**15, 2.0, 3))):
        document = report(*names, *source, *SHARED[2:])
        assert list(document) == ["steps", "rules", "divergences"]
        assert document["steps"] == len(trace)
        assert document["rules"] == [Runner(simulate).report(name, *source, *SHARED[2:]) for name in names]
        rules = {name: getattr(presets, name)(init_scale=2.0**16, growth_interval=4) for name in names}
        assert {tuple(pair["rules"]): pair["step"] for pair in document["divergences"]} == compare_rules(rules, trace).divergences


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("torch --trace .", "at least two rules are required, got one"),
        ("", "Missing argument 'RULE RULE ...'"),
    ],
)
def test_usage_error_has_a_message(arguments, message):
    """The exit code is 2, and nothing is printed on stdout."""
    assert message in error(*arguments.split())


def test_picture_has_a_line_for_each_rule(tmp_path):
    """In the SVG, each rule has its own color."""
    svg = tmp_path / "scales.svg"
    printed("torch", "flax", "paddle", *SHARED, "--picture", svg)
    assert all(color in svg.read_text() for color in ("#0072b2", "#d55e00", "#009e73"))
