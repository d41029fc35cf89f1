"""
Base class of communicators of processes. A subclass adds the operations of an engine, such as the sum of a vector over all ranks.

`mean` and `agree` both start with the sum of a small float64 vector that has the same length on all ranks. It contains a hash of
the settings and of the call, so that a difference is detected in the same collective: then all ranks exchange their settings and
raise the same error. If the vector of a rank would have a new length, the rank sums a vector of the old length instead, which
announces the change and makes all ranks compare their settings before they sum vectors of the new length. `mean` adds up the
gradients only after this first sum, when their sizes are known to be equal.

Spec: REPLICAS-settings-compared, REPLICAS-scale-compared, REPLICAS-mean, REPLICAS-accumulation-dtype, REPLICAS-agreed-norm.
"""

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from operator import mul
from typing import Any, TypeVar

import array_api_compat
import numpy as np

from ..core.dtypes import INTEGERS, name_of
from ..core.namespaces import as_array, namespace_of, quiet
from ..core.norms import LiftedNorm, norm_dtype, norm_of_sums, square_sums
from ..core.replicas import Agreement, RankError
from ..core.scaling import from_real_parts, real_parts
from ..core.trees import leaves, structure, unflatten
from ..core.typing import Array, Flag, Tree
from ..core.validation import check_bool, check_count, check_number
from ..parsing import excerpt
from .comparison import STRUCTURE, array_paths, array_texts, difference, setting_texts, to_text

LAYOUTS = ("replicated", "sharded", "distinct")
WORDS = 4  # 16-bit words of a float64 number; a vector contains each word and its square
START = 1 + 2 * WORDS  # number of values with which each vector starts: announcement (0 or 1), words of the hash, their squares
FLAGS = 3  # number of flags of `agree`: overflow, has gradients, has float64 gradients

Result = TypeVar("Result")


class HostAgreement(Agreement):
    """Agreement whose flag has been read on the host, so that callers need not copy it to the host again."""

    is_finite: bool


class GradientLayout:
    """Layout of the gradients over the ranks: the arguments that all communicators have in common."""

    def __init__(self, gradients: str, mean: bool | None, copies: int | Sequence[int]) -> None:
        if gradients not in LAYOUTS:
            raise ValueError(f"gradients must be one of {list(LAYOUTS)}, got {excerpt(gradients)}")
        if mean is not None:
            check_bool(mean, "mean")
        if mean and gradients != "replicated":
            raise ValueError(f"mean must be False or None for {gradients} gradients, which differ between ranks, got True")
        counts = copies if isinstance(copies, Sequence) else [copies]
        for count in counts:
            check_count(count, "copies")
        self.name = gradients
        self.averages = gradients == "replicated" and mean is not False
        self._copies = copies

    def settings(self) -> dict[str, Any]:
        """Return those of the arguments that must be equal on all ranks."""
        settings: dict[str, Any] = {"argument gradients": self.name, "mean": self.averages}
        if self.name == "sharded":
            settings["copies"] = self._copies if isinstance(self._copies, int) else list(self._copies)
        return settings

    def copies_of(self, arrays: list[Array]) -> Sequence[int]:
        """Return the number of copies of each array; raise a ValueError if `copies` and *arrays* differ in length."""
        if isinstance(self._copies, int):
            return [self._copies] * len(arrays)
        if arrays and len(self._copies) != len(arrays):
            raise ValueError(f"gradients must be {len(self._copies)} arrays, one for each item of copies, got {len(arrays)}")
        return self._copies if arrays else []


