"""One rank differs from the others, or does not respond: the ranks raise an error that names this rank, and change nothing."""

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from distributed import bad_ranks
from distributed.ending import LIMIT
from distributed.pool import HERE, gloo_environment

EXPECTED = {
    "number of arrays": "length of gradients differs: 3 on rank 2; 2 on ranks 0, 1, 3",
    "no arrays": "length of gradients differs: 0 on rank 2; 2 on ranks 0, 1, 3",
    "shape": "gradients[1] differs: float32 (4,) on rank 2; float32 (3,) on ranks 0, 1, 3",
    "dtype": "gradients[0] differs: float64 (2,) on rank 2; float32 (2,) on ranks 0, 1, 3",
    "integers": "gradients[0] differs: int32 (2,) on rank 2; float32 (2,) on ranks 0, 1, 3",
    "large": "gradients[1] differs: float32 (100000,) on rank 2; float32 (3,) on ranks 0, 1, 3",
}
DTYPES_ONLY = {name: EXPECTED[name] for name in ("number of arrays", "no arrays")} | {
    "dtype": "gradients[0] differs: float64 on rank 2; float32 on ranks 0, 1, 3"
}
PATHS = {
    "keys": ("['b']", "['a']"),
    "nested keys": ("[0]['b']", "[0]['a']"),
    "fields": ("['bias']", "['weight']"),
    "None": ("[0]", "[1]"),
}
STRUCTURES = {
    name: f"gradients structure differs: {odd} on rank 2; {usual} on ranks 0, 1, 3" for name, (odd, usual) in PATHS.items()
}


@pytest.mark.clause("REPLICAS-sizes-compared", "REPLICAS-error-names-ranks")
@pytest.mark.parametrize(
    ("call", "messages"),
    [("mean", EXPECTED | STRUCTURES), ("agree", EXPECTED), ("norm", DTYPES_ONLY | STRUCTURES)],
    ids=["mean", "agree", "norm"],
)
def test_gradients_that_differ_on_one_rank_are_an_error_on_all(ranks, call, messages):
    """
    The next call works if the gradients are equal again.

    If only the structure differs, the shapes are equal, so a mean would add gradients of different parameters.
    """
    expected = [[message, True, True, message, True] for message in messages.values()]
    assert ranks.run(bad_ranks.gradients_that_differ, ranks.engine, call, [*messages]) == [expected] * 4


@pytest.mark.clause("REPLICAS-settings-compared", "REPLICAS-scale-compared", "REPLICAS-agreement-first")
@pytest.mark.parametrize(
    ("setting", "first", "second"),
    [
        ("rule", *["rule.growth_interval differs: 3 on rank 2; 2 on ranks 0, 1, 3"] * 2),
        ("max_norm", *["max_norm differs: 2.0 on rank 2; 1.0 on ranks 0, 1, 3"] * 2),
        ("scale", *[f"scale differs: {2 * scale + 1} on rank 2; {scale} on ranks 0, 1, 3" for scale in (1024.0, 2048.0)]),
        ("good_steps", *[f"good_steps differs: {2 * steps + 1} on rank 2; {steps} on ranks 0, 1, 3" for steps in (0.0, 1.0)]),
    ],
    ids=["rule", "max_norm", "scale", "good_steps"],
)
def test_settings_and_states_that_differ_on_one_rank_are_an_error_on_all(ranks, setting, first, second):
    """
    The setting differs before the first and the last of four steps; each step is then repeated with equal settings.

    The parameters and the scale are those of four steps, each with a gradient of norm 1.
    """
    param = pytest.approx(1 - 4 * 0.5 / 2**0.5, abs=1e-5)
    assert ranks.run(bad_ranks.settings_that_differ, ranks.engine, setting) == [[[first, second], 4096.0, [param, param]]] * 4


@pytest.mark.clause("REPLICAS-settings-compared")
def test_cells_with_other_arguments_or_in_another_order_on_one_rank_are_an_error_on_all(mpi):
    message = "gradient_accumulation_steps differs: 3 on rank 2; 2 on ranks 0, 1, 3"
    assert mpi.run(bad_ranks.accumulation_that_differs) == [[message, 1.0]] * 4
    assert mpi.run(bad_ranks.cell_without_update) == ["scale_sense differs: 'array' on rank 2; rule on ranks 0, 1, 3"] * 4
    assert mpi.run(bad_ranks.cells_in_another_order) == ["optimizer differs: 1 on rank 2; 0 on ranks 0, 1, 3"] * 4


@pytest.mark.parametrize(
    ("layout", "case", "message"),
    [
        ("replicated", "skips mean", "call differs: agree on rank 2; mean on ranks 0, 1, 3"),
        ("replicated", "skips agree", "call differs: mean on rank 2; agree on ranks 0, 1, 3"),
        ("replicated", "exchanges", "call differs: exchange on rank 2; mean on ranks 0, 1, 3"),
        ("replicated", "agrees twice", "call differs: agree on rank 2; mean on ranks 0, 1, 3"),
        ("sharded", "skips agree", "good_steps differs: 2.0 on rank 2; 1.0 on ranks 0, 1, 3"),
        ("sharded", "agrees twice", "good_steps differs: 1.0 on rank 2; 2.0 on ranks 0, 1, 3"),
    ],
)
def test_a_call_that_one_rank_skips_or_repeats_is_an_error_on_all(ranks, layout, case, message):
    """The error is raised in the call itself or in the next one."""
    assert ranks.run(bad_ranks.calls_that_differ, ranks.engine, layout, case) == [message] * 4


