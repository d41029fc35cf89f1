"""
What a stranger writes to have an implementation tested: an `Adapter`, and what it says of itself.

An adapter is any object with these methods; it need not inherit. A handle is whatever `create` returns: the runner hands it
back and never looks inside. Level 0 wants the first three methods, level 1 the three on trees, and each method after them
the capability or level that its docstring names.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ampscale import LossScaleRule, presets
from ampscale.parsing import excerpt

LEVELS = {
    0: "rule: overflows in, scales out",
    1: "tensors: scale, unscale and all_finite, on bits",
    2: "calls: optimizers, unscale_, step and update, in every order",
    3: "cell: whole training steps, every output",
    4: "systems: ranks, host reads, compilation, another process",
}

# What may be claimed beside a level, and the lowest level whose cases ask for it.
CAPABILITIES = {
    "resume": (0, "save and load: training goes on as if it had never stopped"),
    "rounding": (0, "the scale has the bits that the rule says also where a factor is no power of two"),
    "division": (1, "unscale gives the rounded quotient also where the scale is no power of two"),
    "bfloat16": (1, "trees may hold bfloat16"),
    "complex": (1, "trees may hold complex64 and complex128"),
    "integers": (1, "trees given to all_finite may hold integers and bools"),
    "none": (1, "trees may hold None, and a parameter may have no gradient"),
    "empty": (1, "trees may hold no array at all"),
    "groups": (2, "several optimizers share one scaler"),
    "applied": (2, "step() returns whether the optimizer stepped"),
    "loss": (3, "outputs have `loss`"),
    "norm": (3, "outputs have `global_norm`"),
    "clip": (3, "create_cell takes `max_norm`"),
    "momentum": (3, "create_cell takes `momentum`"),
    "schedule": (3, "create_cell takes a list of learning rates; outputs have `learning_rate`"),
    "counters": (3, "outputs have `attempted` and `applied`"),
    "replicas": (4, "several replicas decide together"),
    "no-host-reads": (4, "a step on arrays reads nothing back to the host"),
    "jit": (4, "the same implementation, compiled"),
    "process": (4, "what was saved is loaded in another process"),
}


class Unsupported(Exception):  # noqa: N818 - it is a verdict, not an error
    """Raised by an adapter: the implementation has no such thing, or cannot be given these constants."""


@dataclass(frozen=True, kw_only=True)
class ImplementationInfo:
    """
    What an implementation says of itself.

    Args:
        name: What it is called.
        version: Its version.
        url: Where it is found.
        level: The highest level that it claims, 0 to 4: see `LEVELS`.
        capabilities: What it claims beside the level: see `CAPABILITIES`. One that the suite does not know is shown in the
            report as unsupported.
        preset: The scaler that it implements: a name of `ampscale.presets.PRESETS`, whose parameters it then takes; or a
            rule, of which it takes any `init_scale`, `growth_factor`, `backoff_factor` and `growth_interval`, and any
            `hysteresis`, `min_scale` and `max_scale` where the rule has one.
        arrays: The library of its trees: "numpy", "torch", "jax", "cupy", "paddle", "mindspore" or "tensorflow".

    Raises:
        TypeError: A value has the wrong type.
        ValueError: The level, the preset or the library is unknown.
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
        claims = self.capabilities
        if isinstance(claims, str) or not isinstance(claims, Iterable) or not all(isinstance(claim, str) for claim in claims):
            raise TypeError(f"capabilities must be several strings of {sorted(CAPABILITIES)}, got {excerpt(self.capabilities)}")
        object.__setattr__(self, "capabilities", frozenset(self.capabilities))
        object.__setattr__(self, "level", level_of(self.level))
        if not isinstance(self.preset, str | LossScaleRule):
            raise TypeError(f"preset must be a preset's name or a LossScaleRule, got {excerpt(self.preset)}")
        if isinstance(self.preset, str) and self.preset not in presets.PRESETS:
            raise ValueError(f"preset must be one of {sorted(presets.PRESETS)}, or a LossScaleRule, got {excerpt(self.preset)}")
        if self.arrays not in ARRAYS:
            raise ValueError(f"arrays must be one of {list(ARRAYS)}, got {excerpt(self.arrays)}")


ARRAYS = ("numpy", "torch", "jax", "cupy", "paddle", "mindspore", "tensorflow")


