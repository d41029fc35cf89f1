"""
Communicator of processes: what all engines share. An engine adds two operations, the sum of a vector and an exchange of texts.

A rank whose settings or gradients changed announces this in the first value of its next vector, which has the length that the
others expect. All ranks then exchange their settings, and repeat the collective if they are equal.

Spec: REPLICAS-settings-compared, REPLICAS-scale-compared, REPLICAS-mean, REPLICAS-accumulation-dtype, REPLICAS-agreed-norm.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import array_api_compat

from ..core.dtypes import COMPLEX_PARTS, accumulation_dtype, name_of
from ..core.namespaces import device_of, namespace_of, quiet
from ..core.norms import norm_of_sums, square_sums
from ..core.replicas import Agreement, RankError
from ..core.trees import leaves, unflatten
from ..core.typing import Array, Flag, Tree
from ..core.validation import check_bool, check_count, check_number
from ..parsing import excerpt
from .comparison import described, difference, to_text

LAYOUTS = ("replicated", "sharded", "distinct")
FIRST = 1024  # values of the first message of a mean, which has this length for all gradients
WORDS = 4  # 16-bit words of a float64 scale


class RankCommunicator(ABC):
    """
    Communicator of processes, with operations of an engine.

    Args:
        gradients: How the gradients of the ranks are related: "replicated" if all ranks have the same arrays, "sharded" if
            each has a part of every array, "distinct" if each has other arrays, such as the stages of a pipeline.
        mean: True to average replicated gradients; False if they have been averaged already, as by DDP. Default: True if
            *gradients* is "replicated".
        copies: Number of ranks that have the same values, for the norm of sharded and distinct gradients: one number, or one
            for each array.
        timeout: Seconds to wait for the other ranks.
    """

    ranks: list[int]  # number of each rank, in the order of the engine

    def __init__(self, gradients: str, mean: bool | None, copies: int | Sequence[int], timeout: float) -> None:
        if gradients not in LAYOUTS:
            raise ValueError(f"gradients must be one of {list(LAYOUTS)}, got {excerpt(gradients)}")
        if mean is not None:
            check_bool(mean, "mean")
        if mean and gradients != "replicated":
            raise ValueError(f"mean must be False or None for {gradients} gradients: they are different values on each rank")
        for count in [copies] if isinstance(copies, int) else copies:
            check_count(count, "copies")
        check_number(timeout, "timeout", "a positive number of seconds", 0, above=True)
        self._layout, self._copies, self._timeout = gradients, copies, timeout
        self._averages = gradients == "replicated" and mean is not False
        self._settings: dict[str, Any] = {}
        self._agreed: str | None = None  # settings that all ranks had when they last compared them
        self._length = 0  # of the last vector of `agree`
        self._failure: str | None = None

    @abstractmethod
    def _sum(self, vector: Array) -> Array:
        """Return the sum of a float32 or float64 vector over all ranks, with the same bits on each."""

    @abstractmethod
    def _exchange(self, text: str) -> list[str]:
        """Return the text of each rank, in the order of `ranks`."""

    @abstractmethod
    def _words(self, scale: Array) -> Array:
        """Return the 16-bit words of a float64 copy of *scale* as numbers: float64, shape (WORDS,)."""

    def mean(self, tree: Tree) -> Tree:
        """
        Return the mean of each array over all ranks; *tree* itself if gradients are not averaged.

        16-bit arrays are added in float32, and the mean is rounded once.

        Args:
            tree: Floating-point or complex arrays.

        Raises:
            RankError: The ranks have other numbers, shapes or dtypes of arrays, or other settings; or one does not respond.

        Spec: REPLICAS-mean, REPLICAS-sizes-compared, REPLICAS-accumulation-dtype.
        """
        if not self._averages:
            return tree
        arrays = leaves(tree)
        self._settings["gradients"] = described(arrays, shapes=True)
        xp = namespace_of(arrays)
        dtype = getattr(xp, accumulation_dtype([name_of(array.dtype) for array in arrays]))
        with quiet(xp):
            flat = [xp.astype(xp.reshape(part, (-1,)), dtype) for array in arrays for part in _real_parts(array)]
            flat = xp.concat([xp.zeros(1, dtype=dtype, device=device_of(arrays)), *flat])
            first = xp.concat([flat[:FIRST], xp.zeros(max(0, FIRST - len(flat)), dtype=dtype, device=device_of(arrays))])
            total = self._announced(lambda: first, FIRST)
            rest = [self._sum(flat[FIRST:])] if len(flat) > FIRST else []
            return unflatten(tree, _split(xp.concat([total, *rest])[1:] / len(self.ranks), arrays))

    def agree(self, finite: Flag, scale: Array, gradients: Tree, *, norm: bool = False) -> Agreement:
        """
        Combine the finite flags of all ranks, and the norms of their gradients, in one small collective.

        Args:
            finite: Flag of this rank's gradients; bool, shape ().
            scale: Loss scale of this rank; float32 or float64, shape () or (1,).
            gradients: Unscaled gradients of this rank; there may be none.
            norm: True if the global norm is needed.

        Raises:
            RankError: The ranks have other scales, gradients or settings; or one does not respond.

        Spec: REPLICAS-one-flag, REPLICAS-scale-compared, REPLICAS-agreed-norm, REPLICAS-copies-counted-once.
        """
        arrays = leaves(gradients)
        if self._layout != "distinct" and not self._averages:
            self._settings["gradients"] = described(arrays, shapes=self._layout == "replicated")
        with_norm = norm and self._layout != "replicated"
        if self._layout != "replicated":
            self._settings["norm"] = with_norm
        total = self._announced(lambda: self._vector(finite, scale, arrays, with_norm), self._length)
        self._length = len(total)
        _, overflows, with_gradients, *words = map(int, total[: 3 + 2 * WORDS].tolist())
        if any(len(self.ranks) * squares != word**2 for word, squares in zip(words[:WORDS], words[WORDS:], strict=True)):
            self._compare({"scale": float(scale)})
        lifted = norm_of_sums(total[3 + 2 * WORDS :], arrays or [total[:0]]) if with_norm else None
        return Agreement(_flag_like(not overflows, scale), with_gradients > 0, lifted)

    def check_same(self, **settings: Any) -> None:
        """
        Record settings that must be equal on all ranks, such as the rule. The next collective compares them.

        Args:
            settings: Values whose `repr` shows all differences.

        Spec: REPLICAS-settings-compared.
        """
        self._settings.update((name, repr(value)) for name, value in settings.items())

    def _vector(self, finite: Flag, scale: Array, arrays: list[Array], with_norm: bool) -> Array:
        """Return this rank's vector: 0, overflow, has gradients, the words of the scale, their squares, and sums of squares."""
        words = self._words(scale)
        xp = array_api_compat.array_namespace(words)
        flags = [xp.zeros_like(words[0]), _number(finite, words) != 1, xp.full_like(words[0], bool(arrays))]
        head = xp.concat([xp.stack([xp.astype(flag, words.dtype) for flag in flags]), words, words * words])
        if not with_norm:
            return head
        sums = square_sums(arrays, [self._copies] * len(arrays) if isinstance(self._copies, int) else self._copies)
        if self._layout == "distinct":  # other ranks have other numbers of arrays
            sums = xp.concat([sums[:2], xp.reshape(xp.sum(sums[2:]), (1,))])
        return xp.concat([head, sums])

    def _announced(self, vector: Callable[[], Array], length: int) -> Array:
        """
        Return the sum of a vector whose first value is 0, after all ranks have compared settings that changed.

        Args:
            vector: Returns this rank's vector.
            length: Length that the other ranks expect if their settings did not change.
        """
        if self._failure:
            raise RankError(self._failure)
        text = to_text(self._settings)
        if self._agreed is None:
            self._compare(self._settings)
        values = vector()
        if text != self._agreed:
            xp = array_api_compat.array_namespace(values)
            values = xp.zeros(length or len(values), dtype=values.dtype, device=array_api_compat.device(values))
            values[0] = 1
        total = self._sum(values)
        if total[0] == 0:
            return total
        self._compare(self._settings)
        return self._sum(vector())

    def _compare(self, settings: dict[str, Any]) -> None:
        """Raise a RankError unless all ranks have the same *settings*."""
        text, self._agreed = to_text(settings), None
        message = difference(self._exchange(text), self.ranks)
        if message is not None:
            raise RankError(message)
        self._agreed = text


