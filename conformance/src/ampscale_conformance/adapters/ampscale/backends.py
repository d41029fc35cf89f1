"""Adapters of ampscale's functional core, one for each library with its own backend."""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, reduce
from importlib import import_module
from operator import add, and_
from threading import Barrier
from types import SimpleNamespace
from typing import Any

import numpy as np

import ampscale
from ampscale import LossScaleRule
from ampscale.distributed import Agreement

from ...model.adapter import ImplementationInfo, Unsupported
from ..base import unavailable

# A rule with all constants that cases can set.
EVERY_CONSTANT = LossScaleRule(2.0**10, hysteresis=2, min_scale=2.0**-20, max_scale=2.0**40)
CAPABILITIES = (
    *("resume", "rounding", "division", "process", "float16", "bfloat16", "complex", "integers", "none", "empty", "layout"),
    *("namedtuple", "loss", "norm", "clip", "momentum", "schedule", "counters", "replicas", "stays-on-device"),
)
COMPILERS = {"jax", "torch"}
EXPLICIT = {"numpy", "cupy"}  # libraries whose network has an explicit vjp
DYNAMO_BACKEND = "aot_eager"  # traces like every backend of torch.compile, but requires no C++ compiler


def info_of(name: str, preset: str | LossScaleRule, level: int, claims: Iterable[str], **more: str) -> ImplementationInfo:
    """Return the `ImplementationInfo` of an adapter of ampscale; *more* sets other members."""
    name, version = f"ampscale {name}", ampscale.__version__
    return ImplementationInfo(name=name, version=version, preset=preset, level=level, capabilities=claims, **more)


@cache
def step_of(rule: LossScaleRule) -> Callable[..., Any]:
    def step(state: Any, tree: Any) -> Any:
        unscaled, finite = ampscale.unscale_and_check(tree, state.scale)
        return rule.update(state, finite), unscaled

    return step


