"""The border: what the public verbs refuse, with what was wanted and what came, before anything has changed."""

import math
from collections import OrderedDict

import array_api_strict
import numpy as np
import pytest
from linear import network
from strategies import DTYPES, alike

import ampscale

F32 = np.float32
WRAPS = ["number", "float32", "float64", "shape-1"]
WITH_SCALE = [ampscale.scale, ampscale.unscale, ampscale.unscale_and_check, ampscale.unscale_check_and_norm]
WITH_OUT = pytest.mark.parametrize("verb", WITH_SCALE[2:])
SCALABLE = [
    *[pytest.param(lambda tree, verb=verb: verb(tree, 2.0), id=verb.__name__) for verb in WITH_SCALE],
    ampscale.global_norm,
    ampscale.local_norms,
    pytest.param(lambda tree: ampscale.clip_by_global_norm(tree, 1.0), id="clip_by_global_norm"),
]
ALL = [*SCALABLE, ampscale.all_finite]


@pytest.mark.clause("SCALING-scale-refused")
@pytest.mark.parametrize("verb", WITH_SCALE)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 0.0, -0.0, 0, -1.0, -(2**-1074)], ids=repr)
@pytest.mark.parametrize("wrap", [lambda value: value, F32, np.float64, lambda value: np.asarray([value], float)], ids=WRAPS)
def test_a_scale_that_is_not_positive_and_finite_is_refused(verb, value, wrap):
    """NaN, the infinities, zero and negative numbers are ValueErrors, as numbers and as arrays."""
    with pytest.raises(ValueError, match=r"^scale must be a positive, finite number .*got ") as error:
        verb(np.ones(2, F32), wrap(value))
    assert float(str(error.value).rpartition("got ")[2]) == pytest.approx(value, abs=2**-1074, nan_ok=True)


@pytest.mark.clause("SCALING-scale-refused")
@pytest.mark.parametrize("verb", WITH_SCALE)
def test_a_scale_beyond_all_floats_is_refused(verb):
    """An integer that no float can hold is as good as infinite."""
    with pytest.raises(ValueError, match=r"^scale must be a positive, finite number .*got 1000"):
        verb(np.ones(2, F32), 10**400)


@pytest.mark.clause("SCALING-scale-refused")
@pytest.mark.parametrize("value", [1e300, 1e-300, np.asarray(1e300)], ids=["large", "small", "array"])
def test_a_scale_beyond_float32_is_refused(value):
    """A scale that is infinite or zero in float32 is as good as one, beside a leaf that is scaled there."""
    for verb in WITH_SCALE:
        with pytest.raises(ValueError, match=r"^scale must be a positive, finite number"):
            verb(np.ones(2, F32), value)


@pytest.mark.clause("SCALING-scale-type")
@pytest.mark.parametrize("verb", WITH_SCALE)
@pytest.mark.parametrize(
    "value",
    [
        True, "2", None, [2.0], 2j, np.True_, np.float16(2), np.asarray(2, DTYPES["bfloat16"]), np.int64(2), np.asarray(2j),
        np.asarray("2"),
    ],
    ids=repr,
)  # fmt: skip
def test_a_scale_of_another_type_is_refused(verb, value):
    """Bools, strings, None, lists, complex numbers and arrays that are not float32 or float64 are TypeErrors."""
    with pytest.raises(TypeError, match=r"^(scale|dtype) must be .*, got "):
        verb(np.ones(2, F32), value)


@pytest.mark.clause("SCALING-scale-type")
@pytest.mark.parametrize("verb", WITH_SCALE)
@pytest.mark.parametrize("shape", [(2,), (0,), (1, 1)], ids=repr)
def test_a_scale_of_another_shape_is_refused(verb, shape):
    """An array that is neither of shape () nor of shape (1,) is a ValueError."""
    with pytest.raises(ValueError, match=r"^scale must have shape \(\) or \(1,\), got \(") as error:
        verb(np.ones(2, F32), np.ones(shape, F32))
    assert str(error.value).endswith(f"got {shape}")