def _number(finite: Flag, like: Array) -> Array:
    """Return *finite* as 0.0 or 1.0 of shape (), in the library and on the device of *like*."""
    xp = array_api_compat.array_namespace(like)
    if type(finite) is not type(like):
        return xp.full_like(like[0], float(bool(finite)))
    return xp.astype(xp.reshape(finite, ()), like.dtype)


def _flag_like(value: bool, scale: Array) -> Flag:
    return array_api_compat.array_namespace(scale).asarray(value, device=array_api_compat.device(scale))


def _real_parts(array: Array) -> list[Array]:
    """Return [array], or the real and the imaginary part of a complex array."""
    xp = array_api_compat.array_namespace(array)
    return [xp.real(array), xp.imag(array)] if name_of(array.dtype) in COMPLEX_PARTS else [array]


def _split(flat: Array, arrays: list[Array]) -> list[Array]:
    """Return *flat* in pieces with the shapes and dtypes of *arrays*."""
    xp = array_api_compat.array_namespace(flat)
    results, start = [], 0
    for array in arrays:
        size = math.prod(array.shape)
        parts = [flat[start + number * size : start + (number + 1) * size] for number in range(len(_real_parts(array)))]
        start += size * len(parts)
        value = xp.astype(parts[0], array.dtype) if len(parts) == 1 else xp.astype(parts[0] + 1j * parts[1], array.dtype)
        results.append(xp.reshape(value, array.shape))
    return results