class RankCommunicator(ABC):
    """Communicator of processes. A subclass implements the operations of an engine, and documents the arguments."""

    rank: int  # number of this rank
    ranks: list[int]  # number of each rank, in the order of the engine

    def __init__(self, gradients: str, mean: bool | None, copies: int | Sequence[int], timeout: float) -> None:
        self._layout = GradientLayout(gradients, mean, copies)
        self._timeout = checked_timeout(timeout)
        self._settings = self._layout.settings()
        self.optimizer_counts = Counter[int]()  # shared by all scalers that use this communicator; see `OptimizerNumbers`
        self._structure: list[Any] | None = None  # structure of the gradients whose paths `_settings` contains
        self._length: int | None = None  # length of the last vector on all ranks; None before the first vector and after an error
        self._failure: str | None = None  # message of the first failed collective; all later ones fail with it

    def __reduce__(self) -> Any:
        """Reject copies and pickles, since the other ranks would have no counterpart."""
        raise TypeError(f"{type(self).__name__} cannot be copied or pickled: create one on each rank")

    @abstractmethod
    def _check(self, arrays: list[Array]) -> None:
        """Raise a TypeError unless the engine supports the library of *arrays*."""

    @abstractmethod
    def _shards(self, arrays: list[Array]) -> tuple[list[Array], list[int]]:
        """Return this rank's shard of each array, and the number of ranks to which the array itself copies each value."""

    @abstractmethod
    def _zeros(self, length: int) -> Array:
        """Return zeros: float64, shape (length,)."""

    @abstractmethod
    def _words(self, number: Array | float) -> Array:
        """Return the 16-bit words of a float64 copy of *number* as numbers: float64, shape (WORDS,)."""

    @abstractmethod
    def _sum(self, vector: Array) -> Array:
        """Return the sum of a float32 or float64 vector over all ranks, with the same bits on each rank."""

    @abstractmethod
    def _gather(self, array: np.ndarray) -> np.ndarray:
        """Return the arrays of all ranks, which have the same shape and dtype, in the order of `ranks`: shape (ranks, *shape)."""

    def _exchange(self, text: str) -> list[str]:
        """Send *text* to all ranks, and return the text of each."""
        encoded = np.frombuffer(text.encode(), np.uint8)
        sizes = self._gather(np.asarray(len(encoded), np.int32))
        rows = self._gather(np.pad(encoded, (0, int(sizes.max()) - len(encoded))))
        return [row[:size].tobytes().decode() for row, size in zip(rows, sizes, strict=True)]

    @property
    def averages(self) -> bool:
        """Return True if `mean` averages gradients; all ranks then have equal gradients."""
        return self._layout.averages

    def exchange(self, text: str) -> list[str]:
        """
        Send *text* to all ranks, and return the text of each, in the order of `ranks`. All ranks must call this method.

        Raises:
            RankError: A rank makes another call, has other settings, or does not respond.
        """
        self._first_sum("exchange")
        return self._run(self._exchange, text)

    def mean(self, tree: Tree) -> Tree:
        """
        Return the mean of each array over all ranks; *tree* itself if gradients are not averaged.

        16-bit arrays are added in float32, and the mean is rounded once.

        Raises:
            RankError: Ranks differ in settings, or in number, shapes, dtypes or keys of arrays; or a rank does not respond.
            TypeError: An array is neither floating-point nor complex, or is of a library that the engine does not support.

        Spec: REPLICAS-mean, REPLICAS-sizes-compared, REPLICAS-accumulation-dtype.
        """
        if not self._layout.averages:
            return tree
        arrays = leaves(tree)
        self._check(arrays)
        self._record_gradients(tree, arrays, shapes=True)
        flat = _flat(arrays)
        self._first_sum("mean")
        # Raise the error only now: the ranks have the same dtypes, so all of them raise it, and none waits for this rank.
        if unsupported := sorted({name_of(array.dtype) for array in arrays} & INTEGERS):
            raise TypeError(f"gradients must be floating-point or complex, got {', '.join(unsupported)}")
        if not arrays:
            return tree
        with quiet(namespace_of(arrays)):
            return unflatten(tree, _split(self._run(self._sum, flat) / len(self.ranks), arrays))

    def agree(self, finite: Flag, state: Tree, gradients: Tree, *, norm: bool = False) -> Agreement:
        """
        Implement `Communicator.agree`.

        Raises:
            RankError: Ranks differ in state, gradients or settings; or a rank does not respond.
            TypeError: *state* contains an object that is neither a number nor an array.
            ValueError: *state* is empty or has an array of a shape other than () or (1,), or the number of gradients differs from
                the length of `copies`.

        Spec: REPLICAS-one-flag, REPLICAS-scale-compared, REPLICAS-agreed-norm, REPLICAS-copies-counted-once.
        """
        arrays, numbers = leaves(gradients), _numbers(state)
        copies = self._layout.copies_of(arrays)
        with_norm = norm and self._layout.name != "replicated"
        if self._layout.name != "distinct" and not self._layout.averages:
            self._record_gradients(gradients, arrays, shapes=self._layout.name == "replicated")
        values = self._values(finite, numbers, arrays, copies if with_norm else None)
        int_count = FLAGS + 2 * WORDS * len(numbers)
        totals, sums = self._first_sum("agree", values, int_count, state=list(numbers), norm=with_norm)
        overflows, ranks_with_gradients, ranks_with_float64 = totals[:FLAGS]
        if not self._are_equal(totals[FLAGS:]):
            self._compare({name: float(number) for name, number in numbers.items()})
        lifted = None
        if with_norm:
            self._compare_norm_dtypes(arrays, ranks_with_float64, ranks_with_gradients)
            lifted = self._norm(sums, arrays, bool(ranks_with_float64))
            if arrays:  # the engine can have another library
                lifted = LiftedNorm(*(as_array(part, arrays[0]) for part in lifted))
        flag = _flag_like(not overflows, next(iter(numbers.values())))
        agreement = HostAgreement(flag, ranks_with_gradients > 0, lifted)
        agreement.is_finite = not overflows
        return agreement

    def check_same(self, **settings: Any) -> None:
        """
        Implement `Communicator.check_same`: record the settings, which the next collective compares.

        Spec: REPLICAS-settings-compared.
        """
        self._settings.update(setting_texts(settings))

    def _record_gradients(self, tree: Tree, arrays: list[Array], *, shapes: bool) -> None:
        """Record the dtypes, the paths and, if *shapes* is True, the shapes of gradients, which must be equal on all ranks."""
        self._settings["gradients"] = array_texts(arrays, shapes=shapes)
        if (new_structure := structure(tree)) != self._structure:
            self._structure, self._settings[STRUCTURE] = new_structure, list(array_paths(iter(new_structure)))

    def _values(self, finite: Flag, numbers: Mapping[str, Any], arrays: list[Array], copies: Sequence[int] | None) -> Array:
        """Return the values of this rank for `agree`: flags, words of *numbers*, and sums of squares unless *copies* is None."""
        words = self._words_and_squares(list(numbers.values()))
        xp = array_api_compat.array_namespace(words)
        gradient_flags = as_array([bool(arrays), norm_dtype(arrays) == "float64"], words, words.dtype)
        parts = [1 - _as_number(finite, words), gradient_flags, words]
        if copies is not None:
            parts.append(self._square_sums(arrays, copies, words))
        return xp.concat(parts)

    def _square_sums(self, arrays: list[Array], copies: Sequence[int], like: Array) -> Array:
        """Return sums of squares that ranks can add, in the library and on the device of *like*."""
        xp = array_api_compat.array_namespace(like)
        if not arrays:
            return xp.zeros_like(like[:3])
        shards, own_copies = self._shards(arrays)
        sums = as_array(square_sums(shards, list(map(mul, copies, own_copies))), like)
        if self._layout.name == "sharded":
            return sums
        # Ranks with distinct gradients differ in number of arrays, so each adds up the sums of its arrays.
        return xp.concat([sums[:2], xp.reshape(xp.sum(sums[2:]), (1,))])

    def _words_and_squares(self, numbers: list[Any]) -> Array:
        """Return each word of *numbers*, followed by the square of the word."""
        words = [self._words(number) for number in numbers]
        xp = array_api_compat.array_namespace(words[0])
        values = xp.concat([as_array(word, words[0]) for word in words])
        return xp.reshape(xp.stack([values, values * values], axis=1), (-1,))

    def _are_equal(self, totals: list[int]) -> bool:
        """
        Return True if all ranks had equal words. *totals* alternates sums of words and sums of their squares.

        Cauchy-Schwarz: the square of a sum equals the number of ranks times the sum of squares only if all words are equal.
        """
        return all(len(self.ranks) * squares == word**2 for word, squares in zip(totals[::2], totals[1::2], strict=True))

    def _norm(self, sums: Array, arrays: list[Array], is_float64: bool) -> LiftedNorm:
        """Return the norm from the sums of squares of all ranks."""
        if self._layout.name == "sharded" and arrays:
            return norm_of_sums(sums, arrays)
        xp = array_api_compat.array_namespace(sums)
        # One empty array stands for the gradients of all ranks: there is one sum for all of them, and the array sets the dtype.
        dtype = xp.float64 if is_float64 else xp.float32
        return norm_of_sums(sums, [xp.astype(sums[:0], dtype)])

    def _compare_norm_dtypes(self, arrays: list[Array], ranks_with_float64: int, ranks_with_gradients: int) -> None:
        """Raise a RankError if some ranks with distinct gradients have float64 gradients, and others have only narrower ones."""
        if self._layout.name == "distinct" and 0 < ranks_with_float64 < ranks_with_gradients:
            self._compare({"dtype of the norm": norm_dtype(arrays) if arrays else None})

    def _first_sum(self, call: str, values: Array | None = None, int_count: int = 0, **arguments: Any) -> tuple[list[int], Array]:
        """
        Check that all ranks have the same settings, *call* and *arguments*, and return the sums of *values* over all ranks.

        The check and *values* share one collective. The first *int_count* sums are returned as ints, the others as an array.
        """
        if values is None:  # zeros keep the length of the vector, since a new length would cost further collectives
            values = self._zeros((self._length or START) - START)
        settings = {"call": call, **self._settings, **arguments}
        vector = self._vector(settings, values)
        if self._length is None:
            self._compare(settings)
        length_changes = self._length not in (None, len(vector))
        totals = self._run(self._sum, self._announcement() if length_changes else vector)
        announced, *integers = map(int, totals[: START + int_count].tolist())
        if announced or not self._are_equal(integers[: START - 1]):
            self._compare(settings)
            totals = self._run(self._sum, vector)
            integers = list(map(int, totals[1 : START + int_count].tolist()))
        self._length = len(vector)
        return integers[START - 1 :], totals[START + int_count :]

    def _vector(self, settings: dict[str, Any], values: Array) -> Array:
        """Return the vector to add up: 0 (no `_announcement`), a hash of *settings* as words and their squares, and *values*."""
        digest = float(int(sha256(to_text(settings).encode()).hexdigest()[:12], 16))  # 48 bits, which float64 represents
        xp = array_api_compat.array_namespace(values)
        words = as_array(self._words_and_squares([digest]), values)
        return xp.concat([xp.zeros_like(words[:1]), words, values])

    def _announcement(self) -> Array:
        """Return a vector of the length that the other ranks expect, which makes all of them exchange their settings."""
        vector = self._zeros(self._length or 0)
        vector[0] = 1
        return vector

    def _compare(self, settings: dict[str, Any]) -> None:
        """Raise a RankError unless all ranks have the same *settings*. The settings are exchanged only if their hashes differ."""
        text = to_text(settings)
        self._length = None  # stays None if the comparison fails
        if len(set(self._run(self._exchange, sha256(text.encode()).hexdigest()))) > 1:
            raise RankError(difference(self._run(self._exchange, text), self.ranks))

    def _run(self, collective: Callable[[Any], Result], argument: Any) -> Result:
        """Run a collective. After an error or interrupt, all later calls raise a RankError, since other ranks may still wait."""
        if self._failure:
            raise RankError(self._failure)
        try:
            return collective(argument)
        except BaseException as error:
            interrupted = f"a collective of rank {self.rank} was interrupted: {error!r}"
            self._failure = str(error) if isinstance(error, RankError) else interrupted
            raise


