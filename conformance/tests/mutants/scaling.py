"""Mutants of chapter 10: wrong scales and trees. Mutants with wrong numbers are in `scaling_numbers`."""

import numpy as np
from ampscale_conformance.model.bits import leaves, map_tree

from . import scaling_numbers, table
from .plain import Plain

_TABLE, breaks = table()


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
        was_scaled, handle.scaled = getattr(handle, "scaled", False), True
        return map_tree(np.copy, tree) if was_scaled else super().scale(handle, tree)


@breaks("SCALING-unscale-divides", "NVIDIA/apex#232: one flag of the iteration serves all optimizers")
class UnscalesOnceAStep(Plain):
    def unscale(self, handle, tree):
        was_unscaled, handle.unscaled = getattr(handle, "unscaled", False), True
        return map_tree(np.copy, tree) if was_unscaled else super().unscale(handle, tree)


@breaks(
    "SCALING-unscale-divides", "pytorch/pytorch#94060: the optimizer's kernel unscales gradients that the scaler has unscaled"
)
class UnscalesTheSecondTreeTwice(Plain):
    def unscale(self, handle, tree):
        was_unscaled, handle.unscaled = getattr(handle, "unscaled", False), True
        return super().unscale(handle, super().unscale(handle, tree) if was_unscaled else tree)


@breaks("SCALING-inputs", "torch 2.13.0: the type of a container is called with a list, which a NamedTuple rejects")
class CallsTheTypeWithAList(Plain):
    def unscale(self, handle, tree):
        return type(tree)([*super().unscale(handle, tree)]) if isinstance(tree, tuple) else super().unscale(handle, tree)


@breaks("SCALING-inputs", "not observed: a NamedTuple is returned as a tuple")
class ReturnsTuples(Plain):
    def unscale(self, handle, tree):
        unscaled = super().unscale(handle, tree)
        return tuple(unscaled) if isinstance(tree, tuple) else unscaled


@breaks("SCALING-new-arrays", "the page of mindspore.LossScaler, taken literally: inputs *= scale_value")
class ScalesInPlace(Plain):
    def scale(self, handle, tree):
        map_tree(lambda leaf: np.copyto(leaf, self.scaled_leaf(leaf, handle.shown)), tree)
        return tree


@breaks("SCALING-new-arrays", "planted: a call returns the output buffers of the previous call")
class ReusesItsOutputBuffers(Plain):
    def scale(self, handle, tree):
        outputs, indices = self.__dict__.setdefault("outputs", {}), iter(range(2**20))

        def copied(leaf):
            output = outputs.setdefault((next(indices), leaf.dtype, leaf.shape), np.empty_like(leaf))
            output[...] = leaf
            return output

        return map_tree(copied, super().scale(handle, tree))


@breaks("SCALING-new-arrays", "planted: the division is in place, and the result is a copy")
class UnscalesInPlaceAndReturnsCopies(Plain):
    def unscaled_leaf(self, leaf, scale):
        result = super().unscaled_leaf(leaf, scale)
        leaf[...] = result
        return result


@breaks("SCALING-new-arrays", "planted: float64 arrays are also divided in place")
class OverwritesFloat64Arguments(Plain):
    def unscaled_leaf(self, leaf, scale):
        result = super().unscaled_leaf(leaf, scale)
        np.copyto(leaf, result if leaf.dtype == np.float64 else leaf)
        return result


@breaks("SCALING-new-arrays", "planted: non-finite gradients are replaced by zeros in place")
class ZeroesNonFiniteArguments(Plain):
    def unscaled_leaf(self, leaf, scale):
        result = super().unscaled_leaf(leaf, scale)
        np.copyto(leaf, leaf if np.isfinite(leaf).all() else np.zeros_like(leaf))
        return result


@breaks("SCALING-new-arrays", "planted: a scale of 1 is skipped, and the argument itself is returned")
class ReturnsTheArgumentAtOne(Plain):
    def unscaled_leaf(self, leaf, scale):
        return leaf if scale == 1 else super().unscaled_leaf(leaf, scale)


@breaks("SCALING-scale", "planted: results are cached by the identity of the array, whose elements change from step to step")
class CachesProductsByIdentity(Plain):
    def scaled_leaf(self, leaf, scale):
        results = self.__dict__.setdefault("results", {})
        return results.setdefault(id(leaf), (leaf, super().scaled_leaf(leaf, scale)))[1].copy()


