"""
The interface between an implementation under test and the suite: `Adapter`, and `ImplementationInfo`, which describes it.

An adapter is any object with these methods; it need not inherit from `Adapter`. The return value of `create` is an opaque
handle: the runner passes it back unchanged. Level 0 requires the first three methods, and level 1 also the three on trees. Each
other method is required by the capability or level that its docstring or section names.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from ampscale import LossScaleRule, presets
from ampscale.parsing import excerpt

LEVELS = {
    0: "rule: finite flags in, scales out",
    1: "tensors: scale, unscale and all_finite, bit by bit",
    2: "calls: optimizers, unscale_, step and update in every order",
    3: "cell: whole training steps with all outputs",
    4: "systems: replicas, host reads, compilation, another process",
    5: "ranks: real processes that share one scale",
}

# Optional features that an implementation can claim, each with the lowest level whose cases require it.
CAPABILITIES = {
    "resume": (0, "save and load: a loaded scaler continues as if training had never stopped"),
    "rounding": (0, "the scale has the specified bits even if a factor is not a power of two"),
    "division": (1, "unscale returns the rounded quotient even if the scale is not a power of two"),
    "float16": (1, "gradients and parameters may be float16; losses may be float16 in any case"),
    "bfloat16": (1, "trees, gradients and parameters may be bfloat16"),
    "complex": (1, "trees may contain complex64 and complex128"),
    "integers": (1, "trees passed to all_finite may contain integers and bools"),
    "none": (1, "trees may contain None, and a parameter may have no gradient"),
    "empty": (1, "trees may be empty, that is, without any array"),
    "layout": (1, "trees may contain arrays that are not contiguous, or read-only"),
    "namedtuple": (1, "trees may contain NamedTuples"),
    "groups": (2, "several optimizers share one scaler"),
    "applied": (2, "step() returns whether the optimizer stepped"),
    "loss": (3, "outputs have `loss`"),
    "norm": (3, "outputs have `global_norm`"),
    "clip": (3, "create_cell takes `max_norm`"),
    "momentum": (3, "create_cell takes `momentum`"),
    "schedule": (3, "create_cell takes a list of learning rates; outputs have `learning_rate`"),
    "counters": (3, "outputs have `attempted` and `applied`"),
    "replicas": (4, "several replicas update their scales together"),
    "stays-on-device": (4, "a step on arrays copies nothing to the host"),
    "jit": (4, "compiled() returns the same implementation with compiled functions"),
    "process": (4, "a saved state can be loaded in another process"),
    "ranks": (5, "train_on_ranks takes replicated arrays"),
    "sharded": (5, "train_on_ranks takes arrays of which each rank has a part"),
    "mixed-placements": (5, "train_on_ranks takes replicated and sharded arrays together"),
    "mixed-meshes": (5, "train_on_ranks takes arrays on device meshes with one and two dimensions"),
    "distinct": (5, "train_on_ranks takes different arrays on each rank, such as the stages of a pipeline"),
    "rank-errors": (5, "each rank raises an error that names a rank which differs or does not respond"),
}

ARRAYS = ("numpy", "torch", "jax", "cupy", "paddle", "mindspore", "tensorflow")  # libraries whose arrays the suite converts


class Unsupported(Exception):  # noqa: N818 - a verdict, not an error
    """Raised by an adapter if the implementation lacks a feature or cannot be given these constants."""


@dataclass(frozen=True, kw_only=True)
class ImplementationInfo:
    """
    Description of an implementation under test.

    Args:
        name: Name of the implementation.
        version: Version of the implementation.
        url: Address of its documentation or source.
        level: Highest level that it claims, an int from 0 to 5 or "L0" to "L5"; see `LEVELS`.
        capabilities: Optional features that it claims; see `CAPABILITIES`. In a report, an unknown one is an error.
        preset: Published scaler that it implements: a name in `ampscale.presets.PRESETS`, which determines the constants that can
            be set; or a `LossScaleRule`. With a rule, the implementation must accept any `init_scale`, `growth_factor`,
            `backoff_factor` and `growth_interval`, and any `hysteresis`, `min_scale` and `max_scale` that the rule sets.
        arrays: Library of its arrays: "numpy", "torch", "jax", "cupy", "paddle", "mindspore" or "tensorflow".

    Raises:
        TypeError: A value has the wrong type.
        ValueError: The level, the preset or the library is unknown.

    >>> info = ImplementationInfo(name="mine", level="L1", capabilities=["rounding"])
    >>> info.level, info.preset, info.arrays
    (1, 'torch', 'numpy')
    """

    name: str
    version: str = ""
    url: str = ""
    level: int = 0
    capabilities: Iterable[str] = ()
    preset: str | LossScaleRule = "torch"
    arrays: str = "numpy"

    def __post_init__(self) -> None:
        for name in ("name", "version", "url", "arrays"):
            if not isinstance(getattr(self, name), str):
                raise TypeError(f"{name} must be a str, got {excerpt(getattr(self, name))}")
        is_iterable = isinstance(self.capabilities, Iterable) and not isinstance(self.capabilities, str)
        claims = tuple(self.capabilities) if is_iterable else ()  # read once, since it may be an iterator
        if not is_iterable or not all(isinstance(claim, str) for claim in claims):
            raise TypeError(f"capabilities must be a list of strings such as 'resume', got {excerpt(self.capabilities)}")
        object.__setattr__(self, "capabilities", frozenset(claims))
        object.__setattr__(self, "level", level_of(self.level))
        if not isinstance(self.preset, str | LossScaleRule):
            raise TypeError(f"preset must be a preset's name or a LossScaleRule, got {excerpt(self.preset)}")
        if isinstance(self.preset, str) and self.preset not in presets.PRESETS:
            raise ValueError(f"preset must be one of {sorted(presets.PRESETS)}, or a LossScaleRule, got {excerpt(self.preset)}")
        if self.arrays not in ARRAYS:
            raise ValueError(f"arrays must be one of {list(ARRAYS)}, got {excerpt(self.arrays)}")


def level_of(value: object) -> int:
    """Return a level, given as an int from 0 to 5 or as "L0" to "L5"; raise a TypeError or ValueError for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise TypeError(f'level must be an int from 0 to {max(LEVELS)}, or "L0" to "L{max(LEVELS)}", got {excerpt(value)}')
    names = {f"L{level}": level for level in LEVELS}
    level = names.get(value.upper()) if isinstance(value, str) else value
    if level not in LEVELS:
        raise ValueError(f'level must be an int from 0 to {max(LEVELS)}, or "L0" to "L{max(LEVELS)}", got {excerpt(value)}')
    return level


