"""
Communicator of a mapped axis of JAX, inside `jax.shard_map`, `jax.pmap` or `jax.vmap`.

The ranks of a process run one traced program, so their settings are equal, and JAX itself waits for all ranks. Each process
traces its own program; `JaxAxis.check_same` compares the settings of processes if it is called outside of tracing. Plain
`jax.jit` over global arrays needs no communicator: the flag of a global array is already the flag of all its shards.

Spec: spec/60-replicas.md.
"""

import math
import operator
from collections.abc import Sequence
from functools import partial, reduce
from itertools import count
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax._src.core import trace_state_clean  # JAX has no public function that tells whether it is tracing
from jax._src.distributed import global_state  # JAX has no public way to its coordination service

from ..backends.jax import kernels
from ..backends.jax.mapped_axes import varying_axes
from ..backends.jax.norms import lifted_norm
from ..core.dtypes import compute_dtype
from ..core.norms import LIFTS, LiftedNorm, norm_dtype
from ..core.replicas import Agreement, RankError, rank_names
from ..core.scaling import real_parts
from ..core.trees import leaves, leaves_with_paths, unflatten
from ..core.typing import Array, Flag, Tree
from ..core.validation import check_scalable
from ..parsing import excerpt
from .communicator import GradientLayout, checked_timeout
from .comparison import difference, setting_texts, to_text

_exchange_numbers = count()  # one for each exchange of this process, which is part of the keys in the coordination service


