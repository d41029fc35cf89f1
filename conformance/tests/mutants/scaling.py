"""Chapter 10, scaling: the wrong scale, or the wrong tree. What has wrong numbers is in `scaling_numbers`."""

import copy

import numpy as np
from ampscale_conformance.model.bits import leaves, map_tree

from . import scaling_numbers, table
from .plain import Plain

_TABLE, wrong = table()


class _Cached(Plain):
    """Tensors go by a copy of the scale, which only some steps renew."""

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


@wrong("SCALING-scale", "a captured graph keeps the scale that it saw, until an overflow captures it anew: pytorch/pytorch#55562")
class ScalesByTheScaleBeforeAGrowth(_Scales):
    renewed_by = False


@wrong("SCALING-scale", "not seen; the step that is skipped returns before it hands on the new scale")
class ScalesByTheScaleBeforeABackoff(_Scales):
    renewed_by = True


@wrong(
    "SCALING-unscale-divides",
    "a captured graph keeps the reciprocal that it saw, until an overflow captures it anew: pytorch/pytorch#55562",
)
class UnscalesByTheScaleBeforeAGrowth(_Unscales):
    renewed_by = False


@wrong("SCALING-unscale-divides", "not seen; the step that is skipped returns before it computes the new reciprocal")
class UnscalesByTheScaleBeforeABackoff(_Unscales):
    renewed_by = True


@wrong("SCALING-unscale-divides", "the scale is moved before the gradients are unscaled: deepspeedai/DeepSpeed#8588")
class UnscalesByTheNextScale(Plain):
    def unscale(self, handle, tree):
        after = copy.copy(handle)
        self.update(after, True)
        return super().unscale(after, tree)


@wrong("SCALING-scale", "not seen; the scale is the class's, not the object's")
class ScalesByTheLatestScaler(Plain):
    def create(self, rule, **options):
        self.latest = super().create(rule, **options)
        return self.latest

    def scale(self, handle, tree):
        return super().scale(self.latest, tree)


@wrong("SCALING-unscale-divides", "not seen; the scale is the class's, not the object's")
class UnscalesByTheLatestScaler(Plain):
    def create(self, rule, **options):
        self.latest = super().create(rule, **options)
        return self.latest

    def unscale(self, handle, tree):
        return super().unscale(self.latest, tree)


@wrong("SCALING-scale", "the flag of the iteration, which is for gradients, holds back the second loss: NVIDIA/apex#232")
class ScalesOnceAStep(Plain):
    def scale(self, handle, tree):
        before, handle.scaled = getattr(handle, "scaled", False), True
        return map_tree(np.copy, tree) if before else super().scale(handle, tree)


@wrong("SCALING-unscale-divides", "the flag of the iteration is one for all optimizers: NVIDIA/apex#232")
class UnscalesOnceAStep(Plain):
    def unscale(self, handle, tree):
        before, handle.unscaled = getattr(handle, "unscaled", False), True
        return map_tree(np.copy, tree) if before else super().unscale(handle, tree)


@wrong("SCALING-unscale-divides", "the optimizer's kernel unscales what the scaler has unscaled: pytorch/pytorch#94060")
class UnscalesTheSecondTreeTwice(Plain):
    def unscale(self, handle, tree):
        before, handle.unscaled = getattr(handle, "unscaled", False), True
        return super().unscale(handle, super().unscale(handle, tree) if before else tree)


@wrong("SCALING-new-arrays", "inputs *= scale_value, taken by its word: the page of mindspore.LossScaler")
class ScalesInPlace(Plain):
    def scale(self, handle, tree):
        map_tree(lambda leaf: np.copyto(leaf, self.scaled_leaf(leaf, handle.shown)), tree)
        return tree


@wrong("SCALING-dtype-kept", "a float32 of shape () times a float is a float64: numpy/numpy#22823, in NumPy 1")
class ScalesScalarsInDouble(Plain):
    def scaled_leaf(self, leaf, scale):
        result = super().scaled_leaf(leaf, scale)
        return result.astype(np.float64) if leaf.shape == () and leaf.dtype == np.float32 else result


@wrong("SCALING-dtype-kept", "not seen; a scale of shape (1,) gives its axis to what it meets")
class ScalesScalarsToVectors(Plain):
    def scaled_leaf(self, leaf, scale):
        return np.atleast_1d(super().scaled_leaf(leaf, scale))


@wrong("SCALING-dtype-kept", "not seen; what has one element is squeezed to a scalar")
class ScalesVectorsToScalars(Plain):
    def scaled_leaf(self, leaf, scale):
        return np.squeeze(super().scaled_leaf(leaf, scale))


@wrong("SCALING-dtype-kept", "a float32 of shape () times a float is a float64: numpy/numpy#22823, in NumPy 1")
class UnscalesScalarsInDouble(Plain):
    def unscaled_leaf(self, leaf, scale):
        result = super().unscaled_leaf(leaf, scale)
        return result.astype(np.float64) if leaf.shape == () and leaf.dtype == np.float32 else result


@wrong("SCALING-dtype-kept", "not seen; a scale of shape (1,) gives its axis to what it meets")
class UnscalesScalarsToVectors(Plain):
    def unscaled_leaf(self, leaf, scale):
        return np.atleast_1d(super().unscaled_leaf(leaf, scale))


