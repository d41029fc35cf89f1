"""Right implementations of level 1 in many manners, none of which the suite may accuse: see `STYLES`."""

from functools import partial

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import torch
from ampscale_conformance.model.adapter import ImplementationInfo
from torch.utils import _pytree as pytree

import ampscale

TREES = ("none", "empty")
WITHOUT_DIVISION = ("rounding", "bfloat16", "complex", "integers", *TREES)
FLOATS = {np.dtype(name) for name in ("float16", "float32", "float64")} | {np.dtype(ml_dtypes.bfloat16)}
MASKS = {"float16": 0x7C00, "bfloat16": 0x7F80, "float32": 0x7F800000, "float64": 0x7FF0000000000000}


class Core:
    """Level 0, by the package's own rule; a handle is a rule and a state. A style fills in one array at a time."""

    arrays = "numpy"
    claims = ("division", *WITHOUT_DIVISION)

    def __init__(self, preset="torch"):
        name = type(self).__name__
        self.info = ImplementationInfo(name=name, level=1, capabilities=self.claims, preset=preset, arrays=self.arrays)

    def create(self, rule):
        return rule, rule.init()

    def update(self, handle, finite):
        rule, state = handle
        return rule, rule.update(state, finite)

    def read_scale(self, handle):
        return float(handle[1].scale)

    def scale(self, handle, tree):
        return self.mapped(partial(self.product, scale=self.read_scale(handle)), tree)

    def unscale(self, handle, tree):
        return self.mapped(partial(self.quotient, scale=self.read_scale(handle)), tree)

    def all_finite(self, tree):
        flags = []
        self.mapped(lambda leaf: flags.append(self.is_finite(leaf)), tree)
        return all(flags)

    def mapped(self, function, tree):
        if isinstance(tree, dict):
            return {key: self.mapped(function, child) for key, child in tree.items()}
        if isinstance(tree, list | tuple):
            return type(tree)(self.mapped(function, child) for child in tree)
        return None if tree is None else function(tree)

    def product(self, leaf, scale):
        return (leaf.astype(self.wide(leaf)) * scale).astype(leaf.dtype)

    def quotient(self, leaf, scale):
        return (leaf.astype(self.wide(leaf)) / scale).astype(leaf.dtype)

    def is_finite(self, leaf):
        return np.isfinite(leaf).all()  # a NumPy bool

    def wide(self, leaf):
        return np.float32 if leaf.dtype.itemsize == 2 else leaf.dtype


class InPlace(Core):
    """Gradients are written to, and nothing is returned; so is a flag, into an array of shape ()."""

    def quotient(self, leaf, scale):
        leaf[...] = super().quotient(leaf, scale)

    def unscale(self, handle, tree):
        super().unscale(handle, tree)

    def all_finite(self, tree):
        return np.asarray(super().all_finite(tree))


class InPlaceAndReturned(Core):
    """Gradients are written to, and the same tree is returned."""

    def unscale(self, handle, tree):
        self.mapped(lambda leaf: np.copyto(leaf, self.quotient(leaf, self.read_scale(handle))), tree)
        return tree


class Tuples(Core):
    """Every list comes back as a tuple."""

    def mapped(self, function, tree):
        return tuple(self.mapped(function, child) for child in tree) if isinstance(tree, list) else super().mapped(function, tree)


class Lists(Core):
    """Every tuple comes back as a list; results are read-only."""

    def mapped(self, function, tree):
        return [self.mapped(function, child) for child in tree] if isinstance(tree, tuple) else super().mapped(function, tree)

    def quotient(self, leaf, scale):
        result = np.asarray(super().quotient(leaf, scale))
        result.setflags(write=False)
        return result


class Widening(Core):
    """16-bit arrays come back as float32; keys come back sorted."""

    def mapped(self, function, tree):
        return super().mapped(function, dict(sorted(tree.items())) if isinstance(tree, dict) else tree)

    def product(self, leaf, scale):
        return leaf.astype(self.wide(leaf)) * scale

    def quotient(self, leaf, scale):
        return leaf.astype(self.wide(leaf)) / scale


