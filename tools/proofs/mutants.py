"""
Wrong transitions, and one wrong product. Each breaks at least one theorem, and at least one of them breaks each theorem, so that
no theorem is true of every transition. Most are bugs of published scalers or of ports of these scalers.
"""

from typing import Any

from .machine import Rule, State, Step, Term


class GrowsOneStepLate(Step):
    """The count must exceed the interval."""

    def grows(self) -> Term:
        return self.logic.And(super().grows(), self.state.good + 1 > self.rule.growth_interval)


class GrowsOnOverflow(Step):
    """A full window grows even on an overflow."""

    def grows(self) -> Term:
        return self.state.good + 1 >= self.rule.growth_interval


class GrowsAtEqualityOnly(Step):
    """A count above the interval does not grow."""

    def grows(self) -> Term:
        return self.logic.And(super().grows(), self.state.good + 1 == self.rule.growth_interval)


class GrowsAtTheUpperBound(Step):
    """A bound does not block a growth."""

    def grows(self) -> Term:
        return self.logic.And(self.finite, self.state.good + 1 >= self.rule.growth_interval)


class EveryOverflowBacksOff(Step):
    """The hysteresis has no effect."""

    def due(self) -> Term:
        return self.logic.Not(self.finite)


class BacksOffOneOverflowLate(Step):
    """The count must exceed the hysteresis."""

    def due(self) -> Term:
        return self.logic.And(super().due(), self.state.bad >= self.rule.hysteresis)


class ShareAlwaysDecides(Step):
    """The share of overflows decides without an overflow tolerance, too."""

    def due(self) -> Term:
        return self.logic.And(self.logic.Not(self.finite), self.share_reached)


class NoLowerBound(Step):
    """A backoff does not clamp the scale at `min_scale`."""

    def backed_off(self) -> Term:
        return self.products.backed_off


class NoUpperBound(Step):
    """A growth does not clamp the scale at `max_scale`."""

    def grown(self) -> Term:
        product = self.products.grown
        return self.logic.If(self.logic.And(self.rule.skip_infinite_growth, product > self.rule.top), self.state.pending, product)


class InfiniteGrowth(Step):
    """A growth to infinity is never skipped."""

    def grown(self) -> Term:
        clamps = self.logic.And(self.rule.has_max, self.products.grown > self.rule.max_scale)
        return self.logic.If(clamps, self.rule.max_scale, self.products.grown)


class AlwaysSkipsInfiniteGrowth(Step):
    """A growth to infinity is skipped although the rule allows it."""

    def grown(self) -> Term:
        return self.logic.If(self.products.grown > self.rule.top, self.state.pending, super().grown())


class InfiniteGrowthBacksOff(Step):
    """A growth to infinity lowers the scale instead of raising it."""

    def grown(self) -> Term:
        return self.logic.If(self.products.grown > self.rule.top, self.products.backed_off, super().grown())


class GrowsBeyondInfinity(Step):
    """A growth from infinity gives a position above that of infinity, which is not the position of a scale."""

    def grown(self) -> Term:
        return self.logic.If(self.state.pending > self.rule.top, self.rule.top + 2, super().grown())


class NoGrowthAfterOverflows(Step):
    """A growth with counted overflows leaves the scale unchanged."""

    def grown(self) -> Term:
        return self.logic.If(self.state.bad > 0, self.state.pending, super().grown())


class BackoffSubtracts(Step):
    """A backoff lowers the product by one position, even with a factor of 1."""

    def backed_off(self) -> Term:
        return self.products.backed_off - 1


class LeavesInfinity(Step):
    """A backoff from infinity gives the largest number."""

    def backed_off(self) -> Term:
        return self.logic.If(self.state.pending > self.rule.top, self.rule.top, super().backed_off())


class GrowthKeepsCounting(Step):
    """A growth does not restart the window."""

    def good(self) -> Term:
        return self.logic.If(self.finite, self.state.good + 1, super().good())


class OverflowKeepsTheWindow(Step):
    """An overflow that does not back off leaves the count of finite steps unchanged."""

    def good(self) -> Term:
        keeps = self.logic.Not(self.logic.Or(self.finite, self.due()))
        return self.logic.If(keeps, self.state.good, super().good())


class FiniteStepsPause(Step):
    """A finite step is not counted while overflows are counted."""

    def good(self) -> Term:
        waits = self.logic.And(self.finite, self.state.bad > 0, self.logic.Not(self.grows()))
        return self.logic.If(waits, self.state.good, super().good())


class FiniteStepsReset(Step):
    """A finite step always resets the overflow count."""

    def bad(self) -> Term:
        return self.logic.If(self.finite, 0, super().bad())


class FiniteStepsNeverReset(Step):
    """Only a growth or a backoff resets the overflow count."""

    def bad(self) -> Term:
        return self.logic.If(self.logic.And(self.finite, self.logic.Not(self.grows())), self.state.bad, super().bad())


class BackoffKeepsCounting(Step):
    """A backoff does not limit the overflow count."""

    def bad(self) -> Term:
        return self.logic.If(self.finite, super().bad(), self.state.bad + 1)


class GrowthAloneResetsTheShare(Step):
    """A growth resets the count of all steps, but not the count of overflows."""

    def bad(self) -> Term:
        return self.logic.If(self.grows(), self.state.bad, super().bad())


class RaisesOnFiniteSteps(Step):
    """The scale is checked after every step."""

    def raises(self, new_scale: Term) -> Term:
        below = self.logic.And(self.rule.has_raise_at_or_below, new_scale <= self.rule.raise_at_or_below)
        return self.logic.Or(super().raises(new_scale), below)


class NeverDelays(Step):
    """The new scale is in force at once."""

    def result(self) -> tuple[State, Term]:
        new, raises = super().result()
        return new._replace(scale=new.pending), raises


class AlwaysDelays(Step):
    """Every change is delayed."""

    def result(self) -> tuple[State, Term]:
        new, raises = super().result()
        return new._replace(scale=self.logic.If(raises, self.state.scale, self.state.pending)), raises


STEPS = [cls for cls in Step.__subclasses__() if cls.__module__ == __name__]


def unlimited_shift(logic: Any, rule: Rule, position: Term, steps: Term) -> Term:  # noqa: ARG001
    """Return a product that passes infinity and zero."""
    return position + steps