class JaxAxis:
    """
    Ranks along one or more mapped axes of JAX.

    Call `ampscale.train_step` inside the mapped function. A `TrainState` that enters with ``in_specs=P()`` has the same bits on
    all ranks after every step and leaves with ``out_specs=P()``. Each rank's report contains the loss of that rank.

    The states of the ranks are not compared, since a compiled program cannot raise an error. With ``check_vma=True``, JAX
    rejects a state that leaves with ``P()`` but can differ between ranks. Otherwise, ranks whose scales differ compute wrong
    gradients; to detect this, pass ``jax.lax.pmax(scale, "data") == jax.lax.pmin(scale, "data")`` to
    `jax.experimental.checkify.check`.

    Args:
        axis_name: Name of the axis of all ranks that share the scale, or a tuple of names.
        gradients: "replicated" if all ranks have the same arrays, "sharded" if each has a part of every array, "distinct" if
            each has its own arrays, such as the stages of a pipeline.
        mean: True to average replicated gradients; False if they have been averaged already. Default: True if *gradients* is
            "replicated".
        copies: Number of ranks that have the same values, for the norm of sharded and distinct gradients: one number, or one
            for each array.
        timeout: Seconds that `check_same` waits for the other processes.

    Raises:
        TypeError: An argument has the wrong type.
        ValueError: An argument is out of range.

    Spec: REPLICAS-mean, REPLICAS-one-flag, REPLICAS-agreed-norm.

    >>> mean = jax.vmap(JaxAxis("data").mean, axis_name="data")
    >>> mean(jnp.float16([[1.0, 60000.0], [3.0, 60000.0]]))
    Array([[2.e+00, 6.e+04],
           [2.e+00, 6.e+04]], dtype=float16)
    """

    def __init__(
        self,
        axis_name: str | tuple[str, ...],
        *,
        gradients: str = "replicated",
        mean: bool | None = None,
        copies: int | Sequence[int] = 1,
        timeout: float = 60.0,
    ) -> None:
        self._layout = GradientLayout(gradients, mean, copies)
        self._timeout = checked_timeout(timeout)
        self._axes = (axis_name,) if isinstance(axis_name, str) else axis_name
        if not isinstance(self._axes, tuple) or not self._axes or not all(isinstance(name, str) for name in self._axes):
            raise TypeError(f"axis_name must be a str or a non-empty tuple of str, got {excerpt(axis_name)}")

    def mean(self, tree: Tree) -> Tree:
        """
        Return the mean of each array over all ranks; *tree* itself if gradients are not averaged.

        16-bit arrays are added in float32, and the mean is rounded once.

        Raises:
            TypeError: An array is neither floating-point nor complex.
            ValueError: In `jax.shard_map` with ``check_vma=True``, an array does not vary over the axis: either JAX has added it
                up, as the gradient of a parameter that does not vary, or the loss is a mean over the axis.

        Spec: REPLICAS-mean, REPLICAS-accumulation-dtype.
        """
        arrays = leaves(tree)
        if not self._layout.averages or not arrays:
            return tree
        check_scalable(tree)
        self._check_varying(arrays)
        paths = [path for path, _ in leaves_with_paths(tree)]
        # All processes add in the order of the paths, even if they have inserted the keys of a dict in different orders.
        order = sorted(range(len(arrays)), key=paths.__getitem__)
        totals = self._sum([arrays[index].astype(_sum_dtype(arrays[index])) for index in order])
        means = {index: self._mean(total).astype(arrays[index].dtype) for index, total in zip(order, totals, strict=True)}
        return unflatten(tree, [means[index] for index in range(len(arrays))])

    def agree(self, finite: Flag, state: Tree, gradients: Tree, *, norm: bool = False) -> Agreement:
        """
        Implement `Communicator.agree`, without comparing the states of the ranks.

        Returns:
            An `Agreement` that is equal on all ranks; with ``check_vma=True``, JAX recognizes this. The norm equals
            `ampscale.global_norm` of the whole arrays bit for bit, unless adding in a different order changes how a float64 sum
            is rounded. It is computed in float64 even without jax_enable_x64.

        Spec: REPLICAS-one-flag, REPLICAS-agreed-norm.
        """
        arrays, overflow = leaves(gradients), jnp.logical_not(finite)
        if not norm or self._layout.name == "replicated":
            return Agreement(self._sum(overflow.astype(jnp.int32)) == 0, len(arrays) > 0)
        dtype = norm_dtype(arrays)
        with jax.enable_x64(True):
            rows = self._square_sums(arrays, dtype)
            vector = jnp.concatenate([jnp.reshape(overflow.astype(jnp.float64), 1), *map(jnp.ravel, rows)])
            overflows, *totals = self._sum(vector)
            return Agreement(overflows == 0, len(arrays) > 0, self._norm(totals, arrays, dtype))

    def check_same(self, **settings: Any) -> None:
        """
        Compare settings that must be equal on all processes, such as the rule: call this on each process before the first step.

        Within a traced program, where `ampscale.train_step` calls this method, and in a run of one process, nothing is compared.

        Raises:
            RankError: The processes differ in a setting, or a process does not call this method within the time limit. The
                message names each process by its `jax.process_index`.
            RuntimeError: `jax.distributed.initialize` was not called.

        Spec: REPLICAS-settings-compared, REPLICAS-time-limit.
        """
        # `jax.process_count` can start JAX's backend, which waits for the other processes without this time limit.
        if not trace_state_clean() or (global_state.client is None and jax.process_count() == 1):
            return
        axis_settings = self._layout.settings() | {"axis_name": list(self._axes)}
        texts = self._exchanged(to_text(axis_settings | setting_texts(settings)))
        if (message := difference(texts, list(range(len(texts))))) is not None:
            raise RankError(message)

    def _exchanged(self, text: str) -> list[str]:
        """Send *text* to all processes through JAX's coordination service, and return the text of each."""
        service: Any = global_state.client
        if service is None:
            raise RuntimeError("check_same() of several processes requires jax.distributed.initialize(), which was not called")
        key = f"ampscale/{next(_exchange_numbers)}"
        service.key_value_set(f"{key}/{global_state.process_id}", text)
        cause = None
        try:
            service.wait_at_barrier(key, math.ceil(1000 * self._timeout))
        except jax.errors.JaxRuntimeError as error:
            cause = error
        texts = {int(name.split("/")[-1]): value for name, value in service.key_value_dir_get(key)}
        if cause is not None:  # if no text is missing, this process was late, and the others have raised an error
            missing = [process for process in range(global_state.num_processes or 1) if process not in texts]
            absent = rank_names(missing or [global_state.process_id])
            raise RankError(f"{absent} did not respond within {self._timeout:g} s") from cause
        return [texts[process] for process in sorted(texts)]

    def _sum(self, values: Any) -> Any:
        """Return the sums of arrays over all ranks, in one collective."""
        return jax.lax.psum(values, self._axes)  # type: ignore[no-untyped-call]

    def _mean(self, total: Array) -> Array:
        """Divide a sum over all ranks by the number of ranks, rounding once."""
        return kernels.unscaled(total, np.float32(jax.lax.axis_size(self._axes)), None).value

    def _check_varying(self, arrays: list[Array]) -> None:
        """Raise a ValueError if an array is equal on all ranks, since JAX has already added up or averaged their gradients."""
        varying = varying_axes(jax.lax.axis_index(self._axes))  # empty unless check_vma=True
        for index, array in enumerate(arrays):
            if missing := sorted(varying - varying_axes(array)):
                raise ValueError(
                    f"gradients to be averaged must vary over the axis, got array {index} of {array.dtype.name}{array.shape}, "
                    f"which is equal on all ranks of {missing}: JAX adds up the gradients of parameters that do not vary. "
                    f"Differentiate with respect to jax.lax.pcast(params, {missing}, to='varying'), or pass check_vma=False to "
                    "jax.shard_map. If the loss is a mean over the axis, pass mean=False to JaxAxis"
                )

    def _square_sums(self, arrays: list[Array], dtype: str) -> list[Array]:
        """Return sums of squares that ranks can add up: one per real or imaginary part, or one sum for distinct gradients."""
        counts = self._layout.copies_of(arrays)
        pairs = [(part, 1 / count) for array, count in zip(arrays, counts, strict=True) for part in real_parts(array)]
        sums = [_scaled(kernels.squared(part, dtype).squares, share) for part, share in pairs]
        if self._layout.name == "distinct" and sums:  # arrays of different ranks do not correspond
            plus = operator.add if dtype == "float32" else partial(kernels.plus, norm_dtype=dtype)
            sums = [reduce(plus, sums)]
        return sums if dtype == "float32" else [_addable(*row) for row in sums]

    def _norm(self, totals: list[Array], arrays: list[Array], dtype: str) -> LiftedNorm:
        """Return the norm from the total of the `_square_sums` of all ranks. Requires ``jax.enable_x64(True)``."""
        size = 1 if dtype == "float32" else 3  # totals for each part or rank; see `_addable`
        sums = [_lifted(*totals[start : start + size]) for start in range(0, len(totals), size)]
        if self._layout.name == "distinct":
            return lifted_norm(sums, dtype)
        add = partial(kernels.plus, norm_dtype=dtype)
        remaining = iter(sums)  # the sums of all parts, one array after the other
        return lifted_norm([reduce(add, [next(remaining) for _ in real_parts(array)]) for array in arrays], dtype)


