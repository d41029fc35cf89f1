"""Argument validation of the public functions. Each error states what was expected and what was passed."""

import math
import re
from collections import OrderedDict
from functools import partial

import array_api_strict
import numpy as np
import pytest
from errors import unexpected
from linear import network
from strategies import DTYPES, alike

import ampscale

F32 = np.float32
WITH_SCALE = [ampscale.scale, ampscale.unscale, ampscale.unscale_and_check, ampscale.unscale_check_and_norm]
WITH_OUT = WITH_SCALE[2:]
SCALABLE = [
    *[partial(call, scale=2.0) for call in WITH_SCALE],
    ampscale.global_norm,
    ampscale.local_norms,
    ampscale.measure,
    ampscale.exponent_histogram,
    partial(ampscale.clip_by_global_norm, max_norm=1.0),
]
ALL = [*SCALABLE, ampscale.all_finite]


def assert_rejected(functions, rows):
    """Assert that each function raises for the arguments of each row: positional and keyword arguments, error and pattern."""
    cases = [
        ((function, args, kwargs), partial(function, *args, **kwargs), error, pattern)
        for function in functions
        for args, kwargs, error, pattern in rows
    ]
    assert unexpected(cases) == []


def frozen(array):
    """Make *array* read-only, and return it."""
    array.flags.writeable = False
    return array


def strict_on(device):
    """Return an array of array_api_strict on a device."""
    return array_api_strict.ones(1, device=array_api_strict.Device(device))


@pytest.mark.clause("SCALING-scale-rejected", "SCALING-scale-type")
@pytest.mark.parametrize("function", WITH_SCALE)
def test_scale_must_be_positive_and_finite(function):
    """The message contains the value of a number, a NumPy scalar or an array, even if it is beyond the range of float32."""
    tree = np.ones(2, F32)
    message = r"^scale must be a positive, finite number .*got "
    for value in (math.nan, math.inf, -math.inf, 0.0, -0.0, 0, -1.0, -(2**-1074)):
        for scale in (value, F32(value), np.float64(value), np.asarray([value], float)):
            with pytest.raises(ValueError, match=message) as error:
                function(tree, scale)
            assert float(str(error.value).rpartition("got ")[2]) == pytest.approx(value, abs=2**-1074, nan_ok=True)
    for scale in (1e300, 1e-300, np.asarray(1e300), 10**400):
        with pytest.raises(ValueError, match=message):
            function(tree, scale)


@pytest.mark.clause("SCALING-scale-rejected", "SCALING-scale-type")
def test_scale_must_have_a_valid_type_and_shape():
    """An array belongs to the library of the tree. The message for a state of a scaler contains the remedy."""
    tree = np.ones(2, F32)
    types = [True, "2", None, F32, [2.0], 2j, np.True_, np.float16(2), np.asarray(2, DTYPES["bfloat16"]), np.int64(2)]
    types += [np.asarray(2j), np.asarray("2")]
    rows = [((tree, value), {}, TypeError, r"^(scale|the dtype of an array) must be .*, got ") for value in types]
    for shape in ((2,), (0,), (1, 1)):
        message = rf"^scale must have shape \(\) or \(1,\), got {re.escape(str(shape))}$"
        rows.append(((tree, np.ones(shape, F32)), {}, ValueError, message))
    message = r"scale from array_api_strict on .* rule.init\(like=array\)$"
    rows.append(((tree, array_api_strict.asarray(2.0)), {}, TypeError, message))
    message = r"^scale must be .* of type LossScaleState; pass state.scale$"
    rows.append(((tree, ampscale.LossScaleRule().init()), {}, TypeError, message))
    assert_rejected(WITH_SCALE, rows)


@pytest.mark.clause("SCALING-float-leaves", "SCALING-mixed-rejected")
def test_invalid_leaf_raises():
    """The error contains the path and the dtype or type. If libraries or devices differ, it lists all of them."""
    one, strict = np.ones(1, F32), array_api_strict.ones(1)
    integers = r"^tree\['w'\]\[1\] must be floating-point or complex, got "
    unpack = r"^tree\[1\] .*, got bool; unpack the result of unscale_and_check: gradients, finite = ...$"
    rows = [({"w": [one, np.ones(1, dtype)]}, f"{integers}{dtype}$") for dtype in ("bool", "int8", "uint64")]
    rows.append((ampscale.unscale_and_check([one], 2.0), unpack))
    assert_rejected(SCALABLE, [((tree,), {}, TypeError, message) for tree, message in rows])
    rows = [
        (OrderedDict(w=(one, 1.0)), r"^tree\['w'\]\[1\] must be an array, .*, got float$"),
        ({"a": one, "b": [strict]}, r"tree\['a'\] from numpy on cpu; tree\['b'\]\[0\] from array_api_strict on .*CPU_DEVICE"),
        ([strict, strict_on("device1")], r"tree\[0\] from array_api_strict on .*CPU_DEVICE.*; tree\[1\] from .*device1"),
    ]
    assert_rejected(ALL, [((tree,), {}, TypeError, message) for tree, message in rows])


