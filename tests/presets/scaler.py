"""Description of a published scaler: its loop, the names and defaults of its settings, and the settings to compare it under."""

from dataclasses import dataclass
from typing import Any

GIVEN = object()  # a setting for which the published scaler has no default
ASKED = {
    "init_scale": 64.0,
    "growth_factor": 2,
    "growth_interval": 3,
    "min_scale": 1.0,
    "overflow_tolerance": 0.5,
}  # then these are given


@dataclass(frozen=True)
class Published:
    """
    A published scaler.

    Args:
        loop: Its loop.
        defaults: The defaults of its settings, in the order of the loop's.
        fields: The names that a rule has for the same settings, in the same order.
        fixed: The remaining settings of the loop, where the preset is one mode of a scaler with several.
        starts: First scales near its edges: the largest and the smallest number, the cap, the floor.
        factors: The factors of growth and backoff to compare under, as far as they can be set.
        more: Further settings, by a rule's names.
    """

    loop: type
    defaults: tuple[Any, ...]
    fields: str
    fixed: tuple[Any, ...] = ()
    starts: tuple[float, ...] = ()
    factors: tuple[tuple[float, float], ...] = ((2.0, 0.5), (1.1, 0.7), (3.0, 0.3))
    more: tuple[dict[str, Any], ...] = ()

    @property
    def default_of(self):
        """The default of each setting by a rule's name."""
        return dict(zip(self.fields.split(), self.defaults, strict=True))

    def known(self, setting):
        """A setting without what the scaler does not let one set, and with what it asks for."""
        asked = {name: ASKED[name] for name, default in self.default_of.items() if default is GIVEN}
        return {name: value for name, value in {**asked, **setting}.items() if name in self.default_of}

    def new(self, setting):
        """The loop under a setting by a rule's names; what that leaves out has its default."""
        return self.loop(*{**self.default_of, **self.known(setting)}.values(), *self.fixed)

    def settings(self):
        """Inside and at the edges, with two windows, each patience, and factors that are powers of two and that are not."""
        known = self.default_of
        patience = [{"hysteresis": count} for count in (1, 2, 3)] if "hysteresis" in known else [{}]
        pairs = [{"growth_factor": up, "backoff_factor": down} for up, down in self.factors]
        factors = pairs if set(pairs[0]) & set(known) else [{}]
        settings = [
            *({"init_scale": 64.0, "growth_interval": window, **some} for window in (1, 3) for some in patience),
            *({"init_scale": start, "growth_interval": 1, **some} for start in self.starts for some in factors),
            *({"init_scale": 1000.1, "growth_interval": 2, **patience[-1], **some} for some in factors),
            *({"init_scale": 64.0, "growth_interval": 2, **some} for some in self.more),
        ]
        return [self.known(some) for some in settings]
