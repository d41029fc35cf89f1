"""The rules that one implementation may be given: its preset, with the constants that it lets one set."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from ampscale import LossScaleRule, presets

from .adapter import Unsupported

ALWAYS = ("init_scale", "growth_factor", "backoff_factor", "growth_interval")
WHERE_PRESENT = ("hysteresis", "min_scale", "max_scale")
SMALL = 2.0**10  # where a scale may go up and down some steps in every dtype


@dataclass(frozen=True)
class Family:
    """
    What an implementation claims to be.

    Args:
        name: The preset's name, or "rule".
        parameters: The constants that may be set.
        make: The rule with these settings.
    """

    name: str
    parameters: frozenset[str]
    make: Callable[..., LossScaleRule]

    def rule(self, **settings: Any) -> LossScaleRule:
        """
        The rule with these settings, and else the claim's own constants; `init_scale` is small unless it is said.

        Raises:
            Unsupported: A setting is none of its parameters, or the constants do not go together.
        """
        if missing := sorted(set(settings) - self.parameters):
            raise Unsupported(f"{self.name} has no {' and no '.join(missing)} to set")
        if "init_scale" not in settings and "init_scale" in self.parameters:
            settings = {"init_scale": self.start(**settings), **settings}
        try:
            return self.make(**settings)
        except ValueError as error:
            raise Unsupported(f"{self.name} cannot be set so: {error}") from None

    def start(self, **settings: Any) -> float:
        """A power of two well within the bounds that hold under these settings."""
        free = self.make(**{name: value for name, value in settings.items() if name not in ("min_scale", "max_scale")})
        low, high = settings.get("min_scale", free.min_scale), settings.get("max_scale", free.max_scale)
        if low is not None and low > SMALL:
            return float(low)
        return float(high) if high is not None and high < SMALL else SMALL


def family_of(preset: str | LossScaleRule) -> Family:
    """The rules behind `ImplementationInfo.preset`."""
    if isinstance(preset, str):
        found = presets.PRESETS[preset]
        return Family(preset, frozenset(found.parameters), found.rule)
    still = preset.growth_factor == preset.backoff_factor == 1
    settable = ("init_scale",) if still else ALWAYS
    present = tuple(name for name in WHERE_PRESENT if getattr(preset, name) != getattr(LossScaleRule, name))
    return Family("the rule", frozenset(settable + present), lambda **settings: replace(preset, **settings))