@pytest.mark.clause("SCALING-widen")
def test_invalid_dtype_raises():
    """Only float32 and float64 are valid, and only without `out`."""
    tree = np.ones(1, DTYPES["bfloat16"])
    dtypes = {ValueError: ["float16", "bfloat16", "int32", "double", np.float16], TypeError: [float, np.zeros(2), 3]}
    wrong = "^dtype must be float32 or float64, as a dtype or a name, got "
    rows = [((tree, 2.0), {"dtype": dtype}, error, wrong) for error, values in dtypes.items() for dtype in values]
    assert_rejected([ampscale.unscale, *WITH_OUT], rows)
    both = {"out": [tree], "dtype": "float32"}
    assert_rejected(WITH_OUT, [(([tree], 2.0), both, ValueError, r"^dtype must be None if out is given")])


@pytest.mark.clause("SCALING-widen")
@pytest.mark.parametrize("dtype", [F32, np.dtype("float32"), np.dtype(">f4"), np.single], ids=repr)
def test_a_dtype_can_be_passed_instead_of_its_name(dtype):
    """The byte order of a dtype is ignored."""
    tree = np.ones(1, np.float16)
    assert ampscale.unscale(tree, 2.0, dtype).dtype == F32
    assert [function(tree, 2.0, dtype=dtype)[0].dtype for function in WITH_OUT] == [F32, F32]
    assert ampscale.unscale_check_and_measure(tree, 2.0, dtype=dtype)[0].dtype == F32


@pytest.mark.clause("OVERFLOW-in-place-checked")
@pytest.mark.parametrize("function", WITH_OUT)
def test_invalid_out_raises_before_it_is_written(function):
    """The error names the array, and no array is changed even if a later one is invalid."""
    valid = np.zeros(2, F32)
    invalid = [
        (frozen(np.zeros(2, F32)), ValueError),
        (np.zeros(3, F32), ValueError),
        (np.zeros((2, 1), F32), ValueError),
        (np.zeros(2, np.float64), TypeError),
        (np.zeros(2, np.float16), TypeError),
    ]
    outs = [([valid, array], error, r"^out\[1\] must ") for array, error in invalid]
    other_structures = ([], [np.zeros(1)], [np.zeros(1), None], {"a": np.zeros(1), "b": np.zeros(1)})
    outs += [(other, ValueError, r"^out must have the arrays .*out\[1\]") for other in other_structures]
    outs.append((F32, TypeError, r"^out must be an array, .*, got <class 'numpy.float32'>$"))  # instead of dtype
    outs.append(([valid, 1.0], TypeError, r"^out\[1\] must be an array, or a tuple, list or dict of arrays, or None, got float$"))
    tree = [np.ones(2, F32), np.ones(2, F32)]
    assert_rejected([function], [((tree, 2.0), {"out": out}, error, message) for out, error, message in outs])
    assert not any(array.any() for array in (valid, *(array for array, _ in invalid)))


class Unhashable(str):
    """Device that can be compared but not hashed, like CuPy's."""

    __slots__ = ()
    __hash__ = None


@pytest.mark.clause("SCALING-mixed-rejected")
def test_devices_need_no_hash(monkeypatch):
    """Two devices are distinguished by comparing them."""
    monkeypatch.setattr("array_api_compat.device", lambda array: Unhashable(array.device))
    tree = [strict_on("CPU_DEVICE"), strict_on("CPU_DEVICE")]
    assert ampscale.get_backend(tree).NAME == "generic"
    with pytest.raises(TypeError, match="arrays must come from one library and one device"):
        ampscale.get_backend([*tree, strict_on("device1")])


@pytest.mark.clause("SCALING-float-leaves", "SCALING-mixed-rejected", "OVERFLOW-in-place-checked")
def test_one_odd_leaf_among_a_thousand_is_named():
    """The error is raised before any array is written in place."""
    of_numpy, strict = partial(np.ones, 1), partial(strict_on, "CPU_DEVICE")
    mixed = r"tree\[7\] from numpy on cpu; 991 more from numpy on cpu; tree\[500\] from array_api_strict on .*CPU"
    rows = [
        (of_numpy, "w", TypeError, r"^tree\[500\] must be an array, or a tuple, .* got str$"),
        (of_numpy, np.ones(1, np.int32), TypeError, r"^tree\[500\] must be floating-point or complex, got int32$"),
        (of_numpy, frozen(np.ones(1)), ValueError, r"^out\[500\] must be writable, got a read-only array$"),
        (of_numpy, np.float64(1), TypeError, r"^out\[500\] must be a mutable array, got float64$"),
        (of_numpy, strict(), TypeError, mixed),
        (strict, strict_on("device1"), TypeError, r"; 991 more from array_api_strict on .*CPU.*; tree\[500\] from .*device1"),
    ]
    for make, odd, error, message in rows:
        tree = [odd if index == 500 else make() for index in range(1000)]
        with pytest.raises(error, match=message):
            ampscale.unscale_and_check(tree, 2.0, out=tree)
        assert all(float(leaf[0]) == 1 for index, leaf in enumerate(tree) if index != 500)