class WideningGradients(Core):
    """Gradients come back as float32, losses do not; the scale is an array of shape (), and results of that shape are scalars."""

    def product(self, leaf, scale):
        return np.multiply(leaf, np.asarray(scale, np.float32), dtype=self.wide(leaf)).astype(leaf.dtype)

    def quotient(self, leaf, scale):
        return np.divide(leaf, np.asarray(scale, self.wide(leaf)), dtype=self.wide(leaf))


class Reciprocal(Core):
    """Multiplies by the reciprocal of the scale, rounded to float32; claims no division."""

    claims = WITHOUT_DIVISION

    def quotient(self, leaf, scale):
        return (leaf.astype(self.wide(leaf)) * np.float32(1 / scale)).astype(leaf.dtype)


class Float16Arithmetic(Core):
    """Computes in 16 bits where they hold the scale and its reciprocal, as an accelerator does."""

    def fits(self, leaf, scale):
        return leaf.dtype == np.float16 and scale <= 2.0**15

    def product(self, leaf, scale):
        return leaf * np.float16(scale) if self.fits(leaf, scale) else super().product(leaf, scale)

    def quotient(self, leaf, scale):
        return leaf / np.float16(scale) if self.fits(leaf, scale) else super().quotient(leaf, scale)


class InDouble(Core):
    """Computes everything in float64 and rounds once; finite is what is within the limits of its dtype."""

    def wide(self, leaf):
        return np.complex128 if leaf.dtype.kind == "c" else np.float64

    def is_finite(self, leaf):
        parts = leaf.reshape(-1).view(leaf.real.dtype) if leaf.dtype.kind == "c" else leaf
        return bool(np.all(abs(parts) <= ml_dtypes.finfo(parts.dtype).max)) if parts.dtype in FLOATS else True


class Exponents(Core):
    """Adds to exponents where the scale is a power of two; sums of zeros, one for each element, are zero where all are finite."""

    def quotient(self, leaf, scale):
        mantissa, exponent = np.frexp(scale)
        if mantissa != 0.5 or leaf.dtype not in FLOATS:
            return super().quotient(leaf, scale)
        return np.ldexp(leaf.astype(self.wide(leaf)), 1 - exponent).astype(leaf.dtype)

    def is_finite(self, leaf):
        return bool(np.sum(abs(leaf.real) * 0) + np.sum(abs(leaf.imag) * 0) == 0)


class Patterns(Core):
    """Looks at the bits of exponents; lays all arrays of a dtype into one flat buffer, and takes them out again."""

    claims = ("rounding", "division", "bfloat16", "integers", *TREES)

    def unscale(self, handle, tree):
        found = []
        self.mapped(found.append, tree)
        pieces = {}
        for dtype in {leaf.dtype for leaf in found}:
            of_dtype = [leaf for leaf in found if leaf.dtype == dtype]
            flat = self.quotient(np.concatenate([leaf.reshape(-1) for leaf in of_dtype]), self.read_scale(handle))
            ends = np.cumsum([leaf.size for leaf in of_dtype])[:-1]
            shaped = (piece.reshape(leaf.shape) for piece, leaf in zip(np.split(flat, ends), of_dtype, strict=True))
            pieces |= zip(map(id, of_dtype), shaped, strict=True)
        return self.mapped(lambda leaf: pieces[id(leaf)], tree)

    def is_finite(self, leaf):
        mask = MASKS.get(leaf.dtype.name)
        return mask is None or not bool(np.any(leaf.reshape(-1).view(f"u{leaf.dtype.itemsize}") & mask == mask))


class Torch(Core):
    """Tensors and a scale that is a tensor; multiplies by a reciprocal taken in float64."""

    arrays = "torch"
    claims = WITHOUT_DIVISION

    def product(self, leaf, scale):
        return leaf * torch.tensor(scale)

    def quotient(self, leaf, scale):
        return leaf * torch.tensor(scale).double().reciprocal().float()

    def is_finite(self, leaf):
        return bool(torch.isfinite(leaf).all())