@wrong("SCALING-dtype-kept", "not seen; what has one element is squeezed to a scalar")
class UnscalesVectorsToScalars(Plain):
    def unscaled_leaf(self, leaf, scale):
        return np.squeeze(super().unscaled_leaf(leaf, scale))


@wrong("SCALING-dtype-kept", "not seen; a loss of shape () is taken to the host, as loss.item() does")
class ScalesScalarsToFloats(Plain):
    def scaled_leaf(self, leaf, scale):
        return super().scaled_leaf(leaf, scale).item() if leaf.shape == () else super().scaled_leaf(leaf, scale)


@wrong("SCALING-dtype-kept", "not seen; gradients are laid into one flat buffer, and come back as its pieces")
class UnscalesMatricesFlat(Plain):
    def unscaled_leaf(self, leaf, scale):
        return super().unscaled_leaf(leaf.reshape(-1) if leaf.ndim else leaf, scale)


@wrong("SCALING-dtype-kept", "not seen; gradients are laid into one flat buffer, which has the dtype of the first")
class UnscalesInTheFirstDtype(Plain):
    def unscale(self, handle, tree):
        result = super().unscale(handle, tree)
        dtypes = [leaf.dtype for _, leaf in leaves(result) if leaf is not None]
        return map_tree(lambda leaf: leaf.astype(dtypes[0]), result)


@wrong("SCALING-layout", "gradients without elements are filtered out, and not put back: meta-pytorch/torchrec#3891")
class DropsArraysWithoutElements(Plain):
    def unscale(self, handle, tree):
        result = super().unscale(handle, tree)
        return [leaf for leaf in result if getattr(leaf, "size", 1)] if isinstance(result, list) else result


@wrong("SCALING-layout", "the largest element is asked for: meta-pytorch/torchrec#3809")
class RefusesArraysWithoutElements(Plain):
    def unscaled_leaf(self, leaf, scale):
        leaf.max()
        return super().unscaled_leaf(leaf, scale)


@wrong("SCALING-inputs", "a loss or a tuple of losses, and no more, as the page of mindspore.LossScaler has it")
class ScalesTheOuterListOnly(Plain):
    def scale(self, handle, tree):
        return [self.scaled_leaf(leaf, handle.shown) if hasattr(leaf, "shape") else leaf for leaf in tree]


@wrong("SCALING-inputs", "not seen; the dicts of dicts that models in JAX have are not gone into")
class UnscalesNoInnerDicts(Plain):
    def unscale(self, handle, tree):
        if isinstance(tree, list):
            return [self.unscale(handle, child) for child in tree]
        nested = isinstance(tree, dict) and any(isinstance(child, dict) for child in tree.values())
        return tree if nested else super().unscale(handle, tree)


@wrong("SCALING-inputs", "only lists and dicts are gone into: whr94621/NJUNMT-pytorch#23")
class UnscalesNoInnerTuples(Plain):
    def unscale(self, handle, tree):
        if isinstance(tree, list):
            return [self.unscale(handle, child) for child in tree]
        return tree if isinstance(tree, tuple) else super().unscale(handle, tree)


@wrong("SCALING-structure-kept", "not seen; places become names, and 10 comes before 2")
class SortsPlacesAsStrings(Plain):
    def unscale(self, handle, tree):
        result = super().unscale(handle, tree)
        return [result[int(name)] for name in sorted(map(str, range(len(result))))] if isinstance(result, list) else result


@wrong("SCALING-structure-kept", "flattened in one order and built up in another: pytorch/pytorch#114947")
class SortsKeysAndNotValues(Plain):
    def unscale(self, handle, tree):
        result = super().unscale(handle, tree)
        return dict(zip(sorted(result), result.values(), strict=True)) if isinstance(result, dict) else result


@wrong("SCALING-structure-kept", "not seen; gradients that are None are filtered out, and the others move up")
class DropsNone(Plain):
    def unscale(self, handle, tree):
        result = super().unscale(handle, tree)
        return [leaf for leaf in result if leaf is not None] if isinstance(result, list) else result


@wrong("SCALING-structure-kept", "not seen; the flag of the check is handed back as one more gradient")
class AppendsItsFlag(Plain):
    def unscale(self, handle, tree):
        result = super().unscale(handle, tree)
        return [*result, np.ones(1, np.float32)] if isinstance(result, list) else {**result, "finite": np.ones(1, np.float32)}


@wrong("SCALING-structure-kept", "None times a number raises: tensorflow/tensorflow#27655")
class ScalesNoLossThatIsNone(Plain):
    def scale(self, handle, tree):
        if any(leaf is None for _, leaf in leaves(tree)):
            raise TypeError("unsupported operand type(s) for *: 'NoneType' and 'float'")
        return super().scale(handle, tree)


@wrong(
    "SCALING-structure-kept", "not seen; a parameter without a gradient gets one of zeros, on which momentum and weight decay act"
)
class FillsNoneWithZeros(Plain):
    def unscale(self, handle, tree):
        result = super().unscale(handle, tree)
        return [np.zeros(1, np.float32) if leaf is None else leaf for leaf in result] if isinstance(result, list) else result


@wrong("SCALING-structure-kept", "no gradients are taken for a mistake: nerfstudio-project/nerfstudio#1919")
class RaisesWithoutGradients(Plain):
    def unscale(self, handle, tree):
        if not tree:
            raise AssertionError("there are no gradients")
        return super().unscale(handle, tree)


MUTANTS = (*_TABLE, *scaling_numbers.MUTANTS)
