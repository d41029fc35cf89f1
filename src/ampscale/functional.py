"""
The public verbs: arguments are checked here, once, and the work is the backend's that owns the arrays.

Spec: SCALING-scale-refused, SCALING-mixed-refused, OVERFLOW-in-place-checked.
"""

from typing import Any

from .backends import Backend, get_backend, network_of
from .core import step
from .core.replicas import SINGLE_REPLICA, Communicator
from .core.rule import LossScaleRule
from .core.step import StepReport, TrainState
from .core.typing import Array, Flag, Scale, Tree
from .core.validation import check_methods, check_number, check_out, check_scalable, check_scale_host
from .parsing import excerpt


def scale(tree: Tree, scale: Scale) -> Tree:
    """
    *tree* times *scale*, as new arrays of the same dtypes.

    Args:
        tree: Floating-point or complex arrays of any shape, in tuples, lists, dicts and NamedTuples; None is kept.
        scale: float32 or float64, shape () or (1,), or a Python number. Positive and finite.

    The product is taken in float32 (float64 for float64 arrays) and rounded once.

    Raises:
        TypeError: Something in *tree* is no array, is not floating-point, or comes from another library or device;
            or *scale* is no number.
        ValueError: *scale* is NaN, infinite, zero or negative, or of another shape.

    Spec: SCALING-scale, SCALING-round-once, SCALING-dtype-kept.
    """
    return check_unscale(tree, scale).scale(tree, scale)


def unscale(tree: Tree, scale: Scale, dtype: str | None = None) -> Tree:
    """
    *tree* divided by *scale*, as new arrays; a true division, rounded once.

    Args:
        tree: As for `scale`.
        scale: As for `scale`.
        dtype: "float32" or "float64": real arrays narrower than this come out in it, wider ones keep theirs.

    Raises:
        TypeError: As for `scale`.
        ValueError: As for `scale`; or *dtype* is no such name.

    Spec: SCALING-unscale-divides, SCALING-round-once, SCALING-widen.
    """
    _check_dtype(dtype)
    return check_unscale(tree, scale).unscale(tree, scale, dtype)


def all_finite(tree: Tree) -> Flag:
    """
    Whether no array in *tree* holds an infinity or a NaN: bool, shape ().

    Args:
        tree: Arrays of any shape and dtype. Integers are finite; a complex number is where both parts are.

    True for a tree without arrays.

    Raises:
        TypeError: Something in *tree* is no array, or comes from another library or device.

    Spec: OVERFLOW-all-finite, OVERFLOW-empty, OVERFLOW-integers, OVERFLOW-complex.
    """
    return get_backend(tree).all_finite(tree)


def unscale_and_check(tree: Tree, scale: Scale, out: Tree = None, dtype: str | None = None) -> tuple[Tree, Flag]:
    """
    *tree* divided by *scale*, and whether the gradients were finite before and after: bool, shape ().

    Args:
        tree: As for `scale`.
        scale: As for `scale`.
        out: Where to write the result: arrays of the same shapes and dtypes; *tree* itself to unscale in place. After an
            interrupt it may be written in part: compute the gradients again.
        dtype: As for `unscale`; not together with *out*.

    Raises:
        TypeError: As for `scale`; or an array of *out* has another dtype or cannot be changed.
        ValueError: As for `scale`; or an array of *out* is missing, read-only or of another shape. Nothing has been
            written then.

    Spec: OVERFLOW-both-sides, OVERFLOW-in-place, OVERFLOW-in-place-checked.
    """
    _check_dtype(dtype, out)
    return check_unscale(tree, scale, out).unscale_and_check(tree, scale, out, dtype)


def unscale_check_and_norm(tree: Tree, scale: Scale, out: Tree = None, dtype: str | None = None) -> tuple[Tree, Flag, Array]:
    """
    `unscale_and_check`, and the `global_norm` of the unscaled values.

    Raises:
        TypeError, ValueError: As for `unscale_and_check`.

    Spec: OVERFLOW-both-sides, NORMS-global.
    """
    _check_dtype(dtype, out)
    return check_unscale(tree, scale, out).unscale_check_and_norm(tree, scale, out, dtype)


def global_norm(tree: Tree) -> Array:
    """
    The Euclidean norm of all values together: shape (), float32, or float64 where *tree* holds float64.

    Raises:
        TypeError: Something in *tree* is no array, is not floating-point, or comes from another library or device.

    Spec: NORMS-global, NORMS-accumulate-wide.
    """
    return _check(tree).global_norm(tree)


def local_norms(tree: Tree) -> Array:
    """
    The Euclidean norm of each array: shape (number of arrays,), dtype as for `global_norm`.

    Raises:
        TypeError: As for `global_norm`.

    Spec: NORMS-local.
    """
    return _check(tree).local_norms(tree)


