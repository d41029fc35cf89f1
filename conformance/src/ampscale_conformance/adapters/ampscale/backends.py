"""ampscale itself: the functional core, one adapter for each library that has a backend of its own."""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from importlib import import_module
from operator import add, and_
from threading import Barrier
from typing import Any

import numpy as np

import ampscale
from ampscale import LossScaleRule

from ...model.adapter import ImplementationInfo, Unsupported
from ..base import lacking

# A rule that has every constant which a case may set.
EVERY_CONSTANT = LossScaleRule(2.0**10, hysteresis=2, min_scale=2.0**-20, max_scale=2.0**40)
CAPABILITIES = (
    *("resume", "rounding", "division", "process", "bfloat16", "complex", "integers", "none", "empty"),
    *("loss", "norm", "clip", "momentum", "schedule", "counters", "replicas", "no-host-reads"),
)
COMPILERS = {"jax", "torch"}


def info_of(name: str, preset: str | LossScaleRule, level: int, claims: Iterable[str], **more: str) -> ImplementationInfo:
    """Return the `ImplementationInfo` of an adapter of ampscale; *more* overrides its members."""
    name, version = f"ampscale {name}", ampscale.__version__
    return ImplementationInfo(name=name, version=version, preset=preset, level=level, capabilities=claims, **more)


