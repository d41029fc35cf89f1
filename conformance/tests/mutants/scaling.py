"""Mutants of chapter 10: wrong scales and trees. Mutants with wrong numbers are in `scaling_numbers`."""

import copy

import numpy as np
from ampscale_conformance.model.bits import leaves, map_tree

from . import scaling_numbers, table
from .plain import Plain

_TABLE, breaks = table()


class _Cached(Plain):
    """Implementation that scales tensors by a copy of the scale, which only some steps update."""

    renewed_by: bool

    def create(self, rule, **options):
        handle = super().create(rule, **options)
        handle.cached = handle.shown
        return handle

    def update(self, handle, finite):
        super().update(handle, finite)
        if finite is self.renewed_by:
            handle.cached = handle.shown


class _Scales(_Cached):
    def scale(self, handle, tree):
        return map_tree(lambda leaf: self.scaled_leaf(leaf, handle.cached), tree)


class _Unscales(_Cached):
    def unscale(self, handle, tree):
        return map_tree(lambda leaf: self.unscaled_leaf(leaf, handle.cached), tree)


@breaks("SCALING-scale", "pytorch/pytorch#55562: a captured graph keeps its scale until an overflow captures it again")
class ScalesByTheScaleBeforeAGrowth(_Scales):
    renewed_by = False


@breaks("SCALING-scale", "not observed: a skipped step returns before it passes on the new scale")
class ScalesByTheScaleBeforeABackoff(_Scales):
    renewed_by = True


@breaks(
    "SCALING-unscale-divides",
    "pytorch/pytorch#55562: a captured graph keeps its reciprocal until an overflow captures it again",
)
class UnscalesByTheScaleBeforeAGrowth(_Unscales):
    renewed_by = False


@breaks("SCALING-unscale-divides", "not observed: a skipped step returns before it computes the new reciprocal")
class UnscalesByTheScaleBeforeABackoff(_Unscales):
    renewed_by = True


@breaks("SCALING-unscale-divides", "deepspeedai/DeepSpeed#8588: the scale is updated before the gradients are unscaled")
class UnscalesByTheNextScale(Plain):
    def unscale(self, handle, tree):
        after = copy.copy(handle)
        self.update(after, True)
        return super().unscale(after, tree)


@breaks("SCALING-scale", "not observed: the scale is an attribute of the class instead of the object")
class ScalesByTheLatestScaler(Plain):
    def create(self, rule, **options):
        self.latest = super().create(rule, **options)
        return self.latest

    def scale(self, handle, tree):
        return super().scale(self.latest, tree)


@breaks("SCALING-unscale-divides", "not observed: the scale is an attribute of the class instead of the object")
class UnscalesByTheLatestScaler(Plain):
    def create(self, rule, **options):
        self.latest = super().create(rule, **options)
        return self.latest

    def unscale(self, handle, tree):
        return super().unscale(self.latest, tree)


@breaks("SCALING-scale", "NVIDIA/apex#232: a flag of the iteration, meant for gradients, prevents scaling of the second loss")
class ScalesOnceAStep(Plain):
    def scale(self, handle, tree):
        before, handle.scaled = getattr(handle, "scaled", False), True
        return map_tree(np.copy, tree) if before else super().scale(handle, tree)


@breaks("SCALING-unscale-divides", "NVIDIA/apex#232: one flag of the iteration serves all optimizers")
class UnscalesOnceAStep(Plain):
    def unscale(self, handle, tree):
        before, handle.unscaled = getattr(handle, "unscaled", False), True
        return map_tree(np.copy, tree) if before else super().unscale(handle, tree)


@breaks(
    "SCALING-unscale-divides", "pytorch/pytorch#94060: the optimizer's kernel unscales gradients that the scaler has unscaled"
)
class UnscalesTheSecondTreeTwice(Plain):
    def unscale(self, handle, tree):
        before, handle.unscaled = getattr(handle, "unscaled", False), True
        return super().unscale(handle, super().unscale(handle, tree) if before else tree)


@breaks("SCALING-new-arrays", "the page of mindspore.LossScaler, taken literally: inputs *= scale_value")
class ScalesInPlace(Plain):
    def scale(self, handle, tree):
        map_tree(lambda leaf: np.copyto(leaf, self.scaled_leaf(leaf, handle.shown)), tree)
        return tree


@breaks("SCALING-dtype-kept", "numpy/numpy#22823: in NumPy 1, a float32 of shape () times a float is a float64")
class ScalesScalarsInFloat64(Plain):
    def scaled_leaf(self, leaf, scale):
        result = super().scaled_leaf(leaf, scale)
        return result.astype(np.float64) if leaf.shape == () and leaf.dtype == np.float32 else result


@breaks("SCALING-dtype-kept", "not observed: a scale of shape (1,) adds its axis by broadcasting")
class ScalesScalarsToVectors(Plain):
    def scaled_leaf(self, leaf, scale):
        return np.atleast_1d(super().scaled_leaf(leaf, scale))


@breaks("SCALING-dtype-kept", "not observed: arrays with one element are squeezed to scalars")
class ScalesVectorsToScalars(Plain):
    def scaled_leaf(self, leaf, scale):
        return np.squeeze(super().scaled_leaf(leaf, scale))


@breaks("SCALING-dtype-kept", "numpy/numpy#22823: in NumPy 1, a float32 of shape () times a float is a float64")
class UnscalesScalarsInFloat64(Plain):
    def unscaled_leaf(self, leaf, scale):
        result = super().unscaled_leaf(leaf, scale)
        return result.astype(np.float64) if leaf.shape == () and leaf.dtype == np.float32 else result


