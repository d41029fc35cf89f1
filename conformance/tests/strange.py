"""Adapters of level 0 for the tests of the command and of the pytest plug-in: a conforming one and several with a fault."""

import os
import warnings

from ampscale_conformance import ImplementationInfo
from mutants.plain import Plain


class Conforming(Plain):
    """Conforming adapter that warns, as NumPy does of overflows."""

    def __init__(self):
        super().__init__("torch", 0, ())

    def create(self, rule):
        warnings.warn("overflow encountered", stacklevel=2)
        return super().create(rule)


class Late(Conforming):
    """Adapter whose growth windows are one step too long."""

    def window(self, handle):
        return super().window(handle) + 1


class Raising(Conforming):
    MESSAGE = "broken"

    def update(self, handle, finite):
        raise RuntimeError(self.MESSAGE)


class Printing(Conforming):
    def create(self, rule):
        print("created")  # noqa: T201 - the output must not reach the report
        os.write(1, b"created by a library")
        return super().create(rule)


class Crashing(Conforming):
    def overflow_step(self, handle):
        os._exit(3)


class Bare:
    """Adapter that never grows, and whose source needs no other module."""

    info = ImplementationInfo(name="Bare")

    def create(self, rule):
        return [rule.init_scale]

    def update(self, scale, finite):
        scale[0] *= 1.0 if finite else 0.5

    def read_scale(self, scale):
        return scale[0]
