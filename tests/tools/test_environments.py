"""Tests of the environments with published packages."""

from environments.environments import without_pins


def test_only_explained_versions_stay_pinned():
    """`make conform-newest` installs the newest release of each other package."""
    assert without_pins("jax==0.10.2\nnumpy==1.26.4 # MindSpore requires it below 2\n") == (
        "jax\nnumpy==1.26.4 # MindSpore requires it below 2\n"
    )