def test_a_rank_that_raises_an_error_while_the_others_wait_is_named(mpi):
    """All ranks, including the late one, raise at most three seconds after the limit, and every later call raises too."""
    for rank, (type_error, first, second, seconds) in enumerate(mpi.run(bad_ranks.late_after_error)):
        assert (type_error is not None) == (rank == bad_ranks.DEVIATING_RANK)
        assert first == second == "rank 2 did not respond within 1 s"
        assert seconds < 4


@pytest.mark.clause("REPLICAS-same-decision", "REPLICAS-time-limit")
def test_a_rank_that_calls_after_the_others_have_stopped_waiting_is_named_and_takes_no_step(mpi):
    """
    The call is a constructor, or `agree`, for which MPI delivers the values of the other ranks before their messages.

    After the failed constructor, the ranks can create another communicator: the mean of 0, 1, 2 and 3 is 1.5.
    """
    message = "rank 2 did not respond within 1 s"
    assert mpi.run(bad_ranks.late_constructor) == [[message, 1.5]] * 4
    assert mpi.run(bad_ranks.late_agreement) == [message] * 4


@pytest.fixture(scope="module", autouse=True)
def programs():
    """Start `ending.py` for both engines before the first test of this module, since their ranks mostly wait."""
    program = str(HERE / "ending.py")
    sizes = {"gloo": 4, "late": 4, "functions": 6, "error": 2}
    started = {name: start([sys.executable, program, name], **gloo_environment(size)) for name, size in sizes.items()}
    mpiexec = [str(Path(sys.executable).with_name("mpiexec")), "-n", "3"]
    started["mpi"] = start([*mpiexec, sys.executable, "-m", "mpi4py", program, "mpi"])
    yield started
    for process in started.values():
        with process, suppress(ProcessLookupError):  # `with` closes the output
            os.killpg(process.pid, signal.SIGTERM)  # ends its ranks too
            os.killpg(process.pid, signal.SIGCONT)  # a stopped rank handles the signal only then


def start(command, **environment):
    """Start a process whose output is text, and return the process."""
    environment = {**os.environ, **environment, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, env=environment, start_new_session=True, **pipes)


def reports_of(program):
    """Return the JSON objects that the ranks of a program printed, by rank."""
    lines = program.communicate(timeout=60)[0].splitlines()
    return sorted((json.loads(line) for line in lines if line.startswith("{")), key=lambda report: report["rank"])


@pytest.mark.clause("REPLICAS-time-limit", "REPLICAS-error-names-ranks")
def test_ranks_of_gloo_that_are_killed_hang_or_leave_are_named(programs):
    """
    The other ranks wait at most three seconds longer than the limit, and not at all for a rank that has ended.

    A rank that calls too late gets an error too. It hangs in a collective on the same group; the values of this collective are
    not mixed up with the values that the communicator exchanges.
    """
    pytest.importorskip("torch")
    reports = reports_of(programs["gloo"])
    assert [report["rank"] for report in reports] == [0, 1, 2]
    assert {report["everyone"] for report in reports} == {"rank 3 ended or closed the connection"}
    waiting, late, beside_killed = reports
    errors, seconds = waiting["pair"]
    assert errors == [f"rank 1 did not respond within {LIMIT:g} s"] * 2
    assert LIMIT <= seconds < LIMIT + 3
    assert late["pair"][0] == [f"rank 0 waited only {LIMIT:g} s, and rank 1 came later"] * 2
    assert late["values"] == 200
    errors, seconds = beside_killed["pair"]
    assert errors == ["rank 3 ended or closed the connection"] * 2
    assert seconds < LIMIT + 3
    assert waiting["three"][0] == beside_killed["three"][0] == ["rank 1 ended or closed the connection"] * 2


@pytest.mark.clause("REPLICAS-time-limit", "REPLICAS-error-names-ranks")
def test_ranks_of_gloo_that_are_only_late_are_not_named(programs):
    """
    A rank that is late for one call is not named when another rank ends or hangs in a later one.

    A stopped rank that serves torch's store is named although the store does not answer.
    """
    pytest.importorskip("torch")
    reports = reports_of(programs["late"])
    (last,) = [report for report in reports if "stopped" in report]
    stopped, seconds = last["stopped"]
    errors, all_seconds = zip(*last["created"], strict=True)
    assert {*stopped, *errors} == {f"rank 0 did not respond within {LIMIT:g} s"}
    assert max(seconds, *all_seconds) < LIMIT + 3
    reports.remove(last)
    assert [report["rank"] for report in reports] == [0, 1, 2]
    for report in reports:
        assert report["killed"][0] == ["rank 3 ended or closed the connection"] * 2
        assert report["created"][1] < LIMIT + 3
        assert report["again"][0] == [None, None]
    late = reports.pop()
    assert late["created"][0] == f"ranks 0, 1 waited only {LIMIT:g} s, and rank 2 came later"
    assert late["hung"][0][0] == "ranks 0, 1 waited only 2.5 s, and rank 2 came later"
    for report in reports:
        assert report["created"][0] == f"rank 2 did not respond within {LIMIT:g} s"
        assert report["hung"][0][0] == "rank 2 did not respond within 2.5 s"
        assert report["hung"][1] < 2.5 + 3