@pytest.mark.clause("SCALING-float-leaves")
@pytest.mark.parametrize("verb", SCALABLE)
@pytest.mark.parametrize("dtype", ["bool", "int8", "uint64"])
def test_an_integer_leaf_is_refused(verb, dtype):
    """An integer cannot be scaled: a TypeError that names its path and its dtype."""
    with pytest.raises(TypeError, match=rf"^tree\['w'\]\[1\] must be floating-point or complex .*, got {dtype}$"):
        verb({"w": [np.ones(1, F32), np.ones(1, dtype)]})


@pytest.mark.clause("SCALING-float-leaves")
@pytest.mark.parametrize("verb", ALL)
def test_a_leaf_that_is_no_array_is_refused(verb):
    """The error names the path from the argument as it was given."""
    with pytest.raises(TypeError, match=r"^tree\['w'\]\[1\] must be an array, .*, got float$"):
        verb(OrderedDict(w=(np.ones(1, F32), 1.0)))


@pytest.mark.clause("SCALING-mixed-refused")
@pytest.mark.parametrize("verb", ALL)
def test_mixed_libraries_are_refused(verb):
    """Arrays of two libraries are a TypeError that names the path, the library and the device of each."""
    tree = {"a": np.ones(1, F32), "b": [array_api_strict.ones(1)]}
    with pytest.raises(TypeError, match=r"tree\['a'\] is numpy on cpu; tree\['b'\]\[0\] is array_api_strict on .*CPU_DEVICE"):
        verb(tree)


@pytest.mark.clause("SCALING-mixed-refused")
@pytest.mark.parametrize("verb", ALL)
def test_mixed_devices_are_refused(verb):
    """Arrays on two devices of one library are refused in the same way."""
    tree = [array_api_strict.ones(1), array_api_strict.ones(1, device=array_api_strict.Device("device1"))]
    with pytest.raises(TypeError, match=r"tree\[0\] is array_api_strict on .*CPU_DEVICE.*; tree\[1\] is .*device1"):
        verb(tree)


@pytest.mark.clause("SCALING-mixed-refused")
@pytest.mark.parametrize("verb", WITH_SCALE)
def test_a_scale_of_another_library_is_refused(verb):
    """A scale is an array like the others, and named like them."""
    with pytest.raises(TypeError, match=r"tree is numpy on cpu; scale is array_api_strict on"):
        verb(np.ones(1), array_api_strict.asarray(2.0))


@pytest.mark.clause("SCALING-widen")
@pytest.mark.parametrize("verb", [ampscale.unscale, *WITH_SCALE[2:]])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int32", "double", F32], ids=str)
def test_widening_goes_to_32_or_64_bits(verb, dtype):
    """Any other dtype is refused: to be narrowed, or rounded to another 16 bits, is not to be widened."""
    with pytest.raises(ValueError, match=r"^dtype must be 'float32', 'float64' or None, got "):
        verb(np.ones(1, DTYPES["bfloat16"]), 2.0, dtype=dtype)


def frozen(array):
    """*array*, read-only."""
    array.flags.writeable = False
    return array


@pytest.mark.clause("OVERFLOW-in-place-checked")
@WITH_OUT
@pytest.mark.parametrize(
    "second",
    [
        frozen(np.zeros(2, F32)),
        np.zeros(3, F32),
        np.zeros((2, 1), F32),
        np.zeros(2, np.float64),
        np.zeros(2, np.float16),
    ],
    ids=["read-only", "longer", "other-shape", "wider", "narrower"],
)
def test_an_out_that_does_not_fit_is_refused_before_it_is_written(verb, second):
    """Also where only a later array is at fault, the error names it and no array has been touched."""
    first = np.zeros(2, F32)
    error = ValueError if second.dtype == F32 else TypeError
    with pytest.raises(error, match=r"^out: tree\[1\] must "):
        verb([np.ones(2, F32), np.ones(2, F32)], 2.0, out=[first, second])
    assert alike(first, np.zeros(2, F32))
    assert not second.any()


