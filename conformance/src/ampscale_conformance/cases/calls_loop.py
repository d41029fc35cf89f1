"""Hand-written training loop over an implementation, next to the oracle's loop; after each call its effects are compared."""

import math
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import count, cycle, islice
from typing import Any

from ..model.adapter import Unsupported
from ..model.bits import Bits, map_tree
from ..model.floats import is_power_of_two, rounded
from ..model.subject import Raised, Subject
from ..oracle import calls, tensors
from ..oracle.tensors import array, numbers
from .machine_lockstep import LARGEST
from .scaling_trees import check_products

SIMPLE = {"growth_factor": 2.0, "backoff_factor": 0.5, "hysteresis": 1}
Shape = tuple[int, ...]
# Shapes of each optimizer's parameters. Some are equal, some sizes are odd, and g has more than one launch of a kernel takes.
SHAPES: dict[str, tuple[Shape, ...]] = {"a": ((2,), (), (2,)), "d": ((2,), (), (2,)), "e": ((130,), (130,))}
SHAPES |= {"b": ((), (3, 3), (3, 1, 3)), "c": ((7,), (7,), (0, 3), (1,), (7,)), "f": ((0,), (0, 3)), "g": (*[()] * 130, (1100,))}
SHAPES |= {"i": ((1,),), "j": ((3,), (3,), (3,))}
SHAPES |= {"h": ((17,), (), (2,), (1,), (), (11,))}  # in ten steps "-+", overflows are in its elements 0, 8, 16, 24 and 32
FINITE = (1.0, -2.0, 0.5, 3.0, 0.0, -0.25, 1 + 2.0**-11)  # gradients; their number is prime, so each element takes each value
SPECIAL = {
    "inf": (math.inf, math.nan, -math.inf),
    "wide": (2.0**60, 2.0**-60, -(2.0**60), -0.0, 1 + 2.0**-20),
    "long": (1 + 2.0**-40,),
    "tie": (183 * 2.0**-14,),  # divided by 61 * 2**11, halfway between two float16 numbers
    "huge": (2.0**127, -(2.0**127)),  # infinite when multiplied by a scale above 1, or divided by one below 1
}
ON_TREES = ("scale", "unscale", "all_finite")  # calls that affect no later call
EVERYWHERE = {"zero": (0.0, -0.0), "large": (LARGEST,)}  # the sum of two large ones is infinite
# Values of float16 arrays instead of those: subnormal, infinite when divided by a scale below 1, and the largest one
NARROW = {2.0**-60: 3 * 2.0**-24, 2.0**127: 1.5 * 2.0**15, -(2.0**127): -1.5 * 2.0**15, LARGEST: 65504.0}


def simple_rule(subject: Subject, **settings: Any) -> Any:
    """Return the supported rule with these settings and, where they can be set, factors of 2 and 0.5 and a hysteresis of 1."""
    return subject.rule(**{name: value for name, value in SIMPLE.items() if name in subject.supported.parameters} | settings)


def is_static(rule: Any) -> bool:
    """Return True if the scale never changes."""
    return bool(rule.growth_factor == rule.backoff_factor == 1)


def needs_finite(scale: float) -> None:
    """Raise Unsupported for a scale that is infinite in float32, by which no gradient can be divided."""
    if scale > LARGEST:
        raise Unsupported(f"the scale is {scale!r}, which is infinite in float32")


def needs_power_of_two(scale: float, subject: Subject | None = None) -> None:
    """Raise Unsupported if the scale is infinite in float32, or is not a power of two and *subject* does not claim division."""
    needs_finite(scale)
    if not is_power_of_two(scale) and (subject is None or "division" not in subject.info.capabilities):
        raise Unsupported(f"the scale is {scale!r}, and the expected values are exact only for powers of two")


def new_parameters(shapes: Sequence[Shape], dtype: str = "float32", factor: float = 1.0, other: float = 7.0) -> list[Bits]:
    """
    Return parameters of these shapes, times *factor*; if there are more than five elements, *other* is among them.

    *dtype* can name two dtypes, which alternate: "float16,float32".
    """
    values = cycle(factor * value for value in (8.0, -4.0, 0.0, 6.0, 2.0, other))
    pairs = zip(cycle(dtype.split(",")), shapes, strict=False)
    return [array(dtype, list(islice(values, math.prod(shape))), shape) for dtype, shape in pairs]


