"""
Public functions. Each validates its arguments once and dispatches to the backend that owns the arrays.

Spec: SCALING-scale-rejected, SCALING-mixed-rejected, OVERFLOW-in-place-checked.
"""

from typing import Any

from .backends import Backend, get_backend, network_of
from .core import step, trees
from .core.replicas import SINGLE_REPLICA, Communicator
from .core.rule import LossScaleRule
from .core.step import StepReport, TrainState
from .core.typing import Array, DType, Flag, Scale, Tree
from .core.validation import (
    check_bool,
    check_methods,
    check_out,
    check_positive,
    check_scalable,
    check_scale_host,
    check_type,
    result_dtype,
)


def scale(tree: Tree, scale: Scale) -> Tree:
    """
    Multiply the arrays of *tree* by *scale*; return new arrays of the same dtypes.

    The product is computed in float32 (float64 for float64 arrays) and rounded once.

    Args:
        tree: Floating-point or complex arrays in nested tuples, lists, dicts and NamedTuples; None is kept.
        scale: Positive, finite Python number, or float32 or float64 array of shape () or (1,).

    Raises:
        TypeError: *tree* contains an array of another dtype or an object that is not an array, arrays come from more than one
            library or device, or *scale* has the wrong type or dtype.
        ValueError: *scale* is a number or NumPy array that is not positive and finite, or has a shape other than () or (1,).

    Spec: SCALING-scale, SCALING-round-once, SCALING-dtype-kept.

    >>> scale({"w": np.float16([0.5, 0.25]), "b": None}, 1024.0)
    {'w': array([512., 256.], dtype=float16), 'b': None}
    """
    return backend_for_scaling(tree, scale).scale(tree, scale)


def unscale(tree: Tree, scale: Scale, dtype: DType | None = None) -> Tree:
    """
    Divide the arrays of *tree* by *scale*; return new arrays. This is a true division, whose result is rounded once.

    Args:
        tree: Floating-point or complex arrays in nested tuples, lists, dicts and NamedTuples; None is kept.
        scale: Positive, finite Python number, or float32 or float64 array of shape () or (1,).
        dtype: float32 or float64, as a dtype or a name: widen narrower real arrays to it. Other arrays keep their dtype.

    Raises:
        TypeError: As for `scale`; or *dtype* is not a dtype, or is float64 on JAX without jax_enable_x64.
        ValueError: As for `scale`; or *dtype* is another dtype.

    Spec: SCALING-unscale-divides, SCALING-round-once, SCALING-widen.

    >>> gradient = np.float16([2.0**-14])
    >>> unscale(gradient, 2.0**12), unscale(gradient, 2.0**12, dtype="float32")  # 2**-26 is below the range of float16
    (array([0.], dtype=float16), array([1.4901161e-08], dtype=float32))
    """
    dtype = result_dtype(dtype)
    return backend_for_scaling(tree, scale).unscale(tree, scale, dtype)


def all_finite(tree: Tree) -> Flag:
    """
    Return a bool of shape () on the device of the arrays: True if no array in *tree* contains an infinity or a NaN.

    Args:
        tree: Floating-point, complex, integer or bool arrays. Integers are finite; a complex number is finite if both parts
            are. A tree without arrays is finite.

    Raises:
        TypeError: *tree* contains an array of another dtype or an object that is not an array, or arrays from more than one
            library or device.
        RankError: For DTensors on gloo: a rank does not take part within the time limit.

    Spec: OVERFLOW-all-finite, OVERFLOW-empty, OVERFLOW-integers, OVERFLOW-complex.

    >>> bool(all_finite([np.float32([1.0, 2.0])])), bool(all_finite([np.float32([1.0]), np.float32([np.nan])]))
    (True, False)
    """
    return get_backend(tree).all_finite(tree)