class TorchTrees(Torch):
    """PyTorch's own tree library, division, and a flag that stays a tensor."""

    claims = ("division", *Torch.claims)

    def mapped(self, function, tree):
        return pytree.tree_map(lambda leaf: None if leaf is None else function(leaf), tree)

    def quotient(self, leaf, scale):
        return leaf / torch.tensor(scale)

    def all_finite(self, tree):
        flags = [torch.isfinite(leaf).all() for leaf in pytree.tree_leaves(tree) if leaf is not None]
        return torch.stack(flags).all() if flags else torch.tensor(True)


class Verbs(Core):
    """The package's own verbs."""

    def scale(self, handle, tree):
        return ampscale.scale(tree, handle[1].scale)

    def unscale(self, handle, tree):
        return ampscale.unscale(tree, handle[1].scale)

    def all_finite(self, tree):
        return ampscale.all_finite(tree)


class VerbsThatWiden(Verbs):
    """The same, with gradients in float32."""

    def unscale(self, handle, tree):
        return ampscale.unscale(tree, handle[1].scale, dtype="float32")


class TorchForeach(Torch):
    """PyTorch's kernel for all gradients at once, in place, a group for each dtype; the flag is read from it."""

    claims = ("bfloat16", *TREES)

    def kernel(self, tree, inverse):
        found, flag = torch.zeros(1), []
        self.mapped(flag.append, tree)
        for dtype in {leaf.dtype for leaf in flag}:
            group = [leaf for leaf in flag if leaf.dtype == dtype]
            torch._amp_foreach_non_finite_check_and_unscale_(group, found, inverse)
        return found

    def unscale(self, handle, tree):
        self.kernel(tree, torch.tensor(1 / self.read_scale(handle)))

    def all_finite(self, tree):
        return not self.kernel(self.mapped(torch.clone, tree), torch.tensor(1.0)).item()


class Jax(Core):
    """jax.tree.map, eagerly; the scale is an array of shape (), which widens what has 16 bits."""

    arrays = "jax"
    claims = WITHOUT_DIVISION  # XLA makes some divisions products
    mapped = staticmethod(jax.tree.map)

    def product(self, leaf, scale):
        return leaf * jnp.float32(scale)

    def quotient(self, leaf, scale):
        return leaf / jnp.float32(scale)

    def all_finite(self, tree):
        return jnp.all(jnp.asarray([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(tree)]))


class JaxCompiled(Jax):
    """The same, compiled, in the arrays' own dtypes."""

    def scale(self, handle, tree):
        return _scaled(tree, handle[1].scale)

    def unscale(self, handle, tree):
        return _unscaled(tree, handle[1].scale)

    def all_finite(self, tree):
        return _all_finite(tree)


@jax.jit
def _scaled(tree, scale):
    return jax.tree.map(lambda leaf: (leaf * scale).astype(leaf.dtype), tree)


@jax.jit
def _unscaled(tree, scale):
    return jax.tree.map(lambda leaf: (leaf / scale).astype(leaf.dtype), tree)


@jax.jit
def _all_finite(tree):
    return jax.tree.reduce(jnp.logical_and, jax.tree.map(lambda leaf: jnp.isfinite(leaf).all(), tree), jnp.asarray(True))


class JaxOnADevice(Jax):
    """Results are put on a device of one's choice."""

    def product(self, leaf, scale):
        return jax.device_put(super().product(leaf, scale), jax.devices()[0])

    def quotient(self, leaf, scale):
        return jax.device_put(super().quotient(leaf, scale), jax.devices()[0])


STYLES = (
    Core,
    InPlace,
    InPlaceAndReturned,
    Tuples,
    Lists,
    Widening,
    WideningGradients,
    Reciprocal,
    Float16Arithmetic,
    InDouble,
    Exponents,
    Patterns,
    Verbs,
    VerbsThatWiden,
    Torch,
    TorchTrees,
    TorchForeach,
    Jax,
    JaxCompiled,
    JaxOnADevice,
)
