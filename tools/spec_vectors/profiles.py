"""Constants of the documented classes of MindSpore, Paddle and torch, as defined in spec/profiles."""

from typing import Any

from ampscale_conformance.oracle.machine import Constants

SMALLEST_NORMAL = 2.0**-126  # of float32: PADDLE-min-scale, TORCH-min-scale


def constants(chapter: str, name: str, settings: dict[str, Any]) -> Constants:
    """
    Return the constants of a documented class.

    Args:
        chapter: "mindspore", "mindformers", "paddle" or "torch".
        name: Name of the class.
        settings: Arguments of the class's constructor.

    Raises:
        ValueError: The profile has no loss scaler of this name.
    """
    classes = {"paddle": PADDLE, "torch": TORCH}.get(chapter, MINDSPORE)
    if name not in classes:
        raise ValueError(f"class must be one of {sorted(classes)}, got {name!r}")
    result: Constants = classes[name](**settings)
    return result


def fixed(scale: float, dtype: str = "float32") -> Constants:
    """Return the constants of a scale that never changes."""
    return Constants(init_scale=scale, growth_factor=1.0, backoff_factor=1.0, dtype=dtype)


def _scaler(scale_value: float, scale_factor: int, scale_window: int) -> Constants:
    """Return constants that divide by the factor: MINDSPORE-dynamic-division."""
    return _mindspore(scale_value, scale_factor, scale_window, divide_on_backoff=True)


def _update_cell(loss_scale_value: float, scale_factor: float, scale_window: int) -> Constants:
    """Return constants that multiply by the reciprocal rounded to float32: MINDSPORE-update-cell-reciprocal."""
    return _mindspore(loss_scale_value, scale_factor, scale_window)


def _manager(init_loss_scale: float = 2.0**24, scale_factor: float = 2, scale_window: int = 2000) -> Constants:
    """Return constants that multiply by the reciprocal in float64: MINDSPORE-manager-dynamic."""
    return _mindspore(init_loss_scale, scale_factor, scale_window, dtype="float64")


def _mindspore(scale: float, factor: float, window: int, *, dtype: str = "float32", divide_on_backoff: bool = False) -> Constants:
    return Constants(
        init_scale=scale,
        growth_factor=factor,
        backoff_factor=1 / factor,
        growth_interval=window,
        min_scale=1.0,
        dtype=dtype,
        divide_on_backoff=divide_on_backoff,
    )


def _paddle(
    enable: bool = True,
    init_loss_scaling: float = 32768.0,
    incr_ratio: float = 2.0,
    decr_ratio: float = 0.5,
    incr_every_n_steps: int = 1000,
    decr_every_n_nan_or_inf: int = 2,
    use_dynamic_loss_scaling: bool = True,
    decr_count: str = "accumulated",
) -> Constants:
    """Return constants that reset the overflow count as PADDLE-decr-accumulated or PADDLE-decr-consecutive requires."""
    if not enable:
        return fixed(1.0)
    if not use_dynamic_loss_scaling:
        return fixed(init_loss_scaling)
    return Constants(
        init_scale=init_loss_scaling,
        growth_factor=incr_ratio,
        backoff_factor=decr_ratio,
        growth_interval=incr_every_n_steps,
        hysteresis=decr_every_n_nan_or_inf,
        reset_bad_steps_on={"accumulated": ("growth", "backoff"), "consecutive": ("finite", "backoff")}[decr_count],
        min_scale=SMALLEST_NORMAL,
    )


def _torch(
    init_scale: float = 65536.0, growth_factor: float = 2.0, backoff_factor: float = 0.5, growth_interval: int = 2000
) -> Constants:
    """Return constants that apply factors in float64 and round once: TORCH-arithmetic."""
    return Constants(
        init_scale=init_scale,
        growth_factor=growth_factor,
        backoff_factor=backoff_factor,
        growth_interval=growth_interval,
        min_scale=SMALLEST_NORMAL,
        float64_factor=True,
    )


MINDSPORE: dict[str, Any] = {
    "DynamicLossScaler": _scaler,
    "DynamicLossScaleUpdateCell": _update_cell,
    "DynamicLossScaleManager": _manager,
    "StaticLossScaler": lambda scale_value: fixed(scale_value),
    "FixedLossScaleUpdateCell": lambda loss_scale_value: fixed(loss_scale_value),
    "FixedLossScaleManager": lambda loss_scale=128.0: fixed(loss_scale),
}
PADDLE: dict[str, Any] = {"GradScaler": _paddle}
TORCH: dict[str, Any] = {"GradScaler": _torch}
