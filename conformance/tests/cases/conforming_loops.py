"""Right implementations of levels 2 to 4, each in another style: none of them may be accused of anything."""

import math
from collections import Counter
from typing import NamedTuple

import numpy as np
from ampscale_conformance import ImplementationInfo, Unsupported

LOOP = ("groups", "none", "applied")
CELL = ("loss", "norm", "clip", "momentum", "schedule", "counters")


def info(name, level, *capabilities, **more):
    return ImplementationInfo(name=name, level=level, capabilities=capabilities, **more)


class NoCalls:
    """For whoever has a step and no optimizers: level 2 is not there."""

    def add_optimizer(self, *_):
        raise Unsupported("there are no optimizers to call")

    update_scale = set_gradients = get_gradients = get_parameters = unscale_ = step = add_optimizer


class TheObject:
    """Python floats in one object, NumPy written in place; gradients are multiplied by the reciprocal. Torch's rule."""

    info = info("the object", 3, *LOOP, "loss", "norm", "clip")

    def create(self, rule):
        return {"rule": rule, "scale": rule.init_scale, "tracker": 0, "found": {}, "stage": Counter()}

    def update(self, handle, finite):
        handle["tracker"] = handle["tracker"] + 1 if finite else 0
        handle["scale"] *= 1.0 if finite else handle["rule"].backoff_factor
        if handle["tracker"] == handle["rule"].growth_interval:
            handle["scale"], handle["tracker"] = handle["scale"] * handle["rule"].growth_factor, 0

    def read_scale(self, handle):
        return np.float64(handle["scale"])

    def add_optimizer(self, handle, parameters):
        return {"parameters": [np.array(parameter) for parameter in parameters], "gradients": [None] * len(parameters)}

    def set_gradients(self, handle, optimizer, gradients):
        optimizer["gradients"] = [None if gradient is None else np.array(gradient) for gradient in gradients]

    def get_gradients(self, handle, optimizer):
        return tuple(optimizer["gradients"])

    def get_parameters(self, handle, optimizer):
        return tuple(optimizer["parameters"])

    def unscale_(self, handle, optimizer):
        assert not handle["stage"][id(optimizer)], "unscale_() comes once"
        handle["stage"][id(optimizer)] = 1
        gradients = [gradient for gradient in optimizer["gradients"] if gradient is not None]
        found = any(not np.isfinite(gradient).all() for gradient in gradients)
        with np.errstate(all="ignore"):
            for gradient in gradients:
                gradient *= np.float32(1 / handle["scale"])
        found = found or any(not np.isfinite(gradient).all() for gradient in gradients)
        handle["found"][id(optimizer)] = found if gradients else None

    def step(self, handle, optimizer):
        assert handle["stage"][id(optimizer)] < 2, "step() comes once"
        if not handle["stage"][id(optimizer)]:
            self.unscale_(handle, optimizer)
        handle["stage"][id(optimizer)] = 2
        steps = handle["found"][id(optimizer)] is False
        for parameter, gradient in zip(optimizer["parameters"], optimizer["gradients"], strict=True):
            if steps and gradient is not None:
                parameter -= gradient
        return np.asarray(steps)

    def update_scale(self, handle):
        assert handle["stage"], "update() comes last"
        flags = [found for found in handle["found"].values() if found is not None]
        if flags:
            self.update(handle, not any(flags))
        handle["found"], handle["stage"] = {}, Counter()

    def create_cell(self, rule, parameters, learning_rate, max_norm=math.inf):
        handle = self.create(rule)
        return {"handle": handle, "optimizer": self.add_optimizer(handle, parameters), "rate": learning_rate, "limit": max_norm}

    def train_step(self, cell, data):
        """Clips as torch does: by limit / (norm + 1e-6), held to 1."""
        handle, optimizer, scale = cell["handle"], cell["optimizer"], cell["handle"]["scale"]
        with np.errstate(all="ignore"):
            loss = sum((parameter * values).sum() for parameter, values in zip(optimizer["parameters"], data, strict=True))
            scaled = [(values.astype(np.float32) * np.float32(scale)).astype(values.dtype) for values in data]
        self.set_gradients(handle, optimizer, scaled)
        self.unscale_(handle, optimizer)
        with np.errstate(all="ignore"):
            norm = math.hypot(*(float(element) for gradient in optimizer["gradients"] for element in gradient.ravel()))
            coefficient = min(1.0, cell["limit"] / (norm + 1e-6)) if cell["limit"] < math.inf else 1.0
            for gradient in optimizer["gradients"]:
                gradient *= gradient.dtype.type(coefficient * cell["rate"])
        applied = self.step(handle, optimizer)
        self.update_scale(handle)
        return {
            "parameters": tuple(parameter.copy() for parameter in optimizer["parameters"]),
            "finite": applied,
            "scale": scale,
            "next_scale": handle["scale"],
            "loss": np.float32(loss),
            "global_norm": np.asarray(norm),
        }


class State(NamedTuple):
    """All of a functional run."""

    parameters: tuple
    velocities: tuple
    scale: float
    good: int
    bad: int
    applied: int
    attempted: int