def parse_level(text: str) -> int:
    """Return a level from a command line: "0" to "5", or "L0" to "L5"."""
    return level_of(int(text) if text.isdecimal() else text)


class Adapter(Protocol):
    """
    Implementation under test. The arrays in a tree belong to the library in `info.arrays`.

    The methods of optimizers and cells change the handle in place. A call out of order, such as a second `unscale_` before
    `update_scale`, raises an error.
    """

    info: ImplementationInfo

    # Level 0

    def create(self, rule: LossScaleRule, **options: Any) -> Any:
        """
        Return a handle of a new scaler with these constants; raise `Unsupported` if the implementation does not support them.

        The suite passes no options.
        """

    def update(self, handle: Any, finite: bool) -> Any:
        """Return the handle after a step, or None for the same handle. Raise an error if the published scaler does."""

    def read_scale(self, handle: Any) -> float:
        """Return the current scale: the factor for the next loss."""

    # Level 0, "resume"

    def save(self, handle: Any) -> object:
        """Return a snapshot of the full state, which later steps do not change. The capability "process" requires plain data."""

    def load(self, rule: LossScaleRule, saved: object) -> Any:
        """
        Return a handle that continues from a saved state.

        If *rule* is not the one with which the scaler was created, the constants of either may apply, or an error be raised.
        """

    # Level 1: trees are lists, tuples and dicts of arrays. Returning None means that the argument was changed in place.

    def scale(self, handle: Any, tree: Any) -> Any:
        """Return the tree times the scale. Each array keeps its dtype; a 16-bit one may become float32."""

    def unscale(self, handle: Any, tree: Any) -> Any:
        """Return the tree divided by the scale, with dtypes as in `scale`."""

    def all_finite(self, tree: Any) -> Any:
        """Return a bool, or a bool array of shape (): True if the tree contains no infinity and no NaN."""

    # Level 2: one iteration of a hand-written loop

    def add_optimizer(self, handle: Any, parameters: Sequence[Any]) -> Any:
        """Return an optimizer over copies of these arrays: plain SGD with learning rate 1."""

    def set_gradients(self, handle: Any, optimizer: Any, gradients: Sequence[Any]) -> None:
        """Store scaled gradients as a backward pass does; with "none", a parameter without a gradient has None."""

    def get_gradients(self, handle: Any, optimizer: Any) -> Sequence[Any]:
        """Return the current gradients, with None for a missing one. The suite compares them before a step without overflow."""

    def get_parameters(self, handle: Any, optimizer: Any) -> Sequence[Any]:
        """Return the current parameters."""

    def unscale_(self, handle: Any, optimizer: Any) -> None:
        """Unscale the gradients of the optimizer in place, and store whether they are finite: the flag of this iteration."""

    def step(self, handle: Any, optimizer: Any) -> Any:
        """
        Unscale and check the gradients unless `unscale_` has done so, and step if that check found them finite.

        With "applied", return True if the optimizer stepped.
        """

    def update_scale(self, handle: Any) -> None:
        """
        Update the scale once for all optimizers unscaled since the last update, and end the iteration.

        Raise an error if the published scaler does; the iteration may then remain open.
        """

    # Level 3

    def create_cell(self, rule: LossScaleRule, parameters: Sequence[Any], **options: Any) -> Any:
        """
        Return a training step over copies of these arrays: plain SGD on a linear network with loss = sum(parameter * data).

        Options:
            learning_rate: A float; with "schedule" also a list, with at least one rate for each applied step.
            max_norm: With "clip": gradients are multiplied by min(1, max_norm / norm). An epsilon of up to 1e-6 is permitted in
                the divisor.
            momentum: With "momentum": velocity = momentum * velocity + gradient; parameter -= learning_rate * velocity. Also
                permitted: velocity = momentum * velocity + learning_rate * gradient; parameter -= velocity.
        """

    def train_step(self, cell: Any, data: Sequence[Any]) -> Mapping[str, Any]:
        """
        Run one step: backward pass from the scaled loss, unscale, check, clip, apply or skip, update.

        *data* has an array for each parameter, which is the gradient of the loss before scaling. With "none", an item is None if
        the loss does not depend on the parameter, which then has no gradient; raise `Unsupported` if it would be zero.

        If the published scaler raises an error, raise one, or skip the step and keep the scale.

        Returns:
            Outputs by name. parameters: list of arrays after the step. finite: bool. scale: float, used by this step. next_scale:
            float, for the next step. Others require a capability. loss, learning_rate: floats. global_norm: float, before
            clipping, compared in finite steps and, with "clip", only if there is a max_norm. attempted, applied: ints.
        """

    # Level 4

    def update_replicas(self, handles: Sequence[Any], finite: Sequence[bool]) -> Sequence[Any]:
        """With "replicas": return the handle of each replica after a step, given each replica's flag of its own gradients."""

    def step_on_arrays(self, handle: Any, tree: Any) -> tuple[Any, Any]:
        """With "stays-on-device": unscale, check and update on arrays alone. Return the next handle and the unscaled tree."""

    def compiled(self) -> "Adapter":
        """With "jit": return an adapter of the same implementation with compiled functions."""

    # Level 5

    def train_on_ranks(
        self,
        rule: LossScaleRule,
        placements: Sequence[str],
        steps: Sequence[Sequence[Sequence[float | None]]],
        optimizers: int,
        **options: Any,
    ) -> Sequence[Sequence[tuple[float, bool]]]:
        """
        With "ranks": train in a process for each rank, which share one scale; `on_ranks` runs a function in processes.

        Args:
            rule: Constants of the scaler.
            placements: Placement of each array. "replicated": each rank has the whole array, and the gradients are averaged.
                "reduced": each rank has the whole array, and *steps* has its gradients after averaging, of which one can differ
                because of a fault. "sharded": each rank has a part. "grid": each rank has a part, on a mesh of 2 by 2 ranks.
                "half": ranks 0 and 1 have one part, and ranks 2 and 3 the other. "distinct": each rank has an array of its own.
            steps: For each step and rank, the value of all elements of each array's gradient on that rank, before it is
                scaled: 1.0, an infinity, NaN, or None if the rank has no such elements in the whole run. With "resume", in a
                step without ranks, all ranks save their state and continue with a scaler that loaded it.
            optimizers: Number of optimizers. Array number n belongs to optimizer number n modulo this number.
            options: They require "rank-errors". growth_interval, elements (the sizes of the array), scale (loaded before the last
                step, as from a saved state) and, with "clip", max_norm: lists with a value for each rank. time_limit: seconds
                to wait for another rank. late: a rank that begins the last step three seconds after the time limit. returns:
                True to return a result even if the last step raises an error.

        Returns:
            For each rank and step, the scale after the step, even if it raised an error, and True if an optimizer of the rank
            stepped.

        Raises:
            RuntimeError: With "rank-errors": ranks raised an error. The text is "rank 0: ERROR; rank 1: ERROR", as in `on_ranks`.
        """