@lru_cache(4096)
def new_gradients(shapes: Sequence[Shape], kind: str, number: int, dtype: str = "float32") -> list[Bits | None]:
    """Return gradients, or None, of a kind that `calls.py` describes, or of kinds joined by "+". *number* varies the values."""
    if kind == "none":
        return [None] * len(shapes)
    table = EVERYWHERE.get(kind, FINITE)
    values = [table[(number + index) % len(table)] for index in range(sum(map(math.prod, shapes)))]
    for part in kind.split("+"):
        if not values or part not in SPECIAL:
            continue
        specials = SPECIAL[part]
        index, turn = 37 * number % len(values), number // len(values)  # each index occurs once in a turn
        values[-1 if "last" in kind else index] = specials[(number + turn) % len(specials)]
        if "two" in kind:
            values[index - len(values) // 2] = specials[(number + turn + 1) % len(specials)]
    remaining, gradients = iter(values), list[Bits | None]()
    for item, shape in zip(cycle(dtype.split(",")), shapes, strict=False):
        elements = list(islice(remaining, math.prod(shape)))
        if item == "float16":
            elements = [NARROW.get(element, element) for element in elements]
        gradients.append(array(item, elements, shape))
    if "some" in kind:
        gradients[number % len(shapes)] = None
    return gradients


def _factor(kind: str, scale: float, narrow: bool) -> float:
    """Return the factor that scales gradients of this kind."""
    # Steps with unscaled float16 gradients would be rounded if the scale is above 1.
    if "tie" in kind or ("huge" in kind and (scale < 1 or not narrow)):
        return 1.0
    if kind == "large":
        return min(scale, 1.0)
    return min(scale, 2.0**14) if narrow else scale


class Loop:
    """
    Training loop. Its parameters and gradients have a dtype, or two; *start* determines the first gradients.

    Optimizers of the same shapes are created with the same arrays, which they must copy. *shared* has these arrays by their
    shapes, to which missing ones are added; several loops can use one dict.
    """

    def __init__(
        self,
        subject: Subject,
        rule: Any,
        returns_applied: bool,
        dtype: str,
        start: int = 0,
        factor: float = 1,
        shared: Any = None,
    ) -> None:
        self.shared = {} if shared is None else shared
        self.subject, self.rule, self.returns_applied, self.dtype = subject, rule, returns_applied, dtype
        self.factor = factor  # of the parameters; with -1, one is -0.0
        self.oracle = calls.Loop(rule, {})
        self.handle = subject.create(rule)
        self.optimizers: dict[str, Any] = {}
        self.gradients: dict[str, list[Bits | None]] = {}  # expected; if any values are permitted, the last actual ones
        self._numbers = count(start)

    def execute(self, command: str, when: str) -> None:
        """Execute one command of a script, as `calls.py` describes it. After a call, compare the scale and the arrays."""
        action, _, name = command.partition("/")
        action, _, kind = action.partition(":")
        name = name or "a"
        if action == "save":  # like pickling torch's scaler, saving may raise an error within an iteration
            self.subject.raises("save", self.handle)
        elif action == "load":
            self.reload()
        elif action in ("set", "edit"):
            self.set_gradients(name, kind, edits=action == "edit")
        elif action in ON_TREES:
            with suppress(Unsupported):
                self.call_on_tree(action)
        else:
            self.call(action, [] if action == "update" else [name], when, kind == "unread")

    def reload(self) -> None:
        """Continue with a scaler that loads the saved state, and add the optimizers to it again."""
        self.handle = self.subject.call("load", self.rule, self.subject.call("save", self.handle))
        names, self.optimizers, self.gradients = [*self.optimizers], {}, {}
        self.oracle.optimizers.clear()
        for name in names:
            self.add_optimizer(name)

    def call_on_tree(self, method: str) -> None:
        """Call one of the methods `ON_TREES` with an array that is not a gradient."""
        needs_finite(self.oracle.scale)
        tree = [array("float32", [1.0, math.inf])]
        if method == "all_finite":
            self.subject.all_finite(tree)
        else:
            check_products(self.subject, self.handle, method, self.oracle.scale, tree, ulps=1)

    def add_optimizer(self, name: str) -> None:
        """Add an optimizer to both loops, unless it was added before."""
        if name not in self.optimizers:
            parameters = new_parameters(SHAPES[name], self.dtype, self.factor, other=math.nan)
            self.oracle.optimizers[name] = calls.Optimizer(parameters)
            arrays = self.shared.setdefault(SHAPES[name], self.subject.to_arrays(parameters))
            self.optimizers[name] = self.subject.call("add_optimizer", self.handle, arrays)

    def set_gradients(self, name: str, kind: str, edits: bool) -> None:
        """Set gradients in both loops: unscaled ones if *edits* is True, else scaled ones. A new optimizer is added first."""
        self.add_optimizer(name)
        scale, narrow = self.oracle.scale, "float16" in self.dtype
        values = [abs(float(value)) for leaf in self.oracle.optimizers[name].parameters for value in numbers(leaf)]
        largest = max(filter(math.isfinite, values), default=0.0)
        if narrow and (scale > 2.0**17 or largest > 2.0**9):  # an optimizer may keep its parameters in float32
            sizes = f"a scale of {scale!r} and parameters up to {largest!r}"
            raise Unsupported(f"float16 would round the updated parameters, with {sizes}")
        needs_power_of_two(1.0 if edits else scale, self.subject)
        factor = 1.0 if edits else _factor(kind, scale, narrow)
        unscaled = new_gradients(SHAPES[name], kind, next(self._numbers), self.dtype)
        gradients = map_tree(lambda leaf: tensors.scale(leaf, factor), unscaled)
        self.oracle.set_gradients(name, gradients)
        self.gradients[name] = gradients
        self.subject.call("set_gradients", self.handle, self.optimizers[name], self.subject.to_arrays(gradients))

    def call(self, action: str, names: list[str], when: str, unread: bool) -> None:
        """Make a call. If it is out of order, it must raise an error and change nothing. *unread*: do not read the scale."""
        method = "update_scale" if action == "update" else action
        optimizers = [self.optimizers[name] for name in names]
        try:
            expected = getattr(self.oracle, action)(*names)
        except calls.Rejected:
            if is_static(self.rule):
                raise Unsupported("the scale is static, so step may end the iteration: CALLS-fixed") from None
            raised = self.subject.raises(method, self.handle, *optimizers)
            self.subject.expect(raised, f"{when}: expected {method} to raise an error, got none")
            self.compare(when, names or [*self.gradients])
            return
        if action == "update" and not expected:
            self.expect_error(when)
            return
        result = self.subject.call(method, self.handle, *optimizers)
        current = [self.oracle.optimizers[name] for name in names]
        if action == "step" and self.returns_applied and current[0].has_gradients:
            applied = self.subject.flag(result, "step")
            self.subject.expect(applied == expected, f"{when}: expected step to return {expected}, got {applied}")
        self.gradients |= {name: optimizer.gradients for name, optimizer in zip(names, current, strict=True)}
        self.compare(when, names or [*self.gradients], action != "unscale_" or not current[0].finite, unread)

    def expect_error(self, when: str) -> None:
        """Update the scale, which must raise the error of the published scaler and change nothing, and continue from a copy."""
        raised = self.subject.raises("update_scale", self.handle)
        self.subject.expect(raised, f"{when}: expected update_scale to raise an error, got none")
        self.compare(when, [*self.gradients], any_gradients=True)
        if "resume" not in self.subject.info.capabilities:
            raise Unsupported("continuing after the error of the published scaler requires resume: the iteration may be open")
        try:
            self.execute("load", when)
        except Raised as error:  # an open iteration may not be saved
            raise Unsupported(str(error)) from None

    def compare(self, when: str, names: Iterable[str], any_gradients: bool = False, unread: bool = False) -> None:
        """
        Compare the scale, parameters and gradients.

        If *any_gradients* is True, compare only which gradients are None. If *unread* is True, the scale is read only if the
        oracle permits several scales.
        """
        if not unread or self.oracle.is_ambiguous:
            scale = rounded(self.subject.read_scale(self.handle), self.rule.dtype)
            self.oracle.observe(scale)
            expected = self.oracle.scale
            self.subject.expect(scale == expected, f"{when}: expected scale {expected!r}, got {scale!r}")
        for name in names:
            of_optimizer = f" of optimizer {name}" if len(self.optimizers) > 1 else ""
            parameters = self.current("parameters", name)
            self.subject.expect_same(parameters, self.oracle.optimizers[name].parameters, f"{when}: parameters{of_optimizer}")
            gradients = self.current("gradients", name)
            if any_gradients:  # but None stays None
                pairs = zip(self.gradients[name], gradients, strict=False)
                self.gradients[name] = [None if leaf is None else value for leaf, value in pairs]
            self.subject.expect_same(gradients, self.gradients[name], f"{when}: gradients{of_optimizer}")

    def current(self, attribute: str, name: str) -> Any:
        """Return the actual "parameters" or "gradients" of an optimizer."""
        values = self.subject.call(f"get_{attribute}", self.handle, self.optimizers[name])
        return self.subject.to_bits(values, f"get_{attribute}")
