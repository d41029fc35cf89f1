"""Rules that an implementation supports: its preset with every value of the constants that can be set."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import cache, cached_property
from typing import Any

from ampscale import LossScaleRule, presets

from .adapter import Unsupported

# Constants that can be set in every rule whose scale changes.
ALWAYS = ("init_scale", "growth_factor", "backoff_factor", "growth_interval")
# Constants that can be set only if the rule sets them.
IF_SET = ("hysteresis", "min_scale", "max_scale")
SMALL = 2.0**10  # leaves room for several growths and backoffs in every dtype


@dataclass(frozen=True)
class SupportedRules:
    """Rules that an implementation supports."""

    name: str  # of the preset, or "the rule"
    parameters: frozenset[str]  # the constants that can be set
    make: Callable[..., LossScaleRule]  # returns the rule with the settings in its keyword arguments

    @cached_property
    def default(self) -> LossScaleRule:
        """Return the rule without settings, to read its constants."""
        return self.make()

    def rule(self, **settings: Any) -> LossScaleRule:
        """
        Return the rule with these settings and the preset's values of the other constants; `init_scale` is small by default.

        Raises Unsupported if a constant cannot be set, or the settings contradict each other.
        """
        if fixed := sorted(set(settings) - self.parameters):
            raise Unsupported(f"{self.name} has no {' and no '.join(fixed)} to set")
        if "init_scale" not in settings and "init_scale" in self.parameters:
            settings = {"init_scale": self.start(settings), **settings}
        try:
            return self.make(**settings)
        except ValueError as error:
            raise Unsupported(f"{self.name} does not allow these settings: {error}") from None

    def start(self, settings: Mapping[str, Any]) -> float:
        """Return the initial scale nearest to `SMALL` that lies within the bounds under these settings."""
        low, high = (settings.get(name, getattr(self.default, name)) for name in ("min_scale", "max_scale"))
        if low is not None and low > SMALL:
            return float(low)
        return float(high) if high is not None and high < SMALL else SMALL


@cache
def supported_rules(preset: str | LossScaleRule) -> SupportedRules:
    """Return the rules supported by an implementation with this `ImplementationInfo.preset`."""
    if isinstance(preset, str):
        published = presets.PRESETS[preset]
        return SupportedRules(preset, frozenset(published.parameters), published.rule)
    static = preset.growth_factor == preset.backoff_factor == 1
    settable = ("init_scale",) if static else ALWAYS
    optional = tuple(name for name in IF_SET if getattr(preset, name) != getattr(LossScaleRule, name))
    constants = {field.name: getattr(preset, field.name) for field in fields(preset)}
    return SupportedRules("the rule", frozenset(settable + optional), lambda **settings: LossScaleRule(**constants | settings))