def step_arguments(**changed):
    """Return the arguments of `train_step` except the inputs."""
    model, rule = network([np.ones(1, F32)]), ampscale.LossScaleRule()
    optimizer = ampscale.optimizers.SGD(model)
    state = ampscale.init_train_state(model.params, optimizer, rule)
    return list({"network": model, "optimizer": optimizer, "rule": rule, "state": state, **changed}.values())


@pytest.mark.clause("NORMS-limit-checked")
def test_invalid_max_norm_raises():
    """A number that is not positive and finite raises a ValueError, and any other type a TypeError, even in `train_step`."""
    message = r"^max_norm must be a positive, finite number, got "
    limits = [(value, ValueError) for value in (math.nan, math.inf, -math.inf, 0, -1.0, 10**400)]
    limits += [(value, TypeError) for value in (True, "1", [1.0], F32(1))]
    clips = [((np.ones(2), limit), {}, error, message) for limit, error in [*limits, (None, TypeError)]]
    assert_rejected([ampscale.clip_by_global_norm], clips)
    step = partial(ampscale.train_step, *step_arguments(), [np.ones(1, F32)])
    assert_rejected([step], [((), {"max_norm": limit}, error, message) for limit, error in limits])


def test_invalid_argument_of_a_step_raises():
    """The TypeError names the argument."""
    batch = [np.ones(1, F32)]
    rows = [
        ((*step_arguments(**{name: value}), batch), {}, TypeError, f"^{name} must .*, got {value!r}")
        for name in ("network", "optimizer", "rule", "state")
        for value in (None, 3, max)
    ]
    arguments = (*step_arguments(), batch)
    methods = r"^communicator must have the methods \['mean', 'agree', 'check_same'\], got "
    rows += [(arguments, {"communicator": value}, TypeError, methods) for value in (None, step_arguments()[1])]
    rows.append((arguments, {"measure": 1}, TypeError, r"^measure must be a bool, got 1 of type int$"))
    *others, state = step_arguments()
    for name in ("attempted", "applied"):  # such as the numbers of a checkpoint in JSON
        message = rf"^state\.{name} must be an array, got int; create the state with init_train_state\(\)$"
        rows.append(((*others, state._replace(**{name: 0}), batch), {}, TypeError, message))
    assert_rejected([ampscale.train_step], rows)


def test_invalid_argument_of_init_train_state_raises():
    """For models of torch, flax and equinox and for iterators, the TypeError contains the remedy."""
    model, optimizer, rule, _ = step_arguments()
    module, nnx_state, iterator = (type(name, (), {name: 1})() for name in ("named_parameters", "trace_state", "__next__"))
    rows = [
        (([1.0], optimizer, rule), r"^params\[0\] must be an array"),
        ((model, optimizer, rule), r"^params must be an array, .*, got Network; pass network.params$"),
        ((module, optimizer, rule), "; pass {name: value.detach.. for name, "),
        ((nnx_state, optimizer, rule), r"pass nnx.as_pure\(nnx.state\(model, "),
        ((iterator, optimizer, rule), "; pass a list of its arrays$"),
        (({"f": max}, optimizer, rule), r"got builtin_function_or_method; for equinox, pass eqx.filter"),
        ((model.params, max, rule), r"^optimizer must have the methods \['init', 'update'\], got"),
        ((model.params, optimizer, 2.0**16), r"^rule must be a LossScaleRule, got 65536.0"),
    ]
    assert_rejected([ampscale.init_train_state], [(arguments, {}, TypeError, message) for arguments, message in rows])


@pytest.mark.clause("NORMS-fused", "STEP-order", "STEP-every-sequence")
def test_public_functions_return_values_computed_by_hand(library):
    """The functions run on each library. The training step runs on NumPy only."""
    tree, get = {"w": library.array([6.0, 8.0]), "b": None}, library.to_numpy
    halved = np.asarray([3, 4], F32)
    assert alike(get(ampscale.scale(tree, 2.0))["w"], np.asarray([12, 16], F32))
    assert alike(get(ampscale.unscale(tree, 2.0))["w"], halved)
    unscaled, finite = get(ampscale.unscale_and_check(tree, 2.0))
    assert alike(unscaled["w"], halved)
    assert (finite, get(ampscale.all_finite(tree))) == (True, True)
    unscaled, finite, norm = get(ampscale.unscale_check_and_norm(tree, 2.0))
    assert alike(unscaled["w"], halved)
    assert (finite, norm) == (True, 5)
    assert get(ampscale.local_norms([tree, tree["w"]])).tolist() == [10, 10]
    assert get(ampscale.global_norm(tree)) == get(ampscale.clip_by_global_norm(tree, 1.0))[1] == 10
    state, report = ampscale.train_step(*step_arguments(), [np.asarray([2.0], F32)], max_norm=100.0)
    assert alike(state.params[0], np.asarray([0.98], F32))
    assert float(report.global_norm) == 2
