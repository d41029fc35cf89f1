"""
Published scalers as constants: what sets one apart from another is on this page, and nowhere else.

The rules are as published; where `ampscale.frameworks` mends a defect, it says so there and in spec/deviations.md.
"""

from typing import Any

from .core.machine import LossScaleRule


def static(init_scale: float) -> LossScaleRule:
    """A scale that never moves."""
    return LossScaleRule(init_scale=init_scale, growth_factor=1.0, backoff_factor=1.0)


def mindspore(init_scale: float, scale_factor: int, scale_window: int) -> LossScaleRule:
    """MindSpore's `DynamicLossScaler`: divides, never below 1, and keeps the scale where growth is not finite."""
    return _mindspore(init_scale, scale_factor, scale_window, backoff_divides=True)


def mindspore_update_cell(init_scale: float, scale_factor: float, scale_window: int) -> LossScaleRule:
    """MindSpore's `nn.DynamicLossScaleUpdateCell`: multiplies by the reciprocal, never below 1, grows to infinity."""
    return _mindspore(init_scale, scale_factor, scale_window, growth_guard=False)


def mindspore_manager(init_scale: float = 2.0**24, scale_factor: float = 2, scale_window: int = 2000) -> LossScaleRule:
    """MindSpore's `DynamicLossScaleManager`: the update cell's rule in the host's float64."""
    return _mindspore(init_scale, scale_factor, scale_window, growth_guard=False, dtype="float64")


def paddle_document() -> LossScaleRule:
    """Paddle's `GradScaler` as its page describes it: overflows accumulate over finite steps."""
    return LossScaleRule(
        init_scale=32768.0,
        growth_interval=1000,
        hysteresis=2,
        refill=("growth", "backoff"),
        growth_guard=False,
    )


def paddle() -> LossScaleRule:
    """Paddle 3.3's dynamic-graph `GradScaler`: a finite step forgets the overflows before it; no bounds."""
    return LossScaleRule(init_scale=65536.0, refill=("finite", "backoff"), growth_guard=False)


def torch(
    init_scale: float = 2.0**16, growth_factor: float = 2.0, backoff_factor: float = 0.5, growth_interval: int = 2000
) -> LossScaleRule:
    """Torch's `amp.GradScaler`: factors applied in float64, growth that is not finite kept back; no bounds."""
    return LossScaleRule(
        init_scale=init_scale,
        growth_factor=growth_factor,
        backoff_factor=backoff_factor,
        growth_interval=growth_interval,
        wide_factor=True,
    )


def _mindspore(init_scale: float, scale_factor: float, scale_window: int, **axes: Any) -> LossScaleRule:
    return LossScaleRule(
        init_scale=init_scale,
        growth_factor=scale_factor,
        backoff_factor=1 / scale_factor,
        growth_interval=scale_window,
        min_scale=1.0,
        **axes,
    )
