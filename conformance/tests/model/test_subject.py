"""An adapter under observation: what is given to it, what may come back, what is compared, and what is written down."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from ampscale_conformance import ImplementationInfo, Unsupported
from ampscale_conformance.model.bits import DIGITS, Bits, map_tree
from ampscale_conformance.model.floats import FORMATS, encode
from ampscale_conformance.model.subject import Absent, Failed, Raised, Subject, to_record
from ampscale_conformance.oracle.tensors import array

from ampscale import LossScaleRule

ONE, TWO = array("float32", [1.0]), array("float32", [2.0])
INFO = ImplementationInfo(name="it", level=4, capabilities=["jit"])
LIBRARIES = ["numpy", "torch", "jax"]


def subject(arrays="numpy", **methods):
    """What speaks to an adapter with these methods."""
    info = ImplementationInfo(name="it", level=4, capabilities=["jit"], arrays=arrays)
    return Subject(SimpleNamespace(info=info, **methods))


def failed(what, *arguments):
    """The words of an expectation that is not met."""
    with pytest.raises(Failed) as caught:
        what(*arguments)
    return str(caught.value)


# --- expectations ---


def test_a_tree_is_the_same_as_itself():
    """Of whatever it is made; a list is taken for a tuple, as some tree libraries know no tuples."""
    trees = [ONE, [ONE, TWO], {"a": ONE, "b": [TWO]}, [], [None, ONE], array("float32", []), array("complex64", [1 + 2j])]
    for tree in trees:
        subject().expect_same(tree, tree, "it")
    subject().expect_same(({"a": [ONE]}, (TWO,)), [{"a": (ONE,)}, [TWO]], "it")
    subject().expect(True, "never")
    assert failed(subject().expect, False, "expected this") == "expected this"
    assert failed(subject().expect_same, [ONE], [None], "it").startswith("it[0]: expected None, got Bits(")


@pytest.mark.parametrize("dtype", FORMATS)
def test_any_nan_is_any_nan(dtype):
    """Its sign and its payload mean nothing; an infinity lies directly below them, and is none."""
    infinity, quiet = encode(math.inf, dtype), encode(math.nan, dtype)
    sign = 1 << 4 * DIGITS[dtype] - 1
    subject().expect_same(Bits(dtype, (1,), (quiet,)), Bits(dtype, (1,), (sign | infinity + 1,)), "it")
    for other in (infinity + 1, infinity - 1):
        failed(subject().expect_same, Bits(dtype, (1,), (infinity,)), Bits(dtype, (1,), (other,)), "it")


def test_each_part_of_a_complex_number_may_be_nan():
    """Integers have none: their patterns are themselves."""
    one, quiet, other = 0x3F800000, 0x7FC00000, 0xFF800001
    for left, right in (((quiet << 32) + one, (other << 32) + one), ((one << 32) + quiet, (one << 32) + other)):
        subject().expect_same(Bits("complex64", (1,), (left,)), Bits("complex64", (1,), (right,)), "it")
    failed(subject().expect_same, Bits("int32", (1,), (0x7FC00000,)), Bits("int32", (1,), (0xFFC00000,)), "it")


@pytest.mark.parametrize(
    ("got", "wanted", "message"),
    [
        (ONE, TWO, "it: element 0: expected 2.0 (40000000), got 1.0 (3f800000) in float32"),
        ([ONE, ONE], [ONE, TWO], "it[1]: element 0: expected 2.0 (40000000), got 1.0 (3f800000) in float32"),
        ({"a": [ONE]}, {"a": [TWO]}, "it['a'][0]: element 0: expected 2.0 (40000000), got 1.0 (3f800000) in float32"),
        (array("float64", [1.0]), ONE, "it: expected float32, got float64"),
        (array("float32", 1.0), ONE, "it: expected shape (1,), got ()"),
        ([ONE], [ONE, TWO], "it: expected leaves at ['[0]', '[1]'], got ['[0]']"),
        ([ONE, TWO], [ONE], "it: expected leaves at ['[0]'], got ['[0]', '[1]']"),
        ({"b": ONE}, {"a": ONE}, """it: expected leaves at ["['a']"], got ["['b']"]"""),
        ([None], [ONE], "it[0]: expected an array, got None"),
        (
            array("float32", [0.0]),
            array("float32", [-0.0]),
            "it: element 0: expected -0.0 (80000000), got 0.0 (00000000) in float32",
        ),
        (
            array("float32", [math.inf]),
            array("float32", [math.nan]),
            "it: element 0: expected nan (7fc00000), got inf (7f800000) in float32",
        ),
    ],
)
def test_a_difference_is_told_with_its_place(got, wanted, message):
    """Dtype, shape and bits, in this order; the sign of a zero is a bit."""
    assert failed(subject().expect_same, got, wanted, "it") == message


# --- trees ---


@pytest.mark.parametrize("arrays", LIBRARIES)
def test_a_tree_is_made_of_the_librarys_arrays(arrays):
    """They come back with the bits that they were made of; answers and scales may be arrays of shape ()."""
    for dtype in ("bool", "int32", "float16", "float32", "bfloat16", "complex64"):
        one, zero = (True, False) if dtype == "bool" else (1, 0)
        given, tree = [], {"a": [array(dtype, [one, zero, one]), None], "b": (array(dtype, [[one], [zero]]), array(dtype, one))}
        asked = subject(arrays, all_finite=lambda made, given=given: given.append(made) or True)
        assert asked.all_finite(tree) is True
        assert {type(leaf).__module__.partition(".")[0] for leaf in given[0]["b"]} <= {arrays, "jaxlib"}
        assert asked.to_bits(given[0], "it") == tree
    for meant in (True, False):
        made = subject(arrays).to_arrays(array("bool", meant))
        assert subject(all_finite=lambda _, made=made: made).all_finite([]) is meant
    made = subject(arrays).to_arrays(array("float32", 1.5))
    assert subject(read_scale=lambda _: made).read_scale(None) == 1.5


def test_each_call_gets_arrays_of_its_own():
    """What one has changed, the next one does not see."""
    asked = subject(scale=lambda _, tree: map_tree(lambda leaf: np.multiply(leaf, 2, out=leaf), tree))
    assert [asked.scale(None, [ONE]), asked.scale(None, [ONE])] == [[TWO], [TWO]]


@pytest.mark.parametrize("method", ["scale", "unscale"])
def test_a_tree_may_be_written_to(method):
    """Then the result is None, and the given tree is read."""

    def in_place(_, tree):
        tree[0] *= np.float32(2)

    assert getattr(subject(**{method: in_place}), method)(None, [ONE]) == [TWO]


def test_what_is_no_array_has_failed():
    """A Python float is none, and a dtype that no case has is none of ours; a NumPy scalar is one of shape ()."""
    for leaf in (1.0, "1", object, np.asarray("x"), np.asarray(1, "uint8")):
        words = failed(subject(unscale=lambda *_, leaf=leaf: [leaf]).unscale, None, [ONE])
        assert words.startswith("unscale: expected an array"), leaf
    assert subject(unscale=lambda *_: np.float32(1)).unscale(None, ONE) == array("float32", 1.0)


# --- calls ---


def test_none_for_a_handle_is_the_same_handle():
    """`update` may change it in place, or return the next one, which may be false."""
    handle = object()
    assert subject(update=lambda *_: None).update(handle, True) is handle
    for after in (object(), 0, False, (), {}):
        assert subject(update=lambda *_, after=after: after).update(handle, True) is after


def test_a_refusal_is_whatever_is_raised():
    """But not what says that there is no such thing."""

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


def test_options_are_keywords():
    """They are written down as one argument, and not at all where there is none."""
    got = []
    asked = subject(create=lambda _, **options: got.append(options) or 7)
    rule = LossScaleRule()
    asked.create(rule, max_norm=1.5)
    asked.create(rule)
    assert got == [{"max_norm": 1.5}, {}]
    assert [len(call.arguments) for call in asked.calls] == [2, 1]
    assert asked.calls[0].arguments[1] == {"dict": {"max_norm": (1.5).hex()}}


def test_a_handle_keeps_its_number():
    """By what it is, and not by what it equals; each new one gets the next number."""
    asked = subject(create=lambda _: [0], update=lambda *_: None, read_scale=lambda _: 1.0)
    one, other = asked.create(LossScaleRule()), asked.create(LossScaleRule())
    assert one == other
    asked.update(other, True)
    asked.read_scale(one)
    assert [call.result for call in asked.calls[:2]] == [{"handle": 0}, {"handle": 1}]
    assert [call.arguments[0] for call in asked.calls[2:]] == [{"handle": 1}, {"handle": 0}]


def test_handles_in_a_list_have_numbers_too():
    """As ranks have them, and a step on arrays."""
    asked = subject(
        create=lambda _: object(),
        update_replicas=lambda handles, _: list(reversed(handles)),
        step_on_arrays=lambda handle, tree: (handle, tree),
    )
    handles = [asked.create(LossScaleRule()), asked.create(LossScaleRule())]
    asked.call("update_replicas", handles, [True, False])
    asked.call("step_on_arrays", handles[1], [np.float32(1)])
    ranks, step = asked.calls[2:]
    assert (ranks.arguments, ranks.result) == ([[{"handle": 0}, {"handle": 1}], [True, False]], [{"handle": 1}, {"handle": 0}])
    assert (step.arguments[0], step.result) == ({"handle": 1}, [{"handle": 1}, [array("float32", 1.0).to_json()]])
    inner = SimpleNamespace(info=INFO, read_scale=lambda _: 2.0)
    asked = subject(compiled=lambda: inner)
    assert asked.compiled().read_scale(object()) == 2.0
    assert [call.method for call in asked.calls] == ["compiled", "compiled().read_scale"]


def test_a_call_that_raised_keeps_its_words():
    """Its class and its message, and the error is chained."""

    def update(*_):
        raise KeyError("scale")

    asked = subject(update=update)
    with pytest.raises(Raised, match="update raised KeyError: 'scale'") as caught:
        asked.update(None, True)
    assert isinstance(caught.value.__cause__, KeyError)
    assert asked.calls[0].raised == "KeyError: 'scale'"


def test_a_value_is_written_down_in_jsons_words():
    """Floats as hex, arrays as bits, what JSON has not as its repr, and a rule whole, as its own JSON."""
    for value, said in (
        (1.5, "0x1.8000000000000p+0"),
        (math.inf, "inf"),
        *((value, value) for value in (True, 3, "text", None)),
        ((1, [2.0]), {"tuple": [1, ["0x1.0000000000000p+1"]]}),
        ({"a": 1, 2: 3}, {"dict": {"a": 1, "2": 3}}),
        (np.float32(1), array("float32", 1.0).to_json()),
        (np.ones(1, "float16"), {"dtype": "float16", "shape": [1], "bits": ["3c00"]}),
        (1j, {"repr": "1j"}),
    ):
        assert to_record(value) == said
    rule = to_record(LossScaleRule(init_scale=8.0, min_scale=1.0))
    assert (rule["min_scale"], rule["reset_bad_steps_on"]) == (1.0, ["finite", "backoff"])