class TheFunctionalCell(NoCalls):
    """A pure step over a NamedTuple; the cell is a box for it. DeepSpeed's rule without its patience, optax's clipping."""

    info = info("the functional cell", 3, *CELL, preset="deepspeed_fp16_optimizer")
    create = NoCalls.add_optimizer

    def create_cell(self, rule, parameters, learning_rate, max_norm=None, momentum=0.0):
        rates = learning_rate if isinstance(learning_rate, list) else [learning_rate]
        zeros = tuple(np.zeros_like(parameter) for parameter in parameters)
        state = State(tuple(parameters), zeros, rule.init_scale, rule.growth_offset, 0, 0, 0)
        return [(rule, rates, max_norm, momentum), state]

    def train_step(self, cell, data):
        constants, before = cell
        with np.errstate(all="ignore"):
            cell[1], told = self.stepped(*constants, before, data)
        return {**told, "parameters": list(cell[1].parameters), "scale": before.scale, "next_scale": cell[1].scale}

    def stepped(self, rule, rates, max_norm, momentum, state, data):
        scaled = [(values * np.float64(state.scale)).astype(values.dtype) for values in data]
        gradients = [(values / np.float64(state.scale)).astype(np.float32) for values in scaled]
        finite = all(bool(np.isfinite(gradient).all()) for gradient in gradients)
        norm = float(np.sqrt(sum((gradient.astype(np.float64) ** 2).sum() for gradient in gradients)))
        if max_norm is not None and norm >= max_norm:
            gradients = [(gradient / norm * max_norm).astype(np.float32) for gradient in gradients]
        rate = rates[min(state.applied, len(rates) - 1)]
        loss = sum((parameter * values).sum() for parameter, values in zip(state.parameters, data, strict=True))
        after = self.applied(momentum, rate, state, gradients) if finite else state
        after = after._replace(attempted=state.attempted + 1, **self.moved(rule, state, finite))
        told = {"loss": loss, "global_norm": norm, "learning_rate": rate, "finite": np.bool_(finite)}
        return after, {**told, "attempted": after.attempted, "applied": after.applied}

    def applied(self, momentum, rate, state, gradients):
        velocities = tuple(momentum * v + g for v, g in zip(state.velocities, gradients, strict=True))
        moved = tuple((p - rate * v).astype(p.dtype) for p, v in zip(state.parameters, velocities, strict=True))
        return state._replace(parameters=moved, velocities=velocities, applied=state.applied + 1)

    def moved(self, rule, state, finite):
        if not finite:
            return {"scale": max(state.scale / 2, rule.min_scale), "good": -1}
        grows = state.good + 1 >= rule.growth_interval
        return {"scale": state.scale * 2 if grows else state.scale, "good": 0 if grows else state.good + 1}


class TheArrays(NoCalls):
    """A rule of three lines on JAX: new handles each time, jitted or not, nothing read; ranks as one array of flags."""

    info = info("the arrays", 4, "ranks", "no-host-reads", "jit", "none", preset="jmp", arrays="jax")
    jitted = False

    def compiled(self):
        return TheArraysCompiled()

    def through(self, function, *arguments):
        return function(*arguments)

    def create(self, rule):
        import jax.numpy as jnp

        return {
            "scale": jnp.float32(rule.init_scale),
            "good": jnp.int32(0),
            "floor": jnp.float32(rule.min_scale),
            "window": jnp.int32(rule.growth_interval),
            "factor": jnp.float32(rule.growth_factor),
        }

    def update(self, handle, finite):
        import jax.numpy as jnp

        return self.through(moved, handle, jnp.asarray(finite))

    def read_scale(self, handle):
        return handle["scale"]

    def scale(self, handle, tree):
        import jax

        return jax.tree.map(lambda leaf: (leaf * handle["scale"]).astype(leaf.dtype), tree)

    def unscale(self, handle, tree):
        return self.through(divided, handle, tree)

    def all_finite(self, tree):
        return self.through(finite_in, tree)

    def update_ranks(self, handles, finite):
        import jax.numpy as jnp

        flag = jnp.all(jnp.asarray(finite))
        return tuple(moved(handle, flag) for handle in handles)

    def step_on_arrays(self, handle, tree):
        return self.through(stepped, handle, tree)

    def create_cell(self, rule, parameters, **options):
        raise Unsupported("there is no cell")


class TheArraysCompiled(TheArrays):
    """The same, all of it jitted."""

    def through(self, function, *arguments):
        import jax

        return jax.jit(function)(*arguments)


def moved(handle, finite):
    import jax.numpy as jnp

    grows = finite & (handle["good"] + 1 >= handle["window"])
    grown = handle["scale"] * handle["factor"]
    grown = jnp.where(jnp.isfinite(grown), grown, handle["scale"])
    reduced = jnp.maximum(handle["scale"] / handle["factor"], handle["floor"])
    scale = jnp.where(finite, jnp.where(grows, grown, handle["scale"]), reduced)
    return {**handle, "scale": scale, "good": jnp.where(finite & ~grows, handle["good"] + 1, 0)}


def divided(handle, tree):
    import jax

    return jax.tree.map(lambda leaf: (leaf.astype("float32") / handle["scale"]).astype(leaf.dtype), tree)


def finite_in(tree):
    import jax
    import jax.numpy as jnp

    return jnp.all(jnp.asarray([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(tree)]))


def stepped(handle, tree):
    unscaled = divided(handle, tree)
    return moved(handle, finite_in([tree, unscaled])), unscaled


RIGHT = (TheObject, TheFunctionalCell, TheArrays)