def unscale_and_check(tree: Tree, scale: Scale, out: Tree = None, dtype: DType | None = None) -> tuple[Tree, Flag]:
    """
    Divide the arrays of *tree* by *scale*, and check them for infinities and NaNs.

    Args:
        tree: Floating-point or complex arrays in nested tuples, lists, dicts and NamedTuples; None is kept.
        scale: Positive, finite Python number, or float32 or float64 array of shape () or (1,).
        out: Arrays that receive the result, with the shapes and dtypes of *tree*; pass *tree* itself to unscale in place. After
            a KeyboardInterrupt they may be partly overwritten: compute the gradients again.
        dtype: float32 or float64, as a dtype or a name: widen narrower real arrays to it. Cannot be combined with *out*.

    Returns:
        The unscaled tree, and a bool of shape (): True if all values are finite before and after the division.

    Raises:
        TypeError: An argument, or an array in *tree* or *out*, has the wrong type, dtype, library or device.
        ValueError: *scale* or *dtype* is invalid, or *out* is read-only or does not match *tree*. Nothing was written.
        RankError: For DTensors on gloo: a rank does not take part within the time limit.

    Spec: OVERFLOW-both-sides, OVERFLOW-in-place, OVERFLOW-in-place-checked.

    >>> unscaled, finite = unscale_and_check({"w": np.float32([2048.0, 512.0]), "b": np.float32([np.inf])}, 1024.0)
    >>> unscaled["w"], bool(finite)
    (array([2. , 0.5], dtype=float32), False)
    """
    dtype = result_dtype(dtype, out)
    return backend_for_scaling(tree, scale, out).unscale_and_check(tree, scale, out, dtype)


def unscale_check_and_norm(tree: Tree, scale: Scale, out: Tree = None, dtype: DType | None = None) -> tuple[Tree, Flag, Array]:
    """
    Return the results of `unscale_and_check`, and the `global_norm` of the unscaled values.

    The arguments are those of `unscale_and_check`.

    Raises:
        TypeError, ValueError, RankError: As for `unscale_and_check`.

    Spec: OVERFLOW-both-sides, NORMS-global.

    >>> unscaled, finite, norm = unscale_check_and_norm([np.float32([3072.0]), np.float32([4096.0])], 1024.0)
    >>> bool(finite), float(norm)
    (True, 5.0)
    """
    dtype = result_dtype(dtype, out)
    return backend_for_scaling(tree, scale, out).unscale_check_and_norm(tree, scale, out, dtype)


def global_norm(tree: Tree) -> Array:
    """
    Compute the Euclidean norm of all values of *tree* together.

    Args:
        tree: Floating-point or complex arrays in nested tuples, lists, dicts and NamedTuples.

    Returns:
        An array of shape (): float32, or float64 if *tree* contains float64 or complex128. Zero for a tree without arrays.

    Raises:
        TypeError: *tree* contains an array of another dtype or an object that is not an array, or arrays from more than one
            library or device.
        RankError: For DTensors on gloo: a rank does not take part within the time limit.

    Spec: NORMS-global, NORMS-accumulation-dtype.

    >>> float(global_norm([np.float16([3.0]), np.float16([4.0])]))
    5.0
    """
    return _validated_backend(tree).global_norm(tree)


def local_norms(tree: Tree) -> Array:
    """
    Compute the Euclidean norm of each array of *tree*.

    Args:
        tree: Floating-point or complex arrays in nested tuples, lists, dicts and NamedTuples.

    Returns:
        An array of shape (number of arrays,) in the order of the tree; dtype as for `global_norm`.

    Raises:
        TypeError, RankError: As for `global_norm`.

    Spec: NORMS-local.

    >>> local_norms({"w": np.float32([3.0, 4.0]), "b": np.float32([2.0])})
    array([5., 2.], dtype=float32)
    """
    return _validated_backend(tree).local_norms(tree)


def clip_by_global_norm(tree: Tree, max_norm: float, out: Tree = None) -> tuple[Tree, Array]:
    """
    Clip *tree* by its global norm; return the result and the norm before clipping.

    Every array is multiplied by ``max_norm / (max(norm, max_norm) + 1e-6)``, as in MindFormers.

    Args:
        tree: Unscaled gradients: floating-point or complex arrays of any shape.
        max_norm: Upper bound of the norm; positive and finite.
        out: As for `unscale_and_check`; pass *tree* itself to clip in place.

    Returns:
        A tree of new arrays with the dtypes of *tree*, or *out* if it is given; and the `global_norm` of *tree* before clipping.

    Raises:
        TypeError: As for `global_norm`; or *max_norm* is not a number, or *out* has a different dtype, library or device.
        ValueError: *max_norm* is not positive and finite, or *out* is read-only or does not match *tree*. Nothing was written.
        RankError: As for `global_norm`.

    Spec: NORMS-clip, NORMS-clip-under-limit, NORMS-clip-before, OVERFLOW-in-place, OVERFLOW-in-place-checked.

    >>> clipped, norm = clip_by_global_norm([np.float32([3.0, 4.0])], max_norm=1.0)
    >>> clipped[0].round(3), float(norm)
    (array([0.6, 0.8], dtype=float32), 5.0)
    """
    check_positive(max_norm, "max_norm")
    return _validated_backend(tree, out).clip_by_global_norm(tree, max_norm, out)


