"""Description of a published scaler: its loop, the names and defaults of its settings, and the settings to test."""

from dataclasses import dataclass
from typing import Any

REQUIRED = object()  # default of a setting for which the published scaler has none
# Values of required settings in the tests.
VALUES = {"init_scale": 64.0, "growth_factor": 2, "growth_interval": 3, "min_scale": 1.0, "overflow_tolerance": 0.5}


@dataclass(frozen=True)
class Published:
    """
    Published scaler.

    Args:
        loop: Class of its loop.
        defaults: Defaults of its settings, in the order of the loop's settings.
        fields: Names of the rule's fields for the same settings, in the same order.
        fixed: Values of the loop's remaining settings, which the preset fixes.
        starts: Initial scales near the limits of the dtype or near the bounds.
        factors: Pairs of growth and backoff factors to test, as far as they can be set.
        more: Further settings to test, under the names of the rule's fields.
    """

    loop: type
    defaults: tuple[Any, ...]
    fields: str
    fixed: tuple[Any, ...] = ()
    starts: tuple[float, ...] = ()
    factors: tuple[tuple[float, float], ...] = ((2.0, 0.5), (1.1, 0.7), (3.0, 0.3))
    more: tuple[dict[str, Any], ...] = ()

    @property
    def defaults_by_field(self):
        """Return a dict from the names of the rule's fields to the defaults."""
        return dict(zip(self.fields.split(), self.defaults, strict=True))

    def supported(self, setting):
        """Return *setting* without the names that the scaler lacks, and with values of its required settings."""
        required = {name: VALUES[name] for name, default in self.defaults_by_field.items() if default is REQUIRED}
        return {name: value for name, value in {**required, **setting}.items() if name in self.defaults_by_field}

    def new_loop(self, setting):
        """Create the loop from a dict of the rule's fields; fields that *setting* lacks have their defaults."""
        return self.loop(*{**self.defaults_by_field, **self.supported(setting)}.values(), *self.fixed)

    def settings(self):
        """Return the settings to test: ordinary and extreme scales, several windows, and each hysteresis and pair of factors."""
        names = self.defaults_by_field.keys()
        hysteresis = [{"hysteresis": count} for count in (1, 2, 3)] if "hysteresis" in names else [{}]
        pairs = [{"growth_factor": up, "backoff_factor": down} for up, down in self.factors]
        factors = pairs if set(pairs[0]) & names else [{}]
        settings = [
            *({"init_scale": 64.0, "growth_interval": window, **options} for window in (1, 3) for options in hysteresis),
            *({"init_scale": start, "growth_interval": 1, **options} for start in self.starts for options in factors),
            *({"init_scale": 1000.1, "growth_interval": 2, **hysteresis[-1], **options} for options in factors),
            *({"init_scale": 64.0, "growth_interval": 2, **options} for options in self.more),
        ]
        return [self.supported(options) for options in settings]