@pytest.mark.clause("OVERFLOW-in-place-checked")
@WITH_OUT
def test_a_read_only_gradient_stays_whole(verb):
    """In place, a read-only gradient is a ValueError, and the gradients before it have not been unscaled."""
    tree = {"a": np.full(2, 8, F32), "b": frozen(np.full(2, 8, F32))}
    with pytest.raises(ValueError, match=r"tree\['b'\] must be writable, got a read-only array"):
        verb(tree, 2.0, out=tree)
    assert alike(tree["a"], np.full(2, 8, F32))


@pytest.mark.clause("OVERFLOW-in-place-checked")
@WITH_OUT
@pytest.mark.parametrize("out", [[], [np.zeros(1)], [np.zeros(1), None], {"a": np.zeros(1), "b": np.zeros(1)}], ids=repr)
def test_an_out_of_another_structure_is_refused(verb, out):
    """A tree that lacks an array is a ValueError that says which arrays were wanted."""
    with pytest.raises(ValueError, match=r"^out must have the arrays .*tree\[1\]"):
        verb([np.ones(1), np.ones(1)], 2.0, out=out)


@pytest.mark.clause("OVERFLOW-in-place-checked")
@WITH_OUT
def test_what_is_no_array_in_an_out_is_named_as_such(verb):
    """By the name of the argument in which it is."""
    with pytest.raises(TypeError, match=r"^out\[1\] must be an array, or a tuple, list or dict of arrays, or None, got float$"):
        verb([np.ones(1), np.ones(1)], 2.0, out=[np.ones(1), 1.0])


def strict_on(device):
    """An array of another library."""
    return array_api_strict.ones(1, device=array_api_strict.Device(device))


class Unhashable(str):
    """A device as CuPy has them: to be compared, and nothing else."""

    __slots__ = ()
    __hash__ = None


@pytest.mark.clause("SCALING-mixed-refused")
def test_devices_need_no_hash(monkeypatch):
    """One device is told from two by comparing them."""
    monkeypatch.setattr("array_api_compat.device", lambda array: Unhashable(array.device))
    tree = [strict_on("CPU_DEVICE"), strict_on("CPU_DEVICE")]
    assert ampscale.backend_of(tree).NAME == "generic"
    with pytest.raises(TypeError, match="arrays must come from one library and one device"):
        ampscale.backend_of([*tree, strict_on("device1")])


@pytest.mark.clause("SCALING-float-leaves", "SCALING-mixed-refused", "OVERFLOW-in-place-checked")
@pytest.mark.parametrize(
    ("make", "odd", "error", "message"),
    [
        (lambda: np.ones(1), "w", TypeError, r"^tree\[500\] must be an array, or a tuple, .* got str$"),
        (lambda: np.ones(1), np.ones(1, np.int32), TypeError, r"^tree\[500\] must be floating-point or complex .* got int32$"),
        (lambda: np.ones(1), frozen(np.ones(1)), ValueError, r"^out: tree\[500\] must be writable, got a read-only array$"),
        (lambda: np.ones(1), np.float64(1), TypeError, r"^out: tree\[500\] must be an array that can be changed, got float64$"),
        (
            lambda: np.ones(1),
            strict_on("CPU_DEVICE"),
            TypeError,
            r"tree\[7\] is numpy on cpu; 991 more are numpy on cpu; tree\[500\] is array_api_strict on .*CPU",
        ),
        (
            lambda: strict_on("CPU_DEVICE"),
            strict_on("device1"),
            TypeError,
            r"; 991 more are array_api_strict on .*CPU.*; tree\[500\] is .*device1",
        ),
    ],
    ids=["no-array", "integer", "read-only", "scalar", "library", "device"],
)
def test_one_odd_leaf_among_a_thousand_is_named(make, odd, error, message):
    """Wherever it stands, and before anything is written."""
    tree = [make() for _ in range(1000)]
    tree[500] = odd
    with pytest.raises(error, match=message):
        ampscale.unscale_and_check(tree, 2.0, out=tree)
    assert all(float(leaf[0]) == 1 for place, leaf in enumerate(tree) if place != 500)