def _sum_dtype(array: Array) -> Any:
    """Return the dtype in which ranks add up *array*: float32 for a 16-bit array."""
    return array.dtype if jnp.iscomplexobj(array) else compute_dtype(array.dtype.name)


def _scaled(total: Array, share: float) -> Array:
    """Multiply a sum of squares in the form of `kernels.plus` by *share*."""
    return total * share if total.ndim == 0 else total * jnp.asarray([share, 1.0])


def _addable(square: Array, lift: Array) -> Array:
    """
    Return three sums of squares that ranks can add: of the values times 1, times `down` and times `up`.

    The argument *square* is the sum of the squares of the values times *lift*. The third sum is 0 unless *lift* is `up`.
    """
    down, up, _ = LIFTS["float64"]
    is_down, is_up = lift < 1, lift > 1
    # Avoid constant factors: XLA would square a constant factor first, and 2**-1200 underflows.
    to_plain, to_lowered = jnp.where(is_up, 1 / up, 1.0), jnp.where(is_down, 1.0, down)
    plain = jnp.where(is_down, jnp.inf, square * to_plain * to_plain)
    lowered = jnp.where(is_up, 0, square * to_lowered * to_lowered)
    return jnp.stack([plain, lowered, jnp.where(is_up, square, 0)])


def _lifted(plain: Array, *lifted: Array) -> Array:
    """Convert the totals of `_addable` sums to the form of `kernels.plus`. Without *lifted*, return *plain*, a float32 sum."""
    if not lifted:
        return plain
    down, up, least = LIFTS["float64"]
    is_large, is_tiny = jnp.isinf(plain), plain < least * least
    square = jnp.where(is_large, lifted[0], jnp.where(is_tiny, lifted[1], plain))
    return jnp.stack([square, jnp.where(is_large, down, jnp.where(is_tiny, up, 1.0))])