class Method(NamedTuple):
    """
    Argument kinds, result kind, and required level or capability of a method; they determine how calls are recorded and sent.

    Kinds: `rule`; `finite`, a bool; `number`, a float; `tree`, of arrays; `arrays`, a list that may contain None; `options` and
    `outputs`, dicts of numbers, bools, lists and arrays; `flag`, a bool or a bool array of shape (); `flag or null`; `flags`,
    bools; `nothing`; and those of `Adapter.train_on_ranks`: `placements`, `steps`, `optimizers` and its result, `ranks`.
    Opaque kinds: `handle`, `optimizer`, `cell` and `adapter`, which are sent as numbers, and `saved`, which is sent as JSON or,
    if it is not plain data, as a number. `handles` is a list of handles, and `handle and tree` a pair.
    """

    takes: tuple[str, ...]
    gives: str
    needs: int | str


RANKS_SECONDS = 120.0  # least time limit of a call of train_on_ranks and of its case, since the call starts processes
OPAQUE = ("handle", "optimizer", "cell", "saved", "adapter")  # only the implementation can interpret these objects

METHODS = {
    "create": Method(("rule", "options"), "handle", 0),
    "update": Method(("handle", "finite"), "handle", 0),
    "read_scale": Method(("handle",), "number", 0),
    "save": Method(("handle",), "saved", "resume"),
    "load": Method(("rule", "saved"), "handle", "resume"),
    "scale": Method(("handle", "tree"), "tree", 1),
    "unscale": Method(("handle", "tree"), "tree", 1),
    "all_finite": Method(("tree",), "flag", 1),
    "add_optimizer": Method(("handle", "arrays"), "optimizer", 2),
    "set_gradients": Method(("handle", "optimizer", "arrays"), "nothing", 2),
    "get_gradients": Method(("handle", "optimizer"), "arrays", 2),
    "get_parameters": Method(("handle", "optimizer"), "arrays", 2),
    "unscale_": Method(("handle", "optimizer"), "nothing", 2),
    "step": Method(("handle", "optimizer"), "flag or null", 2),
    "update_scale": Method(("handle",), "nothing", 2),
    "create_cell": Method(("rule", "arrays", "options"), "cell", 3),
    "train_step": Method(("cell", "arrays"), "outputs", 3),
    "update_replicas": Method(("handles", "flags"), "handles", "replicas"),
    "step_on_arrays": Method(("handle", "tree"), "handle and tree", "stays-on-device"),
    "compiled": Method((), "adapter", "jit"),
    "train_on_ranks": Method(("rule", "placements", "steps", "optimizers", "options"), "ranks", "ranks"),
}