def checked_timeout(timeout: float) -> float:
    """Return *timeout* if it is a positive number of seconds that every engine can represent; raise an error otherwise."""
    check_number(timeout, "timeout", "a positive number of seconds of at most 1e9", 0, 1e9, above=True)
    return timeout


def _numbers(state: Tree) -> dict[str, Any]:
    """Return the numbers of *state* by their names; a state that is only a scale gets the name "scale"."""
    if not isinstance(state, dict):
        state = {"scale": state}
    numbers = {name: number for name, number in state.items() if number is not None}
    if not numbers:
        raise ValueError(f"state must have at least one number, got {excerpt(state)}")
    for name, number in numbers.items():
        is_array = hasattr(number, "shape")
        if isinstance(number, int | float) or (is_array and math.prod(number.shape) == 1):
            continue
        error = ValueError if is_array else TypeError
        raise error(f"{name} must be a number or an array of shape () or (1,), got {excerpt(number)}")
    return numbers


def _as_number(finite: Flag, like: Array) -> Array:
    """Return *finite* as 0.0 or 1.0 of shape (1,), in the library and on the device of *like*."""
    xp = array_api_compat.array_namespace(like)
    if type(finite) is not type(like):
        return xp.full_like(like[:1], float(bool(finite)))
    return as_array(xp.astype(xp.reshape(finite, (1,)), like.dtype), like)


def _flag_like(value: bool, number: Array | float) -> Flag:
    """Return *value* as a bool array in the library and on the device of *number*; for a Python number, *value* itself."""
    if isinstance(number, int | float):
        return value
    xp = array_api_compat.array_namespace(number)
    return xp.full((), value, dtype=xp.bool, device=array_api_compat.device(number))  # created on the device without a copy


def _flat(arrays: list[Array]) -> Array:
    """Return all values in one float32 or float64 vector; None without arrays."""
    if not arrays:
        return None
    xp = namespace_of(arrays)
    dtype = getattr(xp, norm_dtype(arrays))
    with quiet(xp):
        return xp.concat([xp.astype(xp.reshape(part, (-1,)), dtype) for array in arrays for part in real_parts(array)])


def _split(flat: Array, arrays: list[Array]) -> list[Array]:
    """Return *flat* in pieces with the shapes and dtypes of *arrays*."""
    results, start = [], 0
    for array in arrays:
        size, parts = math.prod(array.shape), []
        for _ in real_parts(array):
            parts.append(flat[start : start + size])
            start += size
        results.append(from_real_parts(parts, array))
    return results