def measure(tree: Tree) -> Array:
    """
    Count the values of each array of *tree* that are zero, non-finite or too small for float16, and find the extreme exponents.

    Args:
        tree: Floating-point or complex arrays in nested tuples, lists, dicts and NamedTuples; None is skipped.

    Returns:
        An int32 array of shape (number of arrays, 8). A complex number counts as two values. The columns are:

        - size, zeros: numbers of all values and of zeros.
        - subnormals: number of non-zero magnitudes below 2**-14, the smallest normal float16.
        - underflows: number of non-zero magnitudes of at most 2**-25, which float16 rounds to zero.
        - infinities, nans: numbers of infinities and NaNs.
        - smallest: exponent floor(log2(m)) of the smallest non-zero, finite magnitude m; 32767 if there is none.
        - largest: exponent of the largest finite magnitude; -32768 if there is no non-zero, finite value.

        For a sparse torch tensor, the coalesced values are counted; for a DTensor, the values of the local shard.

    Raises:
        TypeError: As for `global_norm`.
        ValueError: An array has 2**31 or more values.

    Spec: STATISTICS-columns, STATISTICS-thresholds, STATISTICS-exponents, STATISTICS-limit, STATISTICS-shards.

    >>> measure({"w": np.float32([0.0, 2.0**-15, 2.0**-26, -6.0]), "b": np.float16([np.inf, 1.0])})
    array([[  4,   1,   2,   1,   0,   0, -26,   2],
           [  2,   0,   0,   0,   1,   0,   0,   0]], dtype=int32)
    """
    return _validated_backend(tree).measure(tree)


def unscale_check_and_measure(tree: Tree, scale: Scale, out: Tree = None, dtype: DType | None = None) -> tuple[Tree, Flag, Array]:
    """
    Return the results of `unscale_and_check`, and the statistics of `measure` for the values before the division.

    With the compiled kernels, NumPy arrays and torch CPU tensors are unscaled, checked and measured in one pass.

    The arguments are those of `unscale_and_check`.

    Raises:
        TypeError, ValueError, RankError: As for `unscale_and_check` and `measure`.

    Spec: OVERFLOW-both-sides, STATISTICS-before-unscaling.

    >>> unscaled, finite, statistics = unscale_check_and_measure([np.float32([3072.0, 0.0])], 1024.0)
    >>> unscaled, bool(finite), statistics[0, -2:]
    ([array([3., 0.], dtype=float32)], True, array([11, 11], dtype=int32))
    """
    dtype = result_dtype(dtype, out)
    return backend_for_scaling(tree, scale, out).unscale_check_and_measure(tree, scale, out, dtype)


def exponent_histogram(tree: Tree) -> Array:
    """
    Count the non-zero, finite values of each array of *tree* by their exponent floor(log2(m)), where m is the magnitude.

    Args:
        tree: As for `measure`.

    Returns:
        An int32 array of shape (number of arrays, 278), with one column for each exponent from -150 to 127. In a float64
        array, values with smaller exponents are counted in the first column, and values with larger ones in the last.

    Raises:
        TypeError, ValueError: As for `measure`.

    Spec: STATISTICS-histogram.

    >>> counts = exponent_histogram([np.float32([1.0, 1.5, -4.0, 0.0, np.inf])])
    >>> counts.shape, counts[0, 150:153]
    ((1, 278), array([2, 0, 1], dtype=int32))
    """
    return _validated_backend(tree).exponent_histogram(tree)


