"""The cases of cases/step.py, a test each."""

import pytest

from ampscale_conformance.model.case import Case
from ampscale_conformance.run.plugin import cases_of, put


@pytest.mark.parametrize("case", cases_of("step"))
def test_step(case: Case, request: pytest.FixtureRequest) -> None:
    """The implementation does what the clause says."""
    put(case, request)