def clip_by_global_norm(tree: Tree, max_norm: float) -> tuple[Tree, Array]:
    """
    *tree* scaled down to a global norm of about *max_norm*, and the norm it had.

    Args:
        tree: Unscaled gradients: floating-point or complex arrays of any shape.
        max_norm: Positive and finite.

    Returns:
        New arrays of the same dtypes, and the norm before clipping. The coefficient is MindFormers':
        ``max_norm / (max(norm, max_norm) + 1e-6)``.

    Raises:
        TypeError: As for `global_norm`; or *max_norm* is no number.
        ValueError: *max_norm* is NaN, infinite, zero or negative.

    Spec: NORMS-clip, NORMS-clip-under-limit, NORMS-clip-before.
    """
    backend = _check(tree)
    check_number(max_norm, "max_norm", "a positive, finite number", 0, above=True)
    return backend.clip_by_global_norm(tree, max_norm)


def init_train_state(params: Tree, optimizer: Any, rule: LossScaleRule) -> TrainState:
    """
    The state before the first step, for `train_step`.

    Args:
        params: Floating-point arrays in tuples, lists, dicts and NamedTuples; the state is made where the first one is.
        optimizer: Gives ``init(params)`` and ``update(gradients, state, params)``.
        rule: The constants of the scaler.

    Raises:
        TypeError: *params* holds something that is no array, or arrays of more than one library or device; or
            *optimizer* or *rule* is not what it must be.

    Spec: STEP-counters.
    """
    get_backend(params)
    check_methods(optimizer, "optimizer", "init", "update")
    _check_type(rule, "rule", LossScaleRule)
    return step.init_train_state(params, optimizer, rule)


def train_step(
    network: Any,
    optimizer: Any,
    rule: LossScaleRule,
    state: TrainState,
    *inputs: Any,
    max_norm: float | None = None,
    communicator: Communicator = SINGLE_REPLICA,
) -> tuple[TrainState, StepReport]:
    """
    One step of training, as a pure function: the next state, and what happened.

    Args:
        network: A `Network`, a `torch.nn.Module` that returns its loss, or anything with `params` and
            ``vjp(params, *inputs) -> (loss, pullback)``.
        optimizer: Gives ``init(params)`` and ``update(gradients, state, params)``: one of `ampscale.optimizers`, or an
            optax transformation.
        rule: The constants of the scaler.
        state: From `init_train_state`, or from the step before.
        inputs: Handed to the network as they are.
        max_norm: Clip the unscaled gradients to this global norm.
        communicator: How to agree with the other replicas.

    Raises:
        TypeError: *network*, *optimizer*, *rule* or *state* is not what it must be.
        ValueError: *max_norm* is NaN, infinite, zero or negative.

    Spec: STEP-order, STEP-skip, STEP-report.
    """
    if not callable(getattr(network, "vjp", None)):  # torch.compile would take params that are looked at for the state's
        network = network_of(network)
    check_methods(optimizer, "optimizer", "init", "update")
    check_methods(communicator, "communicator", "mean", "all_finite")
    _check_type(rule, "rule", LossScaleRule)
    _check_type(state, "state", TrainState)
    if max_norm is not None:
        check_number(max_norm, "max_norm", "a positive, finite number", 0, above=True)
    return step.train_step(
        network, optimizer, rule, state, *inputs,
        max_norm=max_norm, communicator=communicator, kernels=get_backend(state.params),
    )  # fmt: skip


def _check_type(value: Any, name: str, wanted: type) -> None:
    if not isinstance(value, wanted):
        raise TypeError(f"{name} must be a {wanted.__name__}, got {excerpt(value)} of type {type(value).__name__}")


def _check_dtype(dtype: str | None, out: Tree = None) -> None:
    if dtype is not None and not (isinstance(dtype, str) and dtype in ("float32", "float64")):
        raise ValueError(f"dtype must be 'float32', 'float64' or None, got {excerpt(dtype)}")
    if dtype is not None and out is not None:
        raise ValueError(f"dtype must be None where out is given, since out has its own dtypes, got {dtype!r}")


def _check(tree: Tree) -> Backend:
    backend = get_backend(tree)
    check_scalable(tree)
    return backend


def check_unscale(tree: Tree, scale: Scale, out: Tree = None) -> Backend:
    """Return the backend that scales or unscales *tree*, after the arguments were checked; nothing has been written."""
    check_scale_host(scale)
    backend = get_backend(tree, scale=None if isinstance(scale, int | float) else scale, out=None if out is tree else out)
    check_scalable(tree)
    if out is not None:
        check_out(out, tree)
    return backend