class Core:
    """
    `LossScaleRule`, the verbs and `train_step` on the arrays of one library.

    Args:
        arrays: The library.
        preset: A rule, or the name of a preset.
        compiles: Whether all of it is compiled first.
    """

    add_optimizer = update_scale = lacking("the core has no scaler that holds optimizers")

    def __init__(self, arrays: str, preset: str | LossScaleRule = EVERY_CONSTANT, *, compiles: bool = False) -> None:
        jit = ["jit"] if arrays in COMPILERS and not compiles else []
        self.info = info_of(f"on {arrays}", preset, 4, (*CAPABILITIES, *jit), arrays=arrays)
        self._compiles = compiles

    # Level 0: a handle is a rule and a state

    def create(self, rule: LossScaleRule) -> Any:
        """Raise `Unsupported` if the rule needs a float64 that JAX has only with jax_enable_x64."""
        with ampscale.use_backend(self.info.arrays):
            try:
                return rule, rule.init()
            except TypeError as error:
                raise Unsupported(str(error)) from None

    def update(self, handle: Any, finite: bool) -> Any:
        """Raises where the published scaler gives up; `update` itself only holds the state."""
        rule, state = handle
        if bool(rule.would_raise(state, finite)):
            raise FloatingPointError("the published scaler gives up here")
        with ampscale.use_backend(self.info.arrays) as xp:
            return rule, self._ready(rule.update)(state, xp.asarray(finite))

    def read_scale(self, handle: Any) -> float:
        """Read on the host."""
        return float(handle[1].scale)

    def save(self, handle: Any) -> Any:
        """The state in Python's numbers."""
        return [None if value is None else value.item() for value in handle[1]]

    def load(self, rule: LossScaleRule, saved: Any) -> Any:
        """As arrays again, like those of a state of this rule."""
        _, fresh = self.create(rule)
        with ampscale.use_backend(self.info.arrays) as xp:
            pairs = zip(fresh, saved, strict=True)
            return rule, type(fresh)(*(None if new is None else xp.asarray(value, dtype=new.dtype) for new, value in pairs))

    # Level 1

    def scale(self, handle: Any, tree: Any) -> Any:
        """The verb."""
        return self._ready(ampscale.scale)(tree, handle[1].scale)

    def unscale(self, handle: Any, tree: Any) -> Any:
        """The verb."""
        return self._ready(ampscale.unscale)(tree, handle[1].scale)

    def all_finite(self, tree: Any) -> Any:
        """The verb."""
        return self._ready(ampscale.all_finite)(tree)

    # Level 3: a cell is a step, and the state that it has come to

    def create_cell(self, rule: LossScaleRule, parameters: Sequence[Any], max_norm: float | None = None, **options: Any) -> Any:
        """With one of `ampscale.optimizers`."""
        self.create(rule)  # Unsupported where it is
        network, optimizer = trained(parameters, self.info.arrays, **options)
        state = ampscale.init_train_state(network.params, optimizer, rule)

        def step(state: Any, data: list[Any]) -> Any:
            return ampscale.train_step(network, optimizer, rule, state, *data, max_norm=max_norm)

        return {"step": self._ready(step), "state": state}

    def train_step(self, cell: Any, data: Sequence[Any]) -> dict[str, Any]:
        """Its report, as it is. Without `max_norm` it takes no norm."""
        cell["state"], report = cell["step"](cell["state"], list(data))
        names = ("finite", "loss", "scale", "next_scale", "learning_rate", "global_norm")
        told = {name: value for name in names if (value := getattr(report, name)) is not None}
        state = cell["state"]
        return {"parameters": state.params, "attempted": state.attempted, "applied": state.applied, **told}

    # Level 4

    def update_replicas(self, handles: Sequence[Any], finite: Sequence[bool]) -> list[Any]:
        """A whole step on each rank, a thread: its gradient is finite, or not."""
        if len(handles) != len(finite):
            raise ValueError(f"finite must have one flag for each of the {len(handles)} handles, got {len(finite)}")
        barrier, slots = Barrier(len(handles), timeout=20), [None] * len(handles)
        ranks = [Rank(at, barrier, slots) for at in range(len(handles))]
        with ThreadPoolExecutor(len(handles)) as pool:
            return list(pool.map(self._stepped, handles, finite, ranks))

    def step_on_arrays(self, handle: Any, tree: Any) -> tuple[Any, Any]:
        """Nothing is read."""
        rule, state = handle

        def step(state: Any, tree: Any) -> Any:
            unscaled, finite = ampscale.unscale_and_check(tree, state.scale)
            return rule.update(state, finite), unscaled

        after, unscaled = self._ready(step)(state, tree)
        return (rule, after), unscaled

    def compiled(self) -> "Core":
        """By `jax.jit`, or by `torch.compile` in one graph."""
        return Core(self.info.arrays, self.info.preset, compiles=True)

    def _ready(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, compiled if this adapter is."""
        if not self._compiles:
            return function
        library: Any = import_module(self.info.arrays)
        if self.info.arrays == "jax":
            return library.jit(function)  # type: ignore[no-any-return]
        return library.compile(function, fullgraph=True, backend=BACKEND)  # type: ignore[no-any-return]

    def _stepped(self, handle: Any, finite: bool, communicator: Any) -> Any:
        rule, state = handle
        with ampscale.use_backend(self.info.arrays) as xp:
            parameters, data = [xp.zeros(1)], [xp.asarray([1.0 if finite else xp.inf])]
        network = linear(parameters, self.info.arrays)
        optimizer = ampscale.optimizers.SGD(network, 1.0)
        before = ampscale.init_train_state(network.params, optimizer, rule)._replace(scaler=state)
        after, _ = ampscale.train_step(network, optimizer, rule, before, *data, communicator=communicator)
        return rule, after.scaler


BACKEND = "aot_eager"  # traces as every backend of torch.compile, and wants no C++ compiler


class Rank:
    """One of several ranks, which share a slot for each, and wait for one another at every call."""

    def __init__(self, index: int, barrier: Barrier, slots: list[Any]) -> None:
        self._index, self._barrier, self._slots = index, barrier, slots

    def mean(self, tree: Any) -> Any:
        """Of flat lists, added in the order of the ranks."""
        return [sum(leaves[1:], start=leaves[0]) / len(leaves) for leaves in zip(*self._everyone(tree), strict=True)]

    def all_finite(self, flag: Any) -> Any:
        """True where it is on every rank."""
        return reduce(and_, self._everyone(flag))

    def _everyone(self, mine: Any) -> list[Any]:
        self._slots[self._index] = mine
        self._barrier.wait()
        everyone = list(self._slots)
        self._barrier.wait()
        return everyone


def linear(parameters: list[Any], arrays: str) -> Any:
    """The network whose loss is sum(parameter * data) in float32; NumPy, which does not differentiate, is told how."""
    with ampscale.use_backend(arrays) as xp:
        pass

    def loss_of(params: Any, *data: Any) -> Any:
        products = [xp.astype(param, xp.float32) * xp.astype(leaf, xp.float32) for param, leaf in zip(params, data, strict=True)]
        return reduce(add, map(xp.sum, products))

    def vjp(params: Any, *data: Any) -> Any:
        def pullback(seed: Any) -> Any:
            with np.errstate(all="ignore"):
                return [(leaf.astype(np.float32) * seed).astype(param.dtype) for param, leaf in zip(params, data, strict=True)]

        with np.errstate(all="ignore"):
            return loss_of(params, *data), pullback

    return ampscale.Network(loss_of, parameters, vjp=vjp if arrays == "numpy" else None)


def trained(parameters: Sequence[Any], arrays: str, learning_rate: Any, momentum: float = 0.0) -> tuple[Any, Any]:
    """The linear network, and one of `ampscale.optimizers` over it."""
    network = linear(list(parameters), arrays)
    return network, ampscale.optimizers.Momentum(network, learning_rate, momentum)


def outputs(network: Any, scale: float, loss: Any, overflow: Any, next_scale: Any, rate: Any) -> dict[str, Any]:
    """Return the outputs of a step by their names."""
    return {
        "parameters": list(network.params),
        "finite": not bool(overflow),
        "scale": scale,
        "next_scale": next_scale,
        "loss": loss,
        "learning_rate": rate,
    }


NUMPY = Core("numpy")
TORCH = Core("torch")
JAX = Core("jax")
CUPY = Core("cupy")
ADAPTER = NUMPY
