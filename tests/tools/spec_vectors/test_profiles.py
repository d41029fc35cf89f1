"""Tests of the constants of the documented classes, for settings that the vectors do not have."""

import pytest
from ampscale_conformance.oracle.machine import trajectory
from spec_vectors.profiles import constants


@pytest.mark.parametrize(
    ("chapter", "name", "settings", "scale"),
    [
        ("mindspore", "StaticLossScaler", {"scale_value": 3}, 3),
        ("mindspore", "FixedLossScaleUpdateCell", {"loss_scale_value": 3}, 3),
        ("mindspore", "FixedLossScaleManager", {}, 128),
        ("paddle", "GradScaler", {"use_dynamic_loss_scaling": False}, 32768),
        ("paddle", "GradScaler", {"enable": False}, 1),
    ],
)
def test_constant_scale_never_changes(chapter, name, settings, scale):
    """Neither two thousand finite steps nor an overflow change the scale."""
    assert {point.scale for point in trajectory(constants(chapter, name, settings), [True] * 2000 + [False])} == {scale}


def test_class_without_a_scale_raises_a_value_error():
    """A training cell is not a loss scaler."""
    with pytest.raises(ValueError, match=r"class must be one of .*StaticLossScaler.*, got 'MFTrainOneStepCell'"):
        constants("mindformers", "MFTrainOneStepCell", {})