def level_of(value: object) -> int:
    """A level from 0 to 4, also written "L0" to "L4"; else a ValueError or TypeError."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise TypeError(f"level must be an int from 0 to 4, got {excerpt(value)}")
    number = value if isinstance(value, int) else {f"L{level}": level for level in LEVELS}.get(value.upper(), -1)
    if number not in LEVELS:
        raise ValueError(f"level must be from 0 to 4, got {excerpt(value)}")
    return number


class Adapter(Protocol):
    """An implementation under test. An array in a tree is one of the library that `info.arrays` names."""

    info: ImplementationInfo

    # Level 0

    def create(self, rule: LossScaleRule, **options: Any) -> Any:
        """A scaler with these constants, before its first step: a handle. `Unsupported` where it cannot be given them."""

    def update(self, handle: Any, finite: bool) -> Any:
        """The handle after a step, the same or a new one; None means the same. Raises where the published scaler gives up."""

    def read_scale(self, handle: Any) -> float:
        """The scale in force: what the next loss is multiplied by."""

    # Level 0, "resume"

    def save(self, handle: Any) -> object:
        """All that training needs to go on; a snapshot, which later steps do not change. With "process": data, no object."""

    def load(self, rule: LossScaleRule, saved: object) -> Any:
        """A handle that goes on from what was saved."""

    # Level 1: trees are lists, tuples and dicts of arrays; None as a result means that the given tree was written to

    def scale(self, handle: Any, tree: Any) -> Any:
        """The tree times the scale: each array in its own dtype, or a 16-bit one in float32."""

    def unscale(self, handle: Any, tree: Any) -> Any:
        """The tree divided by the scale, likewise, as new arrays or in place."""

    def all_finite(self, tree: Any) -> Any:
        """Bool, or a bool array of shape (): whether no element is infinite or NaN."""

    # Level 2: one iteration of a hand-written loop. The handle is changed in place; what is out of order raises

    def add_optimizer(self, handle: Any, parameters: Sequence[Any]) -> Any:
        """An optimizer over copies of these arrays, whose step subtracts the gradients: plain SGD, learning rate 1."""

    def set_gradients(self, handle: Any, optimizer: Any, gradients: Sequence[Any]) -> None:
        """Lays down scaled gradients, as a backward pass does; with "none", None for a parameter without one."""

    def get_gradients(self, handle: Any, optimizer: Any) -> Sequence[Any]:
        """The gradients as they lie there now."""

    def get_parameters(self, handle: Any, optimizer: Any) -> Sequence[Any]:
        """The parameters as they are now."""

    def unscale_(self, handle: Any, optimizer: Any) -> None:
        """Unscales the optimizer's gradients in place, and checks them."""

    def step(self, handle: Any, optimizer: Any) -> Any:
        """Unscales unless that is done, and steps if all are finite. With "applied": returns whether it stepped."""

    def update_scale(self, handle: Any) -> None:
        """Moves the scale, once for all optimizers since the last time, and closes the iteration."""

    # Level 3: a linear network, loss = sum(parameter * data), whose gradients are therefore its data; plain SGD

    def create_cell(self, rule: LossScaleRule, parameters: Sequence[Any], **options: Any) -> Any:
        """A training step over copies of these arrays. Options: learning_rate, and by capability max_norm, momentum."""

    def train_step(self, cell: Any, data: Sequence[Any]) -> Mapping[str, Any]:
        """
        One step: backward from the scaled loss, unscale, check, clip, apply or skip, update.

        Returns:
            parameters: list of arrays, after the step. finite: bool. scale: float, the one this step used. next_scale: float,
            after it. By capability: loss, global_norm, learning_rate: floats; attempted, applied: ints.
        """

    # Level 4

    def update_replicas(self, handles: Sequence[Any], finite: Sequence[bool]) -> Sequence[Any]:
        """With "replicas": each rank's handle after a step, given what each rank saw of its own gradients."""

    def step_on_arrays(self, handle: Any, tree: Any) -> tuple[Any, Any]:
        """With "no-host-reads": unscale, check and update, all on arrays. Returns the next handle and the tree."""

    def compiled(self) -> "Adapter":
        """With "jit": an adapter of the same implementation whose functions are compiled."""