@breaks("SCALING-unscale-divides", "planted: more than 64 arrays exceed the pointer table of a fused kernel")
class UnscalesSixtyFourArrays(Plain):
    def unscale(self, handle, tree):
        numbers = iter(range(2**20))
        return map_tree(lambda leaf: self.unscaled_leaf(leaf, handle.shown) if next(numbers) < 64 else np.copy(leaf), tree)


@breaks("SCALING-unscale-divides", "planted: a kernel for matrices divides one tile of 64 rows")
class DividesOneTileOfRows(Plain):
    def unscaled_leaf(self, leaf, scale):
        result = super().unscaled_leaf(leaf, scale)
        if result.ndim == 2 and result.shape[1] < 64:
            result[64:] = leaf[64:]
        return result


@breaks("SCALING-unscale-divides", "planted: a kernel for blocks of 4096 elements omits the rest")
class UnscalesOneBlock(Plain):
    def unscaled_leaf(self, leaf, scale):
        result = super().unscaled_leaf(leaf, scale)
        result.reshape(-1)[4096:] = leaf.reshape(-1)[4096:]
        return result


@breaks("SCALING-layout", "planted: a kernel reads the memory of an array without its strides")
class IgnoresStrides(Plain):
    def scaled_leaf(self, leaf, scale):
        packed = leaf.base is None or leaf.base.ndim != leaf.ndim or leaf.base.size < leaf.size
        return super().scaled_leaf(leaf if packed else leaf.base.reshape(-1)[: leaf.size].reshape(leaf.shape), scale)


@breaks("SCALING-layout", "planted: the elements are flattened in memory order, and the result has rows and columns exchanged")
class FlattensInMemoryOrder(Plain):
    def unscaled_leaf(self, leaf, scale):
        return super().unscaled_leaf(leaf.ravel(order="K").reshape(leaf.shape), scale)


@breaks("SCALING-layout", "planted: the division is in place, and the result is a copy")
class NeedsWritableArrays(Plain):
    def unscaled_leaf(self, leaf, scale):
        if not leaf.flags.writeable:
            raise ValueError("output array is read-only")
        return super().unscaled_leaf(leaf, scale)


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


@breaks(
    "SCALING-layout", "meta-pytorch/torchrec#3891: gradients without elements are filtered out, and a last one is not put back"
)
class DropsArraysWithoutElements(Plain):
    def unscale(self, handle, tree):
        result = super().unscale(handle, tree)
        drops = isinstance(result, list) and getattr((result or [None])[-1], "size", 1) == 0
        return result[:-1] if drops else result


@breaks("SCALING-layout", "meta-pytorch/torchrec#3809: the maximum of no elements is computed, which raises an error")
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


@breaks("SCALING-structure-kept", "not observed: indices are sorted as strings, so 10 precedes 2")
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


@breaks("SCALING-inputs", "not observed: a tuple in a list is returned unchanged")
class PassesOverTuples(Plain):
    def unscale(self, handle, tree):
        unscaled = super().unscale(handle, tree)
        if not isinstance(tree, list):
            return unscaled
        return [old if type(old) is tuple else new for old, new in zip(tree, unscaled, strict=True)]


@breaks("SCALING-inputs", "planted: the check visits only the first member of a NamedTuple")
class ChecksTheFirstMember(Plain):
    def all_finite(self, tree):
        while isinstance(tree, list) or hasattr(tree, "_fields"):
            tree = tree[0]
        return super().all_finite(tree)


@breaks("SCALING-inputs", "not observed: a NamedTuple is returned unchanged")
class PassesOverNamedTuples(Plain):
    def unscale(self, handle, tree):
        return tree if hasattr(tree, "_fields") else super().unscale(handle, tree)


@breaks("SCALING-new-arrays", "planted: an array that was divided becomes read-only")
class FreezesItsInput(Plain):
    def unscaled_leaf(self, leaf, scale):
        unscaled = super().unscaled_leaf(leaf, scale)
        leaf.flags.writeable = False
        return unscaled


@breaks("SCALING-scale", "planted: the type of a container is cached by the number of its arrays")
class RemembersTheFirstContainer(Plain):
    def scale(self, handle, tree):
        scaled = super().scale(handle, tree)
        if not isinstance(tree, list | tuple) or any(isinstance(child, list | tuple | dict) for child in tree):
            return scaled
        containers = self.__dict__.setdefault("containers", {})
        first = containers.setdefault(len(tree), type(tree))
        return first(scaled)


@breaks("SCALING-layout", "planted: scale, but not unscale, ignores that a stride is negative")
class ScalesReversedArraysForwards(Plain):
    def scaled_leaf(self, leaf, scale):
        scaled = super().scaled_leaf(leaf, scale)
        return scaled[::-1].copy() if leaf.ndim == 1 and leaf.strides[0] < 0 else scaled


