"""Base class of published scalers that are written as plain loops: settings, counts, and one step."""


class ScalerError(Exception):
    """Error that the published scaler raises in this step."""


class Loop:
    """
    Published scaler, written from its source code and with its own names, independent of ampscale.

    `settings` names its settings; `start` sets scale and counts, and `_step` runs one step and returns the scale. Values that the
    scaler computes in float32 are rounded to float32 explicitly; others are Python floats.
    """

    settings = ""

    def __init__(self, *values):
        self.__dict__.update(zip(self.settings.split(), values, strict=True))
        self.start()

    def start(self):
        """Set the scale and the counts before the first step."""

    def after(self, finite):
        """Return a copy of the loop after one step, and its scale. Raise ScalerError if the scaler raises an error."""
        copy = object.__new__(type(self))
        copy.__dict__.update(self.__dict__)
        return copy, copy._step(finite)