@pytest.mark.clause("REPLICAS-time-limit", "REPLICAS-error-names-ranks", "TORCH-dtensor-functions")
def test_ranks_that_are_missing_from_functions_of_dtensors_are_named(programs):
    """
    Three ranks each call one function and `train_step`, each time together with a rank that hangs, was killed or has left.

    A second call raises the same error at once, so that it receives no values of the first one. Ranks that call later than the
    others, which have already stopped waiting for a rank that has ended, name the same rank.
    """
    pytest.importorskip("torch")
    reports = reports_of(programs["functions"])
    names = ["all_finite", "unscale_check_and_norm", "clip_by_global_norm"]
    assert [report["rank"] for report in reports] == [0, 1, 2]
    for name, report in zip(names, reports, strict=True):
        expected = {(function, faulty) for function in (name, "train_step") for faulty in (3, 4, 5)}
        assert {(function, faulty) for function, faulty, _, _ in report["functions"]} == expected
        for function, faulty, errors, seconds in report["functions"]:
            assert errors == [f"rank {faulty} did not respond within {LIMIT:g} s"] * 2, function
            assert seconds < LIMIT + 3, (function, faulty)


def test_a_rank_of_gloo_that_raises_an_error_ends_while_another_hangs(programs):
    """If one rank ends with an error, torchrun ends all ranks."""
    assert programs["error"].wait(timeout=40) == 1


def test_a_rank_of_mpi_that_hangs_is_named_and_ended(programs):
    """`python -m mpi4py` ends all ranks when one of them ends with an error."""
    reports = reports_of(programs["mpi"])
    assert [report["rank"] for report in reports] == [0, 2]
    for errors, seconds in (report["everyone"] for report in reports):
        assert errors == [f"rank 1 did not respond within {LIMIT:g} s"] * 2
        assert seconds < LIMIT + 3
    assert programs["mpi"].returncode != 0


HASH = 64  # bytes of a hash of settings, in hexadecimal
WORDS = 352  # bytes of the flags, and of the words of the settings' hash and of the state, with their squares
SQUARES = 24  # bytes of three sums of squares
VALUES = 2048  # bytes of 512 gradients in float32


@pytest.mark.parametrize("max_norm", [None, 1.0])
@pytest.mark.parametrize(
    ("layout", "mean", "norm"),
    [("replicated", [WORDS, VALUES], 0), ("averaged", [], 0), ("sharded", [], SQUARES), ("distinct", [], SQUARES)],
)
def test_a_step_has_one_small_collective_beside_the_mean(mpi, layout, mean, norm, max_norm):
    """
    Sizes are in bytes. A mean has a small collective before its values.

    The first step, in which the lengths of the vectors change, sums at most four vectors, and exchanges hashes of the settings.
    """
    for first, *others in mpi.run(bad_ranks.collectives, "mpi", layout, max_norm, 4):
        assert others == [[[*mean, WORDS + (norm if max_norm else 0)], []]] * 3
        assert len(first[0]) <= 4
        assert first[1] == [HASH] * (2 if mean else 1)


def test_a_mean_of_masked_arrays_is_a_type_error_before_any_collective(mpi):
    """The collective would add the masked values. The next collective works."""
    for message, mean in mpi.run(bad_ranks.masked):
        assert message.startswith("gradients to be averaged must not be masked, got a numpy.ma.MaskedArray")
        assert mean == [1.5]


@pytest.mark.clause("MINDFORMERS-accumulation", "MINDFORMERS-accumulation-scale", "REPLICAS-same-decision")
@pytest.mark.parametrize("layout", ["replicated", "averaged", "distinct"])
def test_ranks_that_accumulate_gradients_agree_once_per_step(mpi, layout):
    """An overflow of one rank's first micro-batch skips the step on all ranks; until then, only that rank reports it."""
    for rank, rows in enumerate(mpi.run(bad_ranks.micro_batches, layout)):
        assert [overflow for overflow, *_ in rows] == [rank == bad_ranks.DEVIATING_RANK, False, True, False, False, False]
        assert [communicated for _, communicated, *_ in rows] == [False, False, True] * 2
        parameters, scales = zip(*(row[2:] for row in rows), strict=True)
        assert parameters == (1.0, 1.0, 1.0, 1.0, 1.0, 0.5)
        assert scales == (1024.0, 1024.0, 512.0, 512.0, 512.0, 512.0)
