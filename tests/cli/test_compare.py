"""`ampscale compare`: a row a rule, the first divergence of each pair, and the same as JSON and as a picture."""

from itertools import combinations

import pytest
from cli.runs import Runs

from ampscale import presets
from ampscale.cli.compare import compare
from ampscale.cli.simulate import simulate
from ampscale.simulation.compare import compare as run
from ampscale.simulation.traces import from_model, from_string

RUNS = Runs(compare)
invoke, printed, report, refused = RUNS.invoke, RUNS.printed, RUNS.report, RUNS.refused

STEPS = "....x....x.x.....xx......x........"
SHARED = ("--trace", STEPS, "--set", "init_scale=2**16", "--set", "growth_interval=4")
FINAL = {  # the power of two at which each ends after these steps
    "torch": 16,
    "keras": 16,
    "jmp": 16,
    "flax": 13,
    "fairseq": 16,
    "paddle": 16,
    "paddle:hysteresis=2": 21,
    "paddle_document": 20,
    "paddle_document:reset_bad_steps_on=backoff": 19,
    "megatron": 20,
    "deepspeed": 16,
    "deepspeed_consecutive": 18,
    "deepspeed:hysteresis=1": 13,
}


def test_one_trace_tells_the_published_scalers_apart():
    """Thirty-four steps, after which rules of the same constants end at six different scales."""
    found = report(*FINAL, *SHARED)["rules"]
    assert {rule["name"]: rule["final_scale"] for rule in found} == {name: 2.0**power for name, power in FINAL.items()}
    assert len(set(FINAL.values())) == 6


def test_the_table_has_a_row_a_rule():
    """Its number, overflows, growths, backoffs, the step in which it raises, and its last scale."""
    lines = printed("torch", "deepspeed:hysteresis=1", "--set", "init_scale=4", "--set", "growth_interval=2", "--trace", "..xxxx")
    assert lines[0].split() == ["raises", "final"]
    assert lines[1].split() == ["rule", "overflows", "growths", "backoffs", "at", "step", "scale"]
    assert lines[3].split() == ["1", "torch", "4", "1", "4", "-", "2^-1"]
    assert lines[4].split() == ["2", "deepspeed:hysteresis=1", "3", "0", "2", "4", "2^0"]


def test_few_pairs_are_sentences():
    """Of two or three rules; each way to diverge, and never."""
    lines = printed("torch", "paddle", "megatron", "--set", "growth_interval=2", "--trace", "..x")
    assert lines[-3:] == [
        "  torch and paddle never diverge.",
        "  torch and megatron start with different scales.",
        "  paddle and megatron start with different scales.",
    ]
    lines = printed("torch", "megatron:init_scale=2**16", "--trace", "..x")
    assert lines[-1] == "  torch and megatron:init_scale=2**16 diverge at step 2."
    assert "diverge at the first step after which their scales differ, or at which one of the two raises" in " ".join(lines)
    assert "Steps are counted from 0." in " ".join(lines)


def matrix(lines):
    """The signs of a printed matrix, by the numbers of the two rules."""
    start = max(index for index, line in enumerate(lines) if line.lstrip().startswith("─"))
    columns = lines[start - 1].split()
    rows = [line.split() for line in lines[start + 1 :] if line]
    return {(int(column), int(row[0])): sign for row in rows for column, sign in zip(columns, row[1:], strict=False)}


def test_many_pairs_are_a_matrix():
    """A row and a column for each, by their numbers; all pairs are there, as in the JSON."""
    rules = [*list(FINAL)[:7], "megatron:init_scale=8"]
    found = matrix(printed(*rules, *SHARED))
    wanted = {tuple(pair["rules"]): pair["step"] for pair in report(*rules, *SHARED)["divergences"]}
    signs = {pair: "-" if step is None else "start" if step < 0 else str(step) for pair, step in wanted.items()}
    assert found == {pair: signs[rules[pair[0] - 1], rules[pair[1] - 1]] for pair in combinations(range(1, 9), 2)}
    assert {"-", "start", "3", "4"} <= set(found.values())


def test_the_first_step_is_step_0():
    """In the matrix, in a sentence and in the JSON."""
    rules = ("torch", "megatron:init_scale=2**16", "paddle", "keras")
    assert matrix(printed(*rules, "--set", "init_scale=2**16", "--trace", "x"))[1, 2] == "0"
    assert printed(*rules[:2], "--trace", "x")[-1] == "  torch and megatron:init_scale=2**16 diverge at step 0."


def test_where_the_matrix_does_not_fit_pairs_are_sentences():
    """No column is cut off."""
    pairs = [" and ".join(pair) for pair in combinations(list(FINAL)[:5], 2)]
    lines = printed(*list(FINAL)[:5], *SHARED, columns=8)
    assert [line.partition(" diverge")[0].partition(" never")[0] for line in lines[-10:]] == [f"  {pair}" for pair in pairs]
    assert not any(line.startswith("  ") and " and " in line for line in printed(*list(FINAL)[:5], *SHARED, columns=20))


def test_twelve_rules_fit_into_eighty_columns():
    """Also with steps of five figures; long names go on in the next line."""
    long = [f"torch:init_scale=2**{power},backoff_factor=0.5,growth_factor=2,growth_interval=2000" for power in range(10, 21)]
    lines = printed("deepspeed", *long, "--overflow-above", "2**15", "--noise", "1", "--steps", "20000")
    assert max(map(len, lines)) <= 80
    assert "growth_interval=2000" in "".join("".join(line.split()) for line in lines)


def test_the_json_is_the_comparison():
    """For each rule what `simulate --json` says of it, and each pair with the step at which it diverges; one model for all."""
    names, model = ("torch", "flax", "paddle"), ("--overflow-above", "2**15", "--noise", "2", "--seed", "3", "--steps", "300")
    for source, trace in ((("--trace", STEPS), from_string(STEPS)), (model, from_model(300, 2.0**15, 2.0, 3))):
        found = report(*names, *source, *SHARED[2:])
        assert list(found) == ["steps", "rules", "divergences"]
        assert found["steps"] == len(trace)
        assert found["rules"] == [Runs(simulate).report(name, *source, *SHARED[2:]) for name in names]
        rules = {name: getattr(presets, name)(init_scale=2.0**16, growth_interval=4) for name in names}
        wanted = run(rules, trace)
        assert {tuple(pair["rules"]): pair["step"] for pair in found["divergences"]} == wanted.divergences
        assert [one["scales"] for one in found["rules"]] == [each.scales.tolist() for each in wanted.trajectories.values()]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["torch", "--trace", "."], "two rules or more are wanted"),
        ([], "Missing argument 'RULE RULE ...'"),
        (["torch", "paddle"], "a trace is wanted from one of --trace, --file, --csv, --log, --overflow-above, got none"),
        (["torch", "torch", "--trace", "."], "torch twice"),
        (["torch", "padle", "--trace", "."], "padle: a rule must be a preset"),
        (["torch", "paddle", "--trace", ".", "--picture", "scales.gif"], "a picture must end in .png or .svg"),
    ],
)
def test_wrong_use_is_refused(arguments, said):
    """Exit code 2, one sentence of what was wanted and what came, and nothing on stdout."""
    assert said in refused(*arguments)


def test_a_picture_shows_them_all(tmp_path):
    """In an SVG each rule has its colour."""
    svg = tmp_path / "scales.svg"
    printed("torch", "flax", "paddle", *SHARED, "--picture", svg)
    assert all(colour in svg.read_text() for colour in ("#0072b2", "#d55e00", "#009e73"))
