"""Adapters of published scalers: they can be imported without their libraries, and their snippets do not require ampscale."""

import subprocess
import sys

import pytest
from ampscale_conformance import Unsupported, check
from ampscale_conformance.adapters import SHIPPED, version_of
from ampscale_conformance.adapters.loading import find
from ampscale_conformance.cases import every_case
from ampscale_conformance.model.adapter import METHODS, Adapter
from ampscale_conformance.model.verdicts import BAD
from ampscale_conformance.reports.snippet_source import source_of

PUBLISHED = [name for name in SHIPPED if not name.startswith("ampscale-")]
LIBRARIES = ("torch", "jax", "paddle", "mindspore", "keras", "flax", "jmp", "optax", "deepspeed", "megatron", "tensorflow")


def test_adapters_can_be_imported_without_their_libraries():
    """The suite, its cases and the snippets can be imported, too."""
    script = f"""
import sys
sys.modules.update(dict.fromkeys({LIBRARIES}))  # importing one of them raises ImportError
import ampscale_conformance.reports.snippet
from ampscale_conformance.adapters.loading import find
from ampscale_conformance.cases import every_case
every_case()
print(*(find(name).info.name for name in {PUBLISHED}), sep="\\n")
"""
    process = subprocess.run([sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, check=True)
    assert len(set(process.stdout.splitlines())) == len(PUBLISHED)


@pytest.mark.parametrize("name", PUBLISHED)
def test_adapters_have_the_methods_that_they_claim(name):
    """Levels that the installed library does not support are excluded."""
    adapter = find(name)
    claims = {*range(adapter.info.level + 1), *adapter.info.capabilities} - unsupported_levels(adapter)
    assert [method for method, about in METHODS.items() if about.needs in claims and not hasattr(adapter, method)] == []


def unsupported_levels(adapter):
    """Return the levels at which every possible first call raises Unsupported."""
    first_calls = {
        1: [lambda: adapter.unscale(None, [])],
        2: [lambda: adapter.add_optimizer(None, []), lambda: adapter.update_scale(None)],
        3: [lambda: adapter.create_cell(None, [])],
    }
    return {level for level, calls in first_calls.items() if all(map(is_unsupported, calls))}


def is_unsupported(call):
    try:
        call()
    except Unsupported:
        return True
    except Exception:  # noqa: BLE001 - the call may raise anything if the library is missing
        return False
    return False


@pytest.mark.parametrize("name", PUBLISHED)
def test_snippets_require_no_ampscale(name):
    """The source of all methods can be extracted and compiled."""
    adapter = find(name)
    source = source_of(adapter, {method for method in vars(Adapter) if hasattr(adapter, method)})
    assert "class " in source
    assert "ampscale" not in source
    compile(source, name, "exec")


def test_version_of_returns_the_installed_version():
    """The version of a package that is not installed is empty."""
    assert version_of("numpy")
    assert version_of("no-such-distribution") == ""


@pytest.mark.slow
def test_torch_fails_four_clauses():
    """
    GradScaler of torch 2.13.0 detects overflows only before unscaling, and rejects a step without gradients.

    Norms, and the coefficients of clipping, are computed from squares in float32, which overflow.
    """
    results = check(find("torch"), 4).results
    failed = {result.clause for result in results if result.verdict in BAD}
    assert failed == {"OVERFLOW-both-sides", "CALLS-no-gradients", "NORMS-magnitudes", "NORMS-clip-magnitudes"}
    assert {result.level for result in results if result.verdict == "pass"} == {0, 1, 2, 3, 4}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "failed"),
    [
        (
            "torch",
            [
                "a-fault-after-the-reduction-reaches-all-ranks",
                "a-replicated-array-can-be-first",
                "a-stage-without-parameters-follows",
                "a-smaller-mesh-can-be-first",
                "the-last-stage-decides-for-all",
            ],
        ),
        ("torch-fsdp1", []),
    ],
)
def test_torch_fails_cases_on_ranks(name, failed):
    """
    In torch 2.13.0, ranks of the first gradient's mesh share a flag in `GradScaler`, and all ranks in `ShardedGradScaler`.

    At least ten cases pass.
    """
    results = check(find(name), cases=[case for case in every_case() if case.level == 5]).results
    assert [result.case for result in results if result.verdict in BAD] == failed
    assert sum(result.verdict == "pass" for result in results) >= 10


def test_adapters_have_unique_names():
    """Reports show results of several adapters side by side."""
    pytest.importorskip("torch")
    names = [find(name).info.name for name in SHIPPED]
    assert len(names) == len(set(names))
