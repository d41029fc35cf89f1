"""Right implementations of level 0, each in another style and for another claim: none of them may be accused of anything."""

import pickle
import struct
from typing import NamedTuple

import numpy as np
from ampscale_conformance import ImplementationInfo

LARGEST = 2.0**127 * (2 - 2.0**-23)


def info(name, preset, *capabilities, level=0):
    return ImplementationInfo(name=name, preset=preset, capabilities=capabilities, level=level)


class ATuple:
    """Pure functions of a tuple, which holds the constants too; it is its own snapshot. Paddle's rule, without a guard."""

    info = info("a tuple", "paddle", "resume")

    def create(self, rule):
        return rule, rule.init_scale, 0, 0

    def update(self, handle, finite):
        rule, scale, good, bad = handle
        if finite:
            good += 1
            return (rule, scale * rule.growth_factor, 0, 0) if good == rule.growth_interval else (rule, scale, good, 0)
        bad += 1
        return (rule, scale * rule.backoff_factor, 0, 0) if bad == rule.hysteresis else (rule, scale, 0, bad)

    def read_scale(self, handle):
        return handle[1]

    def save(self, handle):
        return handle

    def load(self, rule, saved):
        return (rule, *saved[1:])


class Left(NamedTuple):
    """Counting down."""

    scale: np.ndarray  # float32, shape ()
    steps_left: int
    overflows_left: int


class CountsDown:
    """A NamedTuple of an array and two counts that go down to zero; saved as bytes. Megatron's rule."""

    info = info("counts down", "megatron", "resume", "rounding")

    def create(self, rule):
        return rule, Left(np.array(rule.init_scale, np.float32), rule.growth_interval, rule.hysteresis)

    def update(self, handle, finite):
        rule, (scale, steps, overflows) = handle
        if not finite:
            backed_off = np.maximum(scale * np.float32(rule.backoff_factor), np.float32(rule.min_scale))
            return rule, Left(backed_off if overflows <= 1 else scale, rule.growth_interval, overflows - 1)
        if steps > 1:
            return rule, Left(scale, steps - 1, overflows)
        with np.errstate(over="ignore"):
            return rule, Left(scale * np.float32(rule.growth_factor), rule.growth_interval, rule.hysteresis)

    def read_scale(self, handle):
        return handle[1].scale

    def save(self, handle):
        return struct.pack("<fqq", *handle[1])

    def load(self, rule, saved):
        scale, steps, overflows = struct.unpack("<fqq", saved)
        return rule, Left(np.float32(scale), steps, overflows)


class StepNumbers:
    """No counts, but the numbers of some steps. DeepSpeed's rule, which gives up at its minimum with a bare Exception."""

    info = info("step numbers", "deepspeed", "resume")

    class Scaler:
        """What changes."""

        def __init__(self, rule):
            self.rule, self.scale, self.now, self.last, self.left = rule, rule.init_scale, 0, -1, rule.hysteresis

        def update(self, overflow):
            if overflow:
                if self.left <= 1:
                    if self.scale == self.rule.min_scale and self.rule.stop_at_floor:
                        raise Exception("the scale is at its minimum")
                    self.scale = max(self.scale / 2, self.rule.min_scale)
                else:
                    self.left -= 1
                self.last = self.now
            else:
                stable = self.now - self.last - 1
                if stable > 0 and stable % self.rule.growth_interval == 0:
                    self.scale, self.left = self.scale * 2, self.rule.hysteresis
            self.now += 1

    def create(self, rule):
        return self.Scaler(rule)

    def update(self, handle, finite):
        handle.update(not finite)
        return handle

    def read_scale(self, handle):
        return handle.scale

    def save(self, handle):
        return pickle.dumps(handle.__dict__)

    def load(self, rule, saved):
        handle = self.Scaler(rule)
        handle.__dict__.update(pickle.loads(saved))
        return handle


class History:
    """Nothing is held but the steps themselves, and the scale is computed anew at each reading. TensorFlow 1.15's rule."""

    info = info("history", "tensorflow_contrib", "resume")

    def create(self, rule):
        return rule, ()

    def update(self, handle, finite):
        return handle[0], (*handle[1], finite)

    def read_scale(self, handle):
        rule, history = handle
        scale, good, bad = rule.init_scale, 0, 0
        for finite in history:
            if finite and good + 1 >= rule.growth_interval:
                grown = scale * rule.growth_factor
                scale, good, bad = grown if grown <= LARGEST else scale, 0, 0
            elif not finite and bad + 1 >= rule.hysteresis:
                scale, good, bad = max(1.0, scale * rule.backoff_factor), 0, 0
            else:
                good, bad = (good + 1, bad) if finite else (0, bad + 1)
        return scale

    def save(self, handle):
        return "".join("+" if finite else "-" for finite in handle[1])

    def load(self, rule, saved):
        return rule, tuple(sign == "+" for sign in saved)


RIGHT = (ATuple(), CountsDown(), StepNumbers(), History())