@WITH_OUT
def test_an_out_has_its_own_dtypes(verb):
    """To widen and to write in place at once is refused."""
    tree = [np.ones(1, np.float16)]
    with pytest.raises(ValueError, match=r"^dtype must be None where out is given"):
        verb(tree, 2.0, out=tree, dtype="float32")


@pytest.mark.clause("NORMS-limit-checked")
@pytest.mark.parametrize(
    ("limit", "error"),
    [
        *[(value, ValueError) for value in (math.nan, math.inf, -math.inf, 0, -1.0, 10**400)],
        *[(value, TypeError) for value in (True, "1", None, [1.0], F32(1))],
    ],
    ids=lambda value: getattr(value, "__name__", None) or str(value)[:8],
)
def test_a_limit_is_positive_and_finite(limit, error):
    """NaN, infinite, zero and negative limits are ValueErrors; what is no number is a TypeError; in a step as well."""
    with pytest.raises(error, match=r"^max_norm must be a positive, finite number, got "):
        ampscale.clip_by_global_norm(np.ones(2), limit)
    if limit is not None:
        with pytest.raises(error, match=r"^max_norm must be a positive, finite number, got "):
            ampscale.train_step(*step_arguments(), [np.ones(1, F32)], max_norm=limit)


def step_arguments(**changed):
    """What a step is called with, but for the inputs."""
    model, rule = network([np.ones(1, F32)]), ampscale.LossScaleRule()
    optimizer = ampscale.optimizers.SGD(model)
    state = ampscale.init_train_state(model.params, optimizer, rule)
    return list({"network": model, "optimizer": optimizer, "rule": rule, "state": state, **changed}.values())


@pytest.mark.parametrize("name", ["network", "optimizer", "rule", "state"])
@pytest.mark.parametrize("value", [None, 3, max], ids=repr)
def test_a_step_names_the_argument_that_cannot_be(name, value):
    """What is no network, optimizer, rule or state is a TypeError that says which it was."""
    with pytest.raises(TypeError, match=f"^{name} must .*, got {value!r}"):
        ampscale.train_step(*step_arguments(**{name: value}), [np.ones(1, F32)])


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"params": [1.0]}, r"^tree\[0\] must be an array"),
        ({"optimizer": max}, r"^optimizer must have the methods \['init', 'update'\], got"),
        ({"rule": 2.0**16}, r"^rule must be a LossScaleRule, got 65536.0"),
    ],
)
def test_a_first_state_names_the_argument_that_cannot_be(changed, message):
    """What a step would refuse is refused before there is a state."""
    model = network([np.ones(1, F32)])
    good = {"params": model.params, "optimizer": ampscale.optimizers.SGD(model), "rule": ampscale.LossScaleRule()}
    with pytest.raises(TypeError, match=message):
        ampscale.init_train_state(**{**good, **changed})


@pytest.mark.clause("STEP-order")
def test_the_public_step_is_the_step_of_the_core():
    """With good arguments the verb does what its definition does."""
    state, report = ampscale.train_step(*step_arguments(), [np.asarray([2.0], F32)], max_norm=100.0)
    assert alike(state.params[0], np.asarray([0.98], F32))
    assert float(report.global_norm) == 2


def test_the_verbs_return_what_the_core_defines(library):
    """Each verb gives the values of its definition, on any library."""
    tree, get = {"w": library.array([6.0, 8.0]), "b": None}, library.to_numpy
    assert alike(get(ampscale.scale(tree, 2.0))["w"], np.asarray([12, 16], F32))
    assert alike(get(ampscale.unscale(tree, 2.0))["w"], np.asarray([3, 4], F32))
    unscaled, finite, norm = get(ampscale.unscale_check_and_norm(tree, 2.0))
    assert alike(unscaled["w"], get(ampscale.unscale_and_check(tree, 2.0))[0]["w"])
    assert finite == get(ampscale.unscale_and_check(tree, 2.0))[1] == get(ampscale.all_finite(tree)) == np.True_
    assert norm == 5
    assert ampscale.local_norms([tree, tree["w"]]).shape == (2,)
    assert get(ampscale.global_norm(tree)) == get(ampscale.clip_by_global_norm(tree, 1.0))[1] == 10
