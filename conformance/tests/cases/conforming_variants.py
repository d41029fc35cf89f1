"""Right implementations of level 0 whose rule has what few others have: a lag, a gate, a share, a beginning, or no move."""

import numpy as np
from cases.conforming_machine import info


class Late:
    """What comes next is kept beside what is in force. MXNet's rule."""

    info = info("late", "mxnet", "resume")

    def create(self, rule):
        return {"rule": rule, "now": rule.init_scale, "next": rule.init_scale, "good": 0}

    def update(self, handle, finite):
        rule, now, good = handle["rule"], handle["next"], handle["good"] + 1
        scale = now
        if not finite:
            scale, good = now / 2, 0
        elif good == rule.growth_interval:
            scale, good = min(rule.max_scale, now * 2), 0
        return {"rule": rule, "now": now, "next": scale, "good": good}

    def read_scale(self, handle):
        return handle["now"]

    def save(self, handle):
        return handle["now"], handle["next"], handle["good"]

    def load(self, rule, saved):
        return {"rule": rule} | dict(zip(("now", "next", "good"), saved, strict=True))


class Gated:
    """Bounds that are asked before the move. BMTrain's rule."""

    info = info("gated", "bmtrain", "resume", "rounding")

    def create(self, rule):
        return [rule, rule.init_scale, 0]

    def update(self, handle, finite):
        rule, scale, good = handle
        if not finite:
            if scale > rule.min_scale:
                handle[1:] = scale / rule.growth_factor, 0
        elif good + 1 >= rule.growth_interval and (rule.max_scale is None or scale < rule.max_scale):
            handle[1:] = scale * rule.growth_factor, 0
        else:
            handle[2] += 1

    def read_scale(self, handle):
        return handle[1]

    def save(self, handle):
        return handle[1:]

    def load(self, rule, saved):
        return [rule, *saved]


class Tolerant:
    """Steps since the last change, and overflows among them. Fairseq's rule, which gives up with a FloatingPointError."""

    info = info("tolerant", "fairseq_tolerance", "resume")

    def create(self, rule):
        return {"rule": rule, "scale": rule.init_scale, "step": 0, "overflowed": -1, "moved": -1, "overflows": 0}

    def update(self, handle, finite):
        rule, step, scale = handle["rule"], handle["step"], handle["scale"]
        if finite:
            if (step - handle["overflowed"]) % rule.growth_interval == 0:
                handle |= {"scale": scale * rule.growth_factor, "moved": step}
        else:
            overflows = handle["overflows"] + 1
            if overflows / (step - handle["moved"]) >= rule.rate:
                scale, overflows = max(scale / rule.growth_factor, rule.min_scale or 0.0), 0
                if scale <= rule.stop_below:
                    raise FloatingPointError("the scale is at its limit")
                handle["moved"] = step
            elif scale <= rule.stop_below:
                raise FloatingPointError("the scale is at its limit")
            handle |= {"scale": scale, "overflows": overflows, "overflowed": step}
        handle["step"] = step + 1

    def read_scale(self, handle):
        return handle["scale"]

    def save(self, handle):
        return {name: value for name, value in handle.items() if name != "rule"}

    def load(self, rule, saved):
        return {"rule": rule, **saved}


class Climbing:
    """Doubles until its first overflow, and then grows a little at every finite step. Chainer's rule."""

    info = info("climbing", "chainer", "resume", "rounding")

    def create(self, rule):
        return rule, rule.init_scale, False

    def update(self, handle, finite):
        rule, scale, seen = handle
        factor = rule.backoff_factor if not finite else rule.growth_factor if seen else rule.first_growth_factor
        return rule, min(max(scale * factor, 1.0), 65504.0), seen or not finite

    def read_scale(self, handle):
        return handle[1]

    def save(self, handle):
        return handle[1:]

    def load(self, rule, saved):
        return (rule, *saved)


class Static:
    """A number, which nothing moves."""

    info = info("static", "static", "resume", "rounding")

    def create(self, rule):
        return np.float32(rule.init_scale)

    def update(self, handle, finite):
        return handle

    def read_scale(self, handle):
        return handle.item()

    def save(self, handle):
        return handle

    def load(self, rule, saved):
        return saved


RIGHT_DIALECTS = (Late(), Gated(), Tolerant(), Climbing(), Static())
