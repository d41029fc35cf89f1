"""Subject, which calls an adapter, compares results and records the calls."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from ampscale_conformance import ImplementationInfo, Unsupported
from ampscale_conformance.model.arrays import from_bits
from ampscale_conformance.model.bits import DIGITS, Bits
from ampscale_conformance.model.floats import FORMATS, encode
from ampscale_conformance.model.subject import Absent, Failed, Raised, Subject, to_record
from ampscale_conformance.oracle.tensors import array

from ampscale import LossScaleRule

ONE, TWO = array("float32", [1.0]), array("float32", [2.0])
INFO = ImplementationInfo(name="it", level=4, capabilities=["jit"])
LIBRARIES = ["numpy", "torch", "jax"]


def subject(arrays="numpy", **methods):
    """Return a subject for an adapter with these methods."""
    info = ImplementationInfo(name="it", level=4, capabilities=["float16", "jit"], arrays=arrays)
    return Subject(SimpleNamespace(info=info, **methods))


def failure_of(function, *arguments):
    """Return the message of an expectation that fails."""
    with pytest.raises(Failed) as caught:
        function(*arguments)
    return str(caught.value)


# --- expectations ---


def test_equal_trees_pass():
    """A list equals a tuple, as some tree libraries have no tuples, and dict keys have any order, as some libraries sort them."""
    trees = [ONE, [ONE, TWO], {"a": ONE, "b": [TWO]}, [], [None, ONE], array("float32", []), array("complex64", [1 + 2j])]
    for tree in trees:
        subject().expect_same(tree, tree, "tree")
    subject().expect_same(({"a": [ONE]}, (TWO,)), [{"a": (ONE,)}, [TWO]], "tree")
    subject().expect_same({"b": ONE, "a": (TWO,)}, {"a": [TWO], "b": ONE}, "tree")


def test_a_failed_expectation_has_its_message():
    """Trees are compared leaf by leaf."""
    subject().expect(True, "never")
    assert failure_of(subject().expect, False, "expected this") == "expected this"
    assert failure_of(subject().expect_same, [ONE], [None], "tree").startswith("tree[0]: expected None, got Bits(")


@pytest.mark.parametrize("dtype", FORMATS)
def test_all_nans_are_equal(dtype):
    """Sign and payload are ignored; infinity, the pattern directly below the NaNs, is different."""
    infinity, quiet_nan = encode(math.inf, dtype), encode(math.nan, dtype)
    sign = 1 << (4 * DIGITS[dtype] - 1)
    subject().expect_same(Bits(dtype, (1,), (quiet_nan,)), Bits(dtype, (1,), (sign | (infinity + 1),)), "tree")
    for other in (infinity + 1, infinity - 1):
        failure_of(subject().expect_same, Bits(dtype, (1,), (infinity,)), Bits(dtype, (1,), (other,)), "tree")


def test_each_component_of_a_complex_number_may_be_nan():
    """NaNs of different bits are equal in each component."""
    one, quiet_nan, other_nan = 0x3F800000, 0x7FC00000, 0xFF800001
    for left, right in (((quiet_nan << 32) + one, (other_nan << 32) + one), ((one << 32) + quiet_nan, (one << 32) + other_nan)):
        subject().expect_same(Bits("complex64", (1,), (left,)), Bits("complex64", (1,), (right,)), "tree")


def test_integers_with_the_bits_of_nans_are_different():
    failure_of(subject().expect_same, Bits("int32", (1,), (0x7FC00000,)), Bits("int32", (1,), (0xFFC00000,)), "tree")


def test_a_difference_is_reported_with_its_path():
    """Dtype, shape and bits are compared in this order, including the sign of zero."""
    for got, expected, message in (
        (ONE, TWO, "tree: element 0: expected 2.0 (40000000), got 1.0 (3f800000) in float32"),
        ([ONE, ONE], [ONE, TWO], "tree[1]: element 0: expected 2.0 (40000000), got 1.0 (3f800000) in float32"),
        ({"a": [ONE]}, {"a": [TWO]}, "tree['a'][0]: element 0: expected 2.0 (40000000), got 1.0 (3f800000) in float32"),
        (array("float64", [1.0]), ONE, "tree: expected float32, got float64"),
        (array("float32", 1.0), ONE, "tree: expected shape (1,), got ()"),
        ([ONE], [ONE, TWO], "tree: expected leaves at ['[0]', '[1]'], got ['[0]']"),
        ([ONE, TWO], [ONE], "tree: expected leaves at ['[0]'], got ['[0]', '[1]']"),
        ({"b": ONE}, {"a": ONE}, """tree: expected leaves at ["['a']"], got ["['b']"]"""),
        ([None], [ONE], "tree[0]: expected an array, got None"),
        (
            array("float32", [0.0]),
            array("float32", [-0.0]),
            "tree: element 0: expected -0.0 (80000000), got 0.0 (00000000) in float32",
        ),
        (
            array("float32", [math.inf]),
            array("float32", [math.nan]),
            "tree: element 0: expected nan (7fc00000), got inf (7f800000) in float32",
        ),
    ):
        assert failure_of(subject().expect_same, got, expected, "tree") == message


# --- trees ---


@pytest.mark.parametrize("arrays", LIBRARIES)
def test_trees_consist_of_the_librarys_arrays(arrays):
    """Converting arrays keeps their bits."""
    pytest.importorskip(arrays)
    for dtype in ("bool", "int32", "float16", "float32", "bfloat16", "complex64"):
        one, zero = (True, False) if dtype == "bool" else (1, 0)
        passed = []
        tree = {"a": [array(dtype, [one, zero, one]), None], "b": (array(dtype, [one, zero], (2, 1)), array(dtype, one))}
        target = subject(arrays, all_finite=lambda tree_, passed=passed: passed.append(tree_) or True)
        assert target.all_finite(tree) is True
        assert {type(leaf).__module__.partition(".")[0] for leaf in passed[0]["b"]} <= {arrays, "jaxlib"}
        assert target.to_bits(passed[0], "tree") == tree


@pytest.mark.parametrize("arrays", LIBRARIES)
def test_flags_and_scales_may_be_arrays(arrays):
    """The arrays have shape ()."""
    pytest.importorskip(arrays)
    for flag in (True, False):
        result = subject(arrays).to_arrays(array("bool", flag))
        assert subject(all_finite=lambda _, result=result: result).all_finite([]) is flag
    scale = subject(arrays).to_arrays(array("float32", 1.5))
    assert subject(read_scale=lambda _: scale).read_scale(None) == 1.5


@pytest.mark.parametrize("method", ["scale", "unscale"])
def test_methods_may_write_in_place(method):
    """The method then returns None, and its argument is the result. Each call gets new arrays."""

    def in_place(_, tree):
        tree[0] *= np.float32(2)

    target = subject(**{method: in_place})
    assert [target.scaled(method, None, [ONE]) for _ in range(2)] == [[TWO], [TWO]]


def test_a_result_that_is_not_an_array_fails():
    """Python floats and other dtypes are rejected; a NumPy scalar is an array of shape ()."""
    for leaf in (1.0, "1", object, np.asarray("x"), np.asarray(1, "uint8")):
        message = failure_of(subject(unscale=lambda *_, leaf=leaf: [leaf]).scaled, "unscale", None, [ONE])
        assert message.startswith("unscale: expected an array"), leaf
    assert subject(unscale=lambda *_: np.float32(1)).scaled("unscale", None, ONE) == array("float32", 1.0)


# --- calls ---


def test_update_may_return_none_for_the_same_handle():
    """Any other result is the next handle, even if its truth value is False."""
    handle = object()
    assert subject(update=lambda *_: None).update(handle, True) is handle
    for new_handle in (object(), 0, False, (), {}):
        assert subject(update=lambda *_, new_handle=new_handle: new_handle).update(handle, True) is new_handle


def test_raises_accepts_any_error_of_the_method():
    """Unsupported and a missing method are not accepted."""

    def raising(error):
        def update(*_):
            raise error

        return subject(update=update)

    assert raising(ValueError()).raises("update", None, True)
    assert not subject(update=lambda *_: None).raises("update", None, True)
    with pytest.raises(Unsupported):
        raising(Unsupported()).raises("update", None, True)
    with pytest.raises(Absent):
        raising(NotImplementedError()).raises("update", None, True)
    with pytest.raises(Absent):
        subject().raises("update", None, True)


def test_float16_gradients_must_be_claimed():
    """Losses may be float16 in any case, and gradients of other dtypes are passed to the method."""
    methods = dict.fromkeys(("scale", "unscale", "add_optimizer"), lambda _, tree: tree)
    target = Subject(SimpleNamespace(info=ImplementationInfo(name="it", level=4), **methods))
    half, bfloat16 = np.float16([1]), from_bits(array("bfloat16", [1.0]), "numpy")
    for method, tree in (("unscale", {"a": [None, half]}), ("add_optimizer", [half])):
        with pytest.raises(Unsupported, match="does not claim float16"):
            target.call(method, None, tree)
    assert target.call("scale", None, half) is half
    assert target.call("unscale", None, bfloat16) is bfloat16
    assert subject(**methods).call("unscale", None, half) is half


def test_options_are_passed_as_keywords():
    """Options are recorded as one argument, or not at all if there are none."""
    received = []
    target = subject(create=lambda _, **options: received.append(options) or 7)
    rule = LossScaleRule()
    target.create(rule, max_norm=1.5)
    target.create(rule)
    assert received == [{"max_norm": 1.5}, {}]
    assert [len(call.arguments) for call in target.calls] == [2, 1]
    assert target.calls[0].arguments[1] == {"dict": {"max_norm": (1.5).hex()}}


def test_handles_are_numbered_by_identity():
    """Each new handle gets the next number, even if it equals another one."""
    target = subject(create=lambda _: [0], update=lambda *_: None, read_scale=lambda _: 1.0)
    one, other = target.create(LossScaleRule()), target.create(LossScaleRule())
    assert one == other
    target.update(other, True)
    target.read_scale(one)
    assert [call.result for call in target.calls[:2]] == [{"handle": 0}, {"handle": 1}]
    assert [call.arguments[0] for call in target.calls[2:]] == [{"handle": 1}, {"handle": 0}]


def test_handles_in_lists_and_tuples_are_numbered():
    """`update_replicas` takes a list of handles, and `step_on_arrays` returns a handle and a tree."""
    target = subject(
        create=lambda _: object(),
        update_replicas=lambda handles, _: list(reversed(handles)),
        step_on_arrays=lambda handle, tree: (handle, tree),
    )
    handles = [target.create(LossScaleRule()), target.create(LossScaleRule())]
    target.call("update_replicas", handles, [True, False])
    target.call("step_on_arrays", handles[1], [np.float32(1)])
    update, step = target.calls[2:]
    assert (update.arguments, update.result) == ([[{"handle": 0}, {"handle": 1}], [True, False]], [{"handle": 1}, {"handle": 0}])
    assert (step.arguments[0], step.result) == ({"handle": 1}, [{"handle": 1}, [array("float32", 1.0).to_json()]])


def test_calls_of_the_compiled_form_are_recorded_with_a_prefix():
    """While *records* is False, no call is recorded."""
    inner = SimpleNamespace(info=INFO, read_scale=lambda _: 2.0)
    target = subject(compiled=lambda: inner)
    assert target.compiled().read_scale(object()) == 2.0
    assert [call.method for call in target.calls] == ["compiled", "compiled().read_scale"]
    target.records = False
    target.compiled().read_scale(object())
    assert len(target.calls) == 2


def test_compiled_must_return_an_adapter():
    with pytest.raises(Absent, match=r"^compiled must return an adapter, got namespace"):
        subject(compiled=lambda: SimpleNamespace(info=None)).compiled()


def test_an_error_is_recorded_and_chained():
    """The record has the class and the message of the error."""

    def update(*_):
        raise KeyError("scale")

    target = subject(update=update)
    with pytest.raises(Raised, match="update raised KeyError: 'scale'") as caught:
        target.update(None, True)
    assert isinstance(caught.value.__cause__, KeyError)
    assert target.calls[0].raised == "KeyError: 'scale'"


def test_to_record_returns_json_values():
    """Floats become hex, arrays bits, rules their JSON, and other objects their repr."""
    for value, record in (
        (1.5, "0x1.8000000000000p+0"),
        (math.inf, "inf"),
        *((value, value) for value in (True, 3, "text", None)),
        ((1, [2.0]), {"tuple": [1, ["0x1.0000000000000p+1"]]}),
        ({"a": 1, 2: 3}, {"dict": {"a": 1, "2": 3}}),
        (np.float32(1), array("float32", 1.0).to_json()),
        (np.ones(1, "float16"), {"dtype": "float16", "shape": [1], "bits": ["3c00"]}),
        (1j, {"repr": "1j"}),
    ):
        assert to_record(value) == record
    rule = to_record(LossScaleRule(init_scale=8.0, min_scale=1.0))
    assert (rule["min_scale"], rule["reset_bad_steps_on"]) == (1.0, ["finite", "backoff"])
