"""Base of the published scalers that are written as plain loops: settings, counts, and one step."""


class Stop(Exception):  # noqa: N818 - it is not an error of ours
    """The published scaler ends the run here."""


class Loop:
    """
    A published scaler, written from what it does and in its own names.

    `settings` names what it takes; `start` sets its counts, and `_step` does one step and returns the scale. What it computes
    in float32 is rounded to float32 explicitly, and the rest is Python's float64. It uses nothing of the package.
    """

    settings = ""

    def __init__(self, *values):
        self.__dict__.update(zip(self.settings.split(), values, strict=True))
        self.start()

    def start(self):
        """Set the counts before the first step."""

    def after(self, finite):
        """Return the loop one step later, and the scale then in force; raise Stop where the scaler does. *self* is unchanged."""
        later = object.__new__(type(self))
        later.__dict__.update(self.__dict__)
        return later, later._step(finite)
