"""
Argument validation of Paddle's `GradScaler`.

Spec: PADDLE-enable, PADDLE-init-loss-scaling, PADDLE-incr-ratio, PADDLE-decr-ratio, PADDLE-counts-checked.
"""

from dataclasses import replace
from math import nextafter
from typing import Any

from ...core.dtypes import FLOATS
from ...core.rule import LossScaleRule
from ...core.validation import check_bool, check_count, check_number
from ...parsing import excerpt

_FIELDS = {
    "init_loss_scaling": "init_scale",
    "incr_ratio": "growth_factor",
    "decr_ratio": "backoff_factor",
    "incr_every_n_steps": "growth_interval",
    "decr_every_n_nan_or_inf": "hysteresis",
}


def rule_with(rule: LossScaleRule, **arguments: Any) -> LossScaleRule:
    """Return *rule* with new values of some of Paddle's arguments. Raise a TypeError or ValueError for an invalid value."""
    if "incr_ratio" in arguments:
        check_number(arguments["incr_ratio"], "incr_ratio", "a finite number above 1", 1, above=True)
    if "decr_ratio" in arguments:
        check_number(arguments["decr_ratio"], "decr_ratio", "a number above 0 and below 1", 0, nextafter(1, 0), above=True)
    if "init_loss_scaling" in arguments:
        smallest, largest = FLOATS["float32"].smallest_normal, FLOATS["float32"].largest
        expected = "a positive, finite number that is a normal float32"
        check_number(arguments["init_loss_scaling"], "init_loss_scaling", expected, smallest, largest)
    for name in ("incr_every_n_steps", "decr_every_n_nan_or_inf"):
        if name in arguments:
            check_count(arguments[name], name)
    return replace(rule, **{_FIELDS[name]: value for name, value in arguments.items()})


def check_enable(value: Any) -> None:
    """Raise a TypeError unless *value* is a bool, with a hint if it is a device, the first argument of torch's class."""
    if isinstance(value, str) or type(value).__name__ == "device":
        hint = "This GradScaler is Paddle's; torch's, whose first argument is a device, is ampscale.torch.GradScaler"
        raise TypeError(f"enable must be a bool, got {excerpt(value)}. {hint}")
    check_bool(value, "enable")
