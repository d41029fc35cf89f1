"""Conforming implementations of level 1 in several styles; the suite must fail none of them. See `STYLES` and `Jax`."""

from functools import partial

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from ampscale_conformance.model.adapter import ImplementationInfo
from ampscale_conformance.model.bits import map_tree

TREES = ("none", "empty")
WITHOUT_DIVISION = ("rounding", "float16", "bfloat16", "namedtuple", "complex", "integers", *TREES)
FLOATS = {np.dtype(name) for name in ("float16", "float32", "float64")} | {np.dtype(ml_dtypes.bfloat16)}


class Core:
    """Style that uses ampscale's rule; a handle is a rule and a state. Subclasses override the operations on one array."""

    arrays = "numpy"
    capabilities = ("division", "layout", *WITHOUT_DIVISION)

    def __init__(self, preset="torch"):
        name = type(self).__name__
        self.info = ImplementationInfo(name=name, level=1, capabilities=self.capabilities, preset=preset, arrays=self.arrays)

    def create(self, rule):
        return rule, rule.init()

    def update(self, handle, finite):
        rule, state = handle
        return rule, rule.update(state, finite)

    def read_scale(self, handle):
        return float(handle[1].scale)

    def scale(self, handle, tree):
        return self.map_leaves(partial(self.product, scale=self.read_scale(handle)), tree)

    def unscale(self, handle, tree):
        return self.map_leaves(partial(self.quotient, scale=self.read_scale(handle)), tree)

    def all_finite(self, tree):
        flags = []
        self.map_leaves(lambda leaf: flags.append(self.is_finite(leaf)), tree)
        return all(flags)

    map_leaves = staticmethod(map_tree)

    def product(self, leaf, scale):
        return (leaf.astype(self.compute_dtype(leaf)) * scale).astype(leaf.dtype)

    def quotient(self, leaf, scale):
        return (leaf.astype(self.compute_dtype(leaf)) / scale).astype(leaf.dtype)

    def is_finite(self, leaf):
        return np.isfinite(leaf).all()  # a NumPy bool

    def compute_dtype(self, leaf):
        return np.float32 if leaf.dtype.itemsize == 2 else leaf.dtype


class InPlace(Core):
    """Style that writes the gradients in place and returns None; its flag is an array of shape ()."""

    capabilities = ("division", *WITHOUT_DIVISION)

    def quotient(self, leaf, scale):
        leaf[...] = super().quotient(leaf, scale)

    def unscale(self, handle, tree):
        super().unscale(handle, tree)

    def all_finite(self, tree):
        return np.asarray(super().all_finite(tree))


class Widening(Core):
    """Style that returns 16-bit arrays as float32, and dicts with sorted keys."""

    def map_leaves(self, function, tree):
        return super().map_leaves(function, dict(sorted(tree.items())) if isinstance(tree, dict) else tree)

    def product(self, leaf, scale):
        return leaf.astype(self.compute_dtype(leaf)) * scale

    def quotient(self, leaf, scale):
        return leaf.astype(self.compute_dtype(leaf)) / scale


class Reciprocal(Core):
    """Style that multiplies by the reciprocal of the scale, rounded to float32; does not claim "division"."""

    capabilities = WITHOUT_DIVISION

    def quotient(self, leaf, scale):
        return (leaf.astype(self.compute_dtype(leaf)) * np.float32(1 / scale)).astype(leaf.dtype)


class Float16Arithmetic(Core):
    """Style that computes in float16, as an accelerator does, if the scale is a float16 of at most 2**15."""

    def fits(self, leaf, scale):
        return leaf.dtype == np.float16 and scale <= 2.0**15 and float(np.float16(scale)) == scale

    def product(self, leaf, scale):
        return leaf * np.float16(scale) if self.fits(leaf, scale) else super().product(leaf, scale)

    def quotient(self, leaf, scale):
        return leaf / np.float16(scale) if self.fits(leaf, scale) else super().quotient(leaf, scale)


class InFloat64(Core):
    """Style that computes in float64 and rounds once; compares with the largest finite value of the dtype."""

    def compute_dtype(self, leaf):
        return np.complex128 if leaf.dtype.kind == "c" else np.float64

    def is_finite(self, leaf):
        components = np.array(leaf, order="C").reshape(-1).view(leaf.real.dtype) if leaf.dtype.kind == "c" else leaf
        return bool(np.all(abs(components) <= ml_dtypes.finfo(components.dtype).max)) if components.dtype in FLOATS else True


class Jax(Core):
    """Style that applies jax.tree.map eagerly; the scale is an array of shape (), which widens 16-bit arrays."""

    arrays = "jax"
    capabilities = WITHOUT_DIVISION  # XLA turns some divisions into multiplications
    map_leaves = staticmethod(jax.tree.map)

    def product(self, leaf, scale):
        return leaf * jnp.float32(scale)

    def quotient(self, leaf, scale):
        return leaf / jnp.float32(scale)

    def all_finite(self, tree):
        return jnp.all(jnp.asarray([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(tree)]))


STYLES = (Core, InPlace, Widening, Reciprocal, Float16Arithmetic, InFloat64)