@breaks("SCALING-unscale-divides", "planted: one launch takes 110 arrays, as in Apex, and the launch of the others is missing")
class UnscalesOneLaunch(Plain):
    def unscale(self, handle, tree):
        scales = iter([handle.shown] * 110)
        return map_tree(lambda leaf: self.unscaled_leaf(leaf, next(scales, 1.0)), tree)


@breaks("SCALING-unscale-divides", "planted: the elements after the last whole block of 65,536 stay scaled")
class UnscalesWholeBlocks(Plain):
    def unscaled_leaf(self, leaf, scale):
        unscaled = super().unscaled_leaf(leaf, scale)
        whole = leaf.size // 65536 * 65536
        if whole:
            unscaled.reshape(-1)[whole:] = leaf.reshape(-1)[whole:]
        return unscaled


@breaks("SCALING-inputs", "planted: a member of a NamedTuple that is None becomes an array of zero")
class FillsMissingMembers(Plain):
    def unscale(self, handle, tree):
        if hasattr(tree, "_fields"):
            return type(tree)(*(np.zeros((), np.float32) if child is None else self.unscale(handle, child) for child in tree))
        return super().unscale(handle, tree)


@breaks("SCALING-layout", "planted: results are cached by address and shape, so that a view returns the result of another view")
class CachesResultsByAddress(Plain):
    def unscale(self, handle, tree):
        results = {}
        return map_tree(lambda leaf: results.setdefault(self._key(leaf), self.unscaled_leaf(leaf, handle.shown)), tree)

    def _key(self, leaf):
        return leaf.ctypes.data, leaf.shape, leaf.dtype, leaf.size or object()  # arrays without elements can share an address


@breaks("SCALING-layout", "planted: float16 matrices are flattened in memory order")
class FlattensFloat16InMemoryOrder(Plain):
    def scaled_leaf(self, leaf, scale):
        flat = leaf.ravel(order="K").reshape(leaf.shape) if leaf.dtype == np.float16 and leaf.ndim == 2 else leaf
        return super().scaled_leaf(flat, scale)


@breaks("SCALING-scale", "planted: results are kept by the joined keys of their paths, which two leaves can share")
class ScalesByJoinedPaths(Plain):
    def scale(self, handle, tree):
        named = [(path.replace("']['", "/").replace("']", "'"), leaf) for path, leaf in leaves(tree) if leaf is not None]
        results = {name: self.scaled_leaf(leaf, handle.shown) for name, leaf in named}
        names = iter([name for name, _ in named])
        return map_tree(lambda _: results[next(names)], tree)


@breaks("SCALING-unscale-divides", "planted: equal arrays are divided once, and arrays with equal beginnings are taken for equal")
class ComparesBeginnings(Plain):
    def unscale(self, handle, tree):
        results = {}

        def unscaled(leaf):
            key = leaf.dtype, leaf.shape, leaf.tobytes()[:8]
            return results.setdefault(key, self.unscaled_leaf(leaf, handle.shown)).copy()

        return map_tree(unscaled, tree)


@breaks("SCALING-unscale-divides", "planted: a list is stored as a dict with its indices as keys, and such a dict becomes a list")
class ReturnsAListForIndices(Plain):
    def unscale(self, handle, tree):
        result = super().unscale(handle, tree)
        indices = map(str, range(len(result)))
        return list(result.values()) if isinstance(result, dict) and [*result] == [*indices] else result


@breaks("SCALING-unscale-divides", "planted: keys with a leading underscore are private, and their arrays are not divided")
class KeepsPrivateArrays(Plain):
    def unscale(self, handle, tree):
        private = iter(["['_" in path for path, leaf in leaves(tree) if leaf is not None])
        return map_tree(lambda leaf: leaf.copy() if next(private) else self.unscaled_leaf(leaf, handle.shown), tree)


@breaks("SCALING-layout", "planted: a parallel loop over more than 4096 elements takes them in the order of the memory")
class UnscalesLargeMatricesInMemoryOrder(Plain):
    def unscaled_leaf(self, leaf, scale):
        return super().unscaled_leaf(leaf.ravel(order="K").reshape(leaf.shape) if leaf.size > 4096 else leaf, scale)