@cache
def compiled_by(library: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function, compiled once; a second compilation would take longer than most cases."""
    module: Any = import_module(library)
    if library == "jax":
        return module.jit(function)  # type: ignore[no-any-return]
    return module.compile(function, fullgraph=True, backend=DYNAMO_BACKEND)  # type: ignore[no-any-return]


@cache
def flag_of(library: str, finite: bool) -> Any:
    """Return *finite* as a bool array of shape () of the library."""
    with ampscale.use_backend(library) as xp:
        return xp.asarray(finite)


threads = cache(ThreadPoolExecutor)  # one pool for each number of replicas: starting threads takes longer than a step


class Core:
    """`LossScaleRule`, the array functions and `train_step` on the arrays of one library; compiled if *compiles* is True."""

    add_optimizer = update_scale = unavailable("the core has no scaler with optimizers")

    def __init__(self, arrays: str, preset: str | LossScaleRule = EVERY_CONSTANT, *, compiles: bool = False) -> None:
        jit = ["jit"] if arrays in COMPILERS and not compiles else []
        self.info = info_of(f"on {arrays}", preset, 4, (*CAPABILITIES, *jit), arrays=arrays)
        self._compiles = compiles

    # Level 0: a handle is a rule and a state.

    def create(self, rule: LossScaleRule) -> Any:
        """Raise `Unsupported` if the rule requires float64, which JAX has only with jax_enable_x64."""
        with ampscale.use_backend(self.info.arrays):
            try:
                return rule, rule.init()
            except TypeError as error:
                raise Unsupported(str(error)) from None

    def update(self, handle: Any, finite: bool) -> Any:
        """Update the state; raise an error if the published scaler does, which `LossScaleRule.update` does not."""
        rule, state = handle
        new_state, raises = self._ready(rule.transition)(state, flag_of(self.info.arrays, finite))
        if bool(raises):
            raise FloatingPointError("the published scaler raises an error in this step")
        return rule, new_state

    def read_scale(self, handle: Any) -> float:
        return float(handle[1].scale)

    def save(self, handle: Any) -> Any:
        return [None if value is None else value.item() for value in handle[1]]

    def load(self, rule: LossScaleRule, saved: Any) -> Any:
        _, new_state = self.create(rule)
        with ampscale.use_backend(self.info.arrays) as xp:
            pairs = zip(new_state, saved, strict=True)
            arrays = (None if array is None else xp.asarray(value, dtype=array.dtype) for array, value in pairs)
            return rule, type(new_state)(*arrays)

    # Level 1

    def scale(self, handle: Any, tree: Any) -> Any:
        return self._ready(ampscale.scale)(tree, handle[1].scale)

    def unscale(self, handle: Any, tree: Any) -> Any:
        return self._ready(ampscale.unscale)(tree, handle[1].scale)

    def all_finite(self, tree: Any) -> Any:
        return self._ready(ampscale.all_finite)(tree)

    # Level 3: a cell is a step function and its current state.

    def create_cell(self, rule: LossScaleRule, parameters: Sequence[Any], max_norm: float | None = None, **options: Any) -> Any:
        self.create(rule)  # raises Unsupported for some rules
        network, optimizer = network_with_optimizer(parameters, self.info.arrays, **options)
        state = ampscale.init_train_state(network.params, optimizer, rule)

        def step(state: Any, data: list[Any]) -> Any:
            return ampscale.train_step(network, optimizer, rule, state, *data, max_norm=max_norm)

        return {"step": self._ready(step), "state": state}

    def train_step(self, cell: Any, data: Sequence[Any]) -> dict[str, Any]:
        """Run one step and return its outputs, which include the norm only if there is a `max_norm`."""
        if any(leaf is None for leaf in data) and self.info.arrays not in EXPLICIT:
            raise Unsupported("the library's gradient of a parameter that the loss does not depend on is zero")
        cell["state"], report = cell["step"](cell["state"], list(data))
        names = ("finite", "loss", "scale", "next_scale", "learning_rate", "global_norm")
        values = {name: value for name in names if (value := getattr(report, name)) is not None}
        state = cell["state"]
        return {"parameters": state.params, "attempted": state.attempted, "applied": state.applied, **values}

    # Level 4

    def update_replicas(self, handles: Sequence[Any], finite: Sequence[bool]) -> list[Any]:
        """Run a training step of each replica in a thread, with a gradient that is finite or not."""
        if len(handles) != len(finite):
            raise ValueError(f"finite must have one flag for each of the {len(handles)} handles, got {len(finite)}")
        barrier, sent = Barrier(len(handles), timeout=20), [list[Any]() for _ in handles]
        replicas = [Replica(rank, barrier, sent) for rank in range(len(handles))]
        return list(threads(len(handles)).map(self._stepped, handles, finite, replicas))

    def step_on_arrays(self, handle: Any, tree: Any) -> tuple[Any, Any]:
        rule, state = handle
        new_state, unscaled = self._ready(step_of(rule))(state, tree)
        return (rule, new_state), unscaled

    def compiled(self) -> "Core":
        """Return the adapter with functions compiled by `jax.jit`, or by `torch.compile` as one graph."""
        return Core(self.info.arrays, self.info.preset, compiles=True)

    def _ready(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return compiled_by(self.info.arrays, function) if self._compiles else function

    def _stepped(self, handle: Any, finite: bool, communicator: Any) -> Any:
        rule, state = handle
        network, optimizer, start, data = training_of(self.info.arrays)
        train_state = start._replace(scaler=state)
        train_state, _ = ampscale.train_step(network, optimizer, rule, train_state, data[finite], communicator=communicator)
        return rule, train_state.scaler


class Replica:
    """Communicator of one replica. Replicas run in threads, meet at a barrier, and send values by appending to a list each."""

    def __init__(self, rank: int, barrier: Barrier, sent: list[list[Any]]) -> None:
        self._own, self._barrier, self._sent = sent[rank], barrier, sent

    def mean(self, tree: Any) -> Any:
        """Return the mean over the replicas of each item of a flat list; the items are added in rank order."""
        return [sum(leaves[1:], start=leaves[0]) / len(leaves) for leaves in zip(*self._gathered(tree), strict=True)]

    def agree(self, finite: Any, scale: Any, gradients: Any, *, norm: bool = False) -> Agreement:
        """Return an agreement that is finite if the flag is True on every replica."""
        return Agreement(reduce(and_, self._gathered(finite)), has_gradients=True)

    def check_same(self, **settings: Any) -> None:
        """Do nothing: all replicas have the same rule."""

    def _gathered(self, value: Any) -> list[Any]:
        self._own.append(value)
        self._barrier.wait()
        return [values[len(self._own) - 1] for values in self._sent]


def linear(parameters: list[Any], arrays: str) -> Any:
    """Return the network with loss sum(parameter * data) in float32, with an explicit vjp for NumPy and CuPy."""
    with ampscale.use_backend(arrays) as xp:
        pass  # the namespace stays valid after the context

    def loss_of(params: Any, *data: Any) -> Any:
        pairs = [(param, leaf) for param, leaf in zip(params, data, strict=True) if leaf is not None]
        products = [xp.astype(param, xp.float32) * xp.astype(leaf, xp.float32) for param, leaf in pairs]
        return reduce(add, map(xp.sum, products)) if products else xp.zeros(())

    def vjp(params: Any, *data: Any) -> Any:
        def pullback(seed: Any) -> Any:
            with np.errstate(all="ignore"):
                # NumPy makes a scalar of a 0-d array.
                scaled = [leaf if leaf is None else xp.asarray(xp.astype(leaf, xp.float32) * seed) for leaf in data]
                pairs = zip(params, scaled, strict=True)
                return [leaf if leaf is None else xp.astype(leaf, param.dtype) for param, leaf in pairs]

        with np.errstate(all="ignore"):
            return loss_of(params, *data), pullback

    return ampscale.Network(loss_of, parameters, vjp=vjp if arrays in EXPLICIT else None)


def network_with_optimizer(values: Sequence[Any], arrays: str, learning_rate: Any, momentum: float = 0.0) -> tuple[Any, Any]:
    """Return the linear network with these parameters, and its optimizer."""
    network = linear(list(values), arrays)
    return network, ampscale.optimizers.Momentum(network, learning_rate, momentum)


@cache
def training_of(library: str) -> tuple[Any, Any, Any, dict[bool, Any]]:
    """Return a network of one parameter, an optimizer without state, the initial state, and a dict from a flag to its data."""
    with ampscale.use_backend(library) as xp:
        network = linear([xp.zeros(1)], library)
        optimizer = SimpleNamespace(init=lambda _: (), update=lambda gradients, state, _: (gradients, state))
        data = {finite: xp.asarray([1.0 if finite else xp.inf]) for finite in (True, False)}
        return network, optimizer, ampscale.init_train_state(network.params, optimizer, EVERY_CONSTANT), data


NUMPY = Core("numpy")
TORCH = Core("torch")
JAX = Core("jax")
CUPY = Core("cupy")