def init_train_state(params: Tree, optimizer: Any, rule: LossScaleRule) -> TrainState:
    """
    Create the state before the first `train_step`, with counts of zero.

    Args:
        params: Floating-point arrays in nested tuples, lists, dicts and NamedTuples. The state is created in the library and
            on the device of the first array.
        optimizer: One of `ampscale.optimizers`, or an object with the `init` and `update` of an optax transformation.
        rule: Constants of the loss scaler.

    Raises:
        TypeError: *params* contains an object that is not an array, or arrays from more than one library or device; or
            *optimizer* or *rule* has the wrong type.

    Spec: STEP-counters.

    >>> network = ampscale.Network(lambda w, x: anp.sum(w * x), np.float32([1.0, 2.0]))
    >>> optimizer, rule = ampscale.optimizers.SGD(network, 0.5), ampscale.LossScaleRule(init_scale=2.0**15)
    >>> state = init_train_state(network.params, optimizer, rule)
    >>> state.params, float(state.scaler.scale), int(state.attempted)
    (array([1., 2.], dtype=float32), 32768.0, 0)
    """
    trees.leaves(params, "params")
    get_backend(params)
    check_methods(optimizer, "optimizer", "init", "update")
    check_type(rule, "rule", LossScaleRule)
    return step.init_train_state(params, optimizer, rule)


def train_step(
    network: Any,
    optimizer: Any,
    rule: LossScaleRule,
    state: TrainState,
    *inputs: Any,
    max_norm: float | None = None,
    communicator: Communicator = SINGLE_REPLICA,
    measure: bool = False,
) -> tuple[TrainState, StepReport]:
    """
    Run one training step as a pure function, and return the next `TrainState` and a `StepReport`.

    On an overflow, only the scaler and the count `attempted` change. If there are no gradients, only `attempted` changes.

    Args:
        network: A `Network`, a `torch.nn.Module` that returns its loss, or an object with `params` and
            ``vjp(params, *inputs) -> (loss, pullback)``.
        optimizer: One of `ampscale.optimizers`, or an object with the `init` and `update` of an optax transformation.
        rule: Constants of the loss scaler.
        state: Result of `init_train_state` or of the previous step.
        inputs: Passed to the network unchanged.
        max_norm: If given, clip the unscaled gradients to this global norm.
        communicator: Averages gradients, and combines flags and norms of all ranks; see `ampscale.distributed`.
        measure: True to report the statistics of the scaled gradients of this rank; see `ampscale.measure`.

    Raises:
        TypeError: *network*, *optimizer*, *rule*, *state*, *communicator* or *measure* has the wrong type.
        ValueError: *max_norm* is not positive and finite.
        RankError: The ranks of *communicator* differ in settings or gradients, or a rank does not respond.

    Spec: STEP-order, STEP-skip, STEP-report.

    >>> network = ampscale.Network(lambda w, x: anp.sum(w * x), np.float32([1.0, 2.0]))
    >>> optimizer, rule = ampscale.optimizers.SGD(network, 0.5), ampscale.LossScaleRule(init_scale=2.0**15)
    >>> state = ampscale.init_train_state(network.params, optimizer, rule)
    >>> state, report = ampscale.train_step(network, optimizer, rule, state, np.float32([1.0, np.inf]))
    >>> bool(report.applied), state.params, float(report.next_scale)
    (False, array([1., 2.], dtype=float32), 16384.0)
    """
    # Do not read network.params here: torch.compile would confuse its arrays with those of *state.params*.
    if not callable(getattr(network, "vjp", None)):
        network = network_of(network)
    check_methods(optimizer, "optimizer", "init", "update")
    check_methods(communicator, "communicator", "mean", "agree", "check_same")
    check_type(rule, "rule", LossScaleRule)
    step.check_train_state(state)
    check_bool(measure, "measure")
    if max_norm is not None:
        check_positive(max_norm, "max_norm")
    return step.train_step(
        network, optimizer, rule, state, *inputs,
        max_norm=max_norm, communicator=communicator, kernels=get_backend(state.params), measure=measure,
    )  # fmt: skip


def backend_for_scaling(tree: Tree, scale: Scale, out: Tree = None) -> Backend:
    """Validate the arguments of a function that scales or unscales arrays, and return the backend that owns the arrays."""
    check_scale_host(scale)
    return _validated_backend(tree, out, None if isinstance(scale, int | float) else scale)


def _validated_backend(tree: Tree, out: Tree = None, scale: Array | None = None) -> Backend:
    """Validate the arrays of the arguments, and return the backend that owns them."""
    backend = get_backend(tree, scale=scale, out=None if out is tree else out)
    check_scalable(tree)
    if out is not None:
        check_out(out, tree)
    return backend