@breaks("SCALING-inputs", "planted: a NamedTuple in a dict is returned as a tuple")
class ReturnsTuplesInDicts(Plain):
    def unscale(self, handle, tree):
        return self.without_names(super().unscale(handle, tree))

    def without_names(self, tree):
        if isinstance(tree, dict):
            return {key: tuple(child) if isinstance(child, tuple) else child for key, child in tree.items()}
        return type(tree)(*map(self.without_names, tree)) if hasattr(tree, "_fields") else tree


@breaks("SCALING-layout", "planted: the elements of an array with three axes are flattened in memory order")
class FlattensThreeAxesInMemoryOrder(Plain):
    def unscaled_leaf(self, leaf, scale):
        return super().unscaled_leaf(leaf.ravel(order="K").reshape(leaf.shape) if leaf.ndim == 3 else leaf, scale)


@breaks("SCALING-scale", "planted: a row has at most 256 elements in a launch of the kernel")
class ScalesRowsOf256Columns(Plain):
    def scaled_leaf(self, leaf, scale):
        scaled = super().scaled_leaf(leaf, scale)
        if leaf.ndim == 2:
            scaled[:, 256:] = leaf[:, 256:]
        return scaled


@breaks("SCALING-scale", "planted: a loop is unrolled for eight planes")
class ScalesEightPlanes(Plain):
    def scaled_leaf(self, leaf, scale):
        scaled = super().scaled_leaf(leaf, scale)
        if leaf.ndim == 3:
            scaled[8:] = leaf[8:]
        return scaled


@breaks("SCALING-scale", "planted: a batch axis that was added for the kernel is removed, whether it was added or not")
class RemovesALeadingAxis(Plain):
    def scaled_leaf(self, leaf, scale):
        scaled = super().scaled_leaf(leaf, scale)
        return scaled[0] if leaf.ndim > 3 and leaf.shape[0] == 1 else scaled


@breaks("SCALING-scale", "planted: a list is built up to the last array that was scaled")
class DropsALastNone(Plain):
    def scale(self, handle, tree):
        scaled = super().scale(handle, tree)
        return scaled[:-1] if isinstance(tree, list) and len(tree) > 4 and tree[-1] is None else scaled


@breaks("SCALING-unscale-divides", "planted: sixteen arrays fill a table of pointers, whose last entry marks its end")
class UnscalesFifteenOfSixteen(Plain):
    def unscale(self, handle, tree):
        count = len([leaf for _, leaf in leaves(tree) if leaf is not None])
        scales = iter([handle.shown] * (15 if count == 16 else count))
        return map_tree(lambda leaf: self.unscaled_leaf(leaf, next(scales, 1.0)), tree)


@breaks("SCALING-scale", "planted: arrays of one shape and one number of bytes are stacked, without a look at their dtypes")
class StacksArraysOfOneSize(Plain):
    def scale(self, handle, tree):
        arrays = [leaf for _, leaf in leaves(tree) if leaf is not None]
        stackable = len({(leaf.shape, leaf.itemsize) for leaf in arrays}) == 1
        return super().scale(handle, map_tree(lambda leaf: leaf.view(arrays[0].dtype), tree) if stackable else tree)


@breaks("SCALING-layout", "planted: arrays of three axes in Fortran order are flattened in memory order")
class FlattensFortranOrder(Plain):
    def unscaled_leaf(self, leaf, scale):
        fortran = leaf.ndim == 3 and leaf.flags.fnc
        return super().unscaled_leaf(leaf.ravel(order="K").reshape(leaf.shape) if fortran else leaf, scale)


@breaks("SCALING-layout", "planted: scale, but not unscale, flattens four axes in memory order")
class ScalesFourAxesInMemoryOrder(Plain):
    def scaled_leaf(self, leaf, scale):
        return super().scaled_leaf(leaf.ravel(order="K").reshape(leaf.shape) if leaf.ndim == 4 else leaf, scale)


@breaks("SCALING-layout", "planted: a read-only number is taken for a constant of the network")
class KeepsReadOnlyNumbers(Plain):
    def unscaled_leaf(self, leaf, scale):
        return leaf.copy() if leaf.shape == () and not leaf.flags.writeable else super().unscaled_leaf(leaf, scale)


@breaks("SCALING-new-arrays", "planted: a call of scale frees the arrays that unscale returned last")
class FreesTheLatestQuotients(Plain):
    quotients = ()

    def unscale(self, handle, tree):
        self.quotients = super().unscale(handle, tree)
        return self.quotients

    def scale(self, handle, tree):
        map_tree(lambda leaf: leaf.fill(0), self.quotients)
        return super().scale(handle, tree)


MUTANTS = (*_TABLE, *scaling_numbers.MUTANTS)
