"""ampscale keeps its own specification: no case fails, on any backend and with any documented class."""

from fnmatch import fnmatchcase

import pytest
from ampscale_conformance import check
from ampscale_conformance.adapters import SHIPPED
from ampscale_conformance.adapters.ampscale.backends import EVERY_CONSTANT, Core
from ampscale_conformance.adapters.loading import find
from ampscale_conformance.cases import every_case
from ampscale_conformance.model.verdicts import BAD, Verdict

from ampscale import LossScaleRule

pytestmark = pytest.mark.filterwarnings(  # of torch.compile, about caches of array_api_compat
    "ignore:Dynamo detected a call to a `functools.lru_cache`:UserWarning"
)
OURS = [name for name in SHIPPED if name.startswith("ampscale-") and name != "ampscale-cupy"]
# Cases that take seconds with JAX or torch: each compiles for long, or imports the library in a fresh process.
LONG = ("follows-every-pattern-*", "applies-the-unscaled-gradient", "compiled-it-*", "another-process-goes-on")
HEAVY = ("ampscale-jax", "ampscale-torch", "ampscale-torch-scaler")


def is_long(case):
    return any(fnmatchcase(case.id, glob) for glob in LONG)


def wrong(report):
    return [f"{result.case}: {result.message}" for result in report.results if result.verdict in BAD]


def asked(report):
    """The cases that were put to it."""
    passed = {result.case for result in report.results if result.verdict is Verdict.PASS}
    return [case for case in every_case() if case.id in passed]


@pytest.mark.parametrize("name", OURS)
def test_it_passes_and_claims_nothing_in_vain(name):
    """No case fails, and each capability is asked for in a case that it passes."""
    report = check(find(name), cases=[case for case in every_case() if name not in HEAVY or not is_long(case)])
    assert wrong(report) == []
    claimed = set(report.info.capabilities) - {need for case in asked(report) for need in case.needs}
    assert claimed <= ({"process", "jit"} if name in HEAVY else set())


@pytest.mark.slow
@pytest.mark.parametrize("name", HEAVY)
def test_it_passes_the_long_cases(name):
    """None fails, and the one that starts another process is passed."""
    report = check(find(name), cases=[case for case in every_case() if is_long(case)])
    assert wrong(report) == []
    assert "another-process-goes-on" in {case.id for case in asked(report)}


def test_a_core_that_differs_from_its_claim_fails():
    """One that never grows."""

    class Still(Core):
        def update(self, handle, finite):
            return handle if finite else super().update(handle, finite)

    failed = {result.clause for result in check(Still("numpy", EVERY_CONSTANT), 0).results if result.verdict in BAD}
    assert "MACHINE-growth-window" in failed
    assert "MACHINE-min-scale" not in failed


def test_ranks_without_a_flag_are_rejected_and_not_waited_for():
    """The others would wait for theirs."""
    core = find("ampscale-numpy")
    handles = [core.create(LossScaleRule()) for _ in range(2)]
    with pytest.raises(ValueError, match="finite must have one flag for each of the 2 handles, got 1"):
        core.update_replicas(handles, [True])