@breaks("SCALING-dtype-kept", "not observed: a scale of shape (1,) adds its axis by broadcasting")
class UnscalesScalarsToVectors(Plain):
    def unscaled_leaf(self, leaf, scale):
        return np.atleast_1d(super().unscaled_leaf(leaf, scale))


@breaks("SCALING-dtype-kept", "not observed: arrays with one element are squeezed to scalars")
class UnscalesVectorsToScalars(Plain):
    def unscaled_leaf(self, leaf, scale):
        return np.squeeze(super().unscaled_leaf(leaf, scale))


@breaks("SCALING-dtype-kept", "not observed: a loss of shape () is converted with loss.item()")
class ScalesScalarsToFloats(Plain):
    def scaled_leaf(self, leaf, scale):
        return super().scaled_leaf(leaf, scale).item() if leaf.shape == () else super().scaled_leaf(leaf, scale)


@breaks("SCALING-dtype-kept", "not observed: gradients are copied to one flat buffer, and its slices are returned")
class UnscalesMatricesFlat(Plain):
    def unscaled_leaf(self, leaf, scale):
        return super().unscaled_leaf(leaf.reshape(-1) if leaf.ndim else leaf, scale)


@breaks("SCALING-dtype-kept", "not observed: gradients are copied to one flat buffer with the dtype of the first one")
class UnscalesInTheFirstDtype(Plain):
    def unscale(self, handle, tree):
        result = super().unscale(handle, tree)
        dtypes = [leaf.dtype for _, leaf in leaves(result) if leaf is not None]
        return map_tree(lambda leaf: leaf.astype(dtypes[0]), result)


@breaks("SCALING-layout", "meta-pytorch/torchrec#3891: gradients without elements are filtered out, and not put back")
class DropsArraysWithoutElements(Plain):
    def unscale(self, handle, tree):
        result = super().unscale(handle, tree)
        return [leaf for leaf in result if getattr(leaf, "size", 1)] if isinstance(result, list) else result


@breaks("SCALING-layout", "meta-pytorch/torchrec#3809: the maximum is computed")
class RejectsArraysWithoutElements(Plain):
    def unscaled_leaf(self, leaf, scale):
        leaf.max()
        return super().unscaled_leaf(leaf, scale)


@breaks("SCALING-inputs", "the page of mindspore.LossScaler, taken literally: a loss or a tuple of losses, and no more")
class ScalesTheOuterListOnly(Plain):
    def scale(self, handle, tree):
        return [self.scaled_leaf(leaf, handle.shown) if hasattr(leaf, "shape") else leaf for leaf in tree]


@breaks("SCALING-inputs", "not observed: nested dicts, which models in JAX have, are not traversed")
class UnscalesNoInnerDicts(Plain):
    def unscale(self, handle, tree):
        if isinstance(tree, list):
            return [self.unscale(handle, child) for child in tree]
        nested = isinstance(tree, dict) and any(isinstance(child, dict) for child in tree.values())
        return tree if nested else super().unscale(handle, tree)


@breaks("SCALING-inputs", "whr94621/NJUNMT-pytorch#23: only lists and dicts are traversed")
class UnscalesNoInnerTuples(Plain):
    def unscale(self, handle, tree):
        if isinstance(tree, list):
            return [self.unscale(handle, child) for child in tree]
        return tree if isinstance(tree, tuple) else super().unscale(handle, tree)


@breaks("SCALING-structure-kept", "not observed: indices become names, and 10 precedes 2")
class SortsIndicesAsStrings(Plain):
    def unscale(self, handle, tree):
        result = super().unscale(handle, tree)
        return [result[int(name)] for name in sorted(map(str, range(len(result))))] if isinstance(result, list) else result


@breaks("SCALING-structure-kept", "pytorch/pytorch#114947: the tree is flattened in one order and rebuilt in another")
class SortsKeysAndNotValues(Plain):
    def unscale(self, handle, tree):
        result = super().unscale(handle, tree)
        return dict(zip(sorted(result), result.values(), strict=True)) if isinstance(result, dict) else result


@breaks("SCALING-structure-kept", "not observed: gradients that are None are filtered out, and the indices of the others shift")
class DropsNone(Plain):
    def unscale(self, handle, tree):
        result = super().unscale(handle, tree)
        return [leaf for leaf in result if leaf is not None] if isinstance(result, list) else result


@breaks("SCALING-structure-kept", "not observed: the flag of the check is returned as one more gradient")
class AppendsItsFlag(Plain):
    def unscale(self, handle, tree):
        result = super().unscale(handle, tree)
        return [*result, np.ones(1, np.float32)] if isinstance(result, list) else {**result, "finite": np.ones(1, np.float32)}


@breaks("SCALING-structure-kept", "tensorflow/tensorflow#27655: None times a number raises an error")
class RejectsNoneInScale(Plain):
    def scale(self, handle, tree):
        if any(leaf is None for _, leaf in leaves(tree)):
            raise TypeError("unsupported operand type(s) for *: 'NoneType' and 'float'")
        return super().scale(handle, tree)


@breaks(
    "SCALING-structure-kept", "not observed: a missing gradient is replaced by zeros, to which momentum and weight decay apply"
)
class FillsNoneWithZeros(Plain):
    def unscale(self, handle, tree):
        result = super().unscale(handle, tree)
        return [np.zeros(1, np.float32) if leaf is None else leaf for leaf in result] if isinstance(result, list) else result


@breaks("SCALING-structure-kept", "nerfstudio-project/nerfstudio#1919: an empty list of gradients is treated as a mistake")
class RaisesWithoutGradients(Plain):
    def unscale(self, handle, tree):
        if not tree:
            raise AssertionError("there are no gradients")
        return super().unscale(handle, tree)


MUTANTS = (*_TABLE, *scaling_numbers.MUTANTS)
