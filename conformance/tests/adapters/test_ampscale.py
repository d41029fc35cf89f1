"""Adapters of ampscale itself: no case fails with any backend or with any documented class."""

from fnmatch import fnmatchcase

import pytest
from ampscale_conformance import check
from ampscale_conformance.adapters import SHIPPED
from ampscale_conformance.adapters.ampscale.backends import EVERY_CONSTANT, Core
from ampscale_conformance.adapters.loading import find
from ampscale_conformance.cases import every_case
from ampscale_conformance.model.verdicts import BAD, Verdict

from ampscale import LossScaleRule

pytestmark = pytest.mark.filterwarnings(  # torch.compile warns of caches of array_api_compat
    "ignore:Dynamo detected a call to a `functools.lru_cache`:UserWarning"
)
OURS = [name for name in SHIPPED if name.startswith("ampscale-") and name != "ampscale-cupy"]
# Cases that take seconds with JAX or torch: each compiles slowly, or imports the library in fresh processes.
LONG = ("follows-every-pattern-*", "applies-the-unscaled-gradient", "compiled-it-*", "another-process-goes-on")
HEAVY = ("ampscale-jax", "ampscale-torch", "ampscale-torch-scaler")
CELLS = ("ampscale-mindspore-update-cell", "ampscale-mindspore-cell", "ampscale-mindformers-cell")
SLOW = (*HEAVY, *CELLS, "ampscale-mpi", "ampscale-paddle")  # not in `make test`


def is_long(case):
    return case.level == 5 or any(fnmatchcase(case.id, glob) for glob in LONG)


def failures(report):
    """Return the failed cases with their messages."""
    return [f"{result.case}: {result.message}" for result in report.results if result.verdict in BAD]


def passed_cases(report):
    """Return the cases that passed."""
    passed = {result.case for result in report.results if result.verdict is Verdict.PASS}
    return [case for case in every_case() if case.id in passed]


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in OURS])
def test_no_case_fails_and_some_case_requires_each_capability(name):
    """`test_no_long_case_fails` runs the cases that take seconds with JAX or torch."""
    report = check(find(name), cases=[case for case in every_case() if name not in HEAVY or not is_long(case)])
    assert failures(report) == []
    not_required = set(report.info.capabilities) - {need for case in passed_cases(report) for need in case.needs}
    in_long_cases = {need for case in every_case() if is_long(case) for need in case.needs}
    assert not_required <= (in_long_cases if name in HEAVY else set())


@pytest.mark.slow
@pytest.mark.parametrize("name", HEAVY)
def test_no_long_case_fails(name):
    """The case that starts another process passes."""
    report = check(find(name), cases=[case for case in every_case() if is_long(case)], seconds=300.0)
    assert failures(report) == []
    assert "another-process-goes-on" in {case.id for case in passed_cases(report)}


def test_a_scaler_that_never_grows_fails_a_case():
    """A growth clause fails, and MACHINE-min-scale, which requires no growth, does not."""

    class NeverGrows(Core):
        def update(self, handle, finite):
            return handle if finite else super().update(handle, finite)

    failed = {result.clause for result in check(NeverGrows("numpy", EVERY_CONSTANT), 0).results if result.verdict in BAD}
    assert "MACHINE-growth-window" in failed
    assert "MACHINE-min-scale" not in failed


def test_each_replica_requires_a_flag():
    """A missing flag would leave a replica waiting at the barrier."""
    core = find("ampscale-numpy")
    handles = [core.create(LossScaleRule()) for _ in range(2)]
    with pytest.raises(ValueError, match="finite must have one flag for each of the 2 handles, got 1"):
        core.update_replicas(handles, [True])
