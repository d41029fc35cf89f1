"""An adapter under observation: what is given to it, what may come back, what is compared, and what is written down."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from ampscale_conformance import ImplementationInfo, Unsupported
from ampscale_conformance.model.bits import Bits, map_tree
from ampscale_conformance.model.subject import Absent, Failed, Raised, Subject, plain
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


def test_an_expectation_that_holds_says_nothing():
    """And one that does not has failed with its message."""
    subject().expect(True, "never")
    assert failed(subject().expect, False, "wanted this") == "wanted this"


@pytest.mark.parametrize(
    "tree", [ONE, [ONE, TWO], {"a": ONE, "b": [TWO]}, [], [None, ONE], array("float32", []), array("complex64", [1 + 2j])]
)
def test_a_tree_is_the_same_as_itself(tree):
    """Of whatever it is made."""
    subject().expect_same(tree, tree, "it")


def test_a_list_is_taken_for_a_tuple():
    """Some tree libraries know no tuples."""
    subject().expect_same(({"a": [ONE]}, (TWO,)), [{"a": (ONE,)}, [TWO]], "it")


@pytest.mark.parametrize(
    ("got", "wanted", "message"),
    [
        (ONE, TWO, "it: element 0: wanted 2.0 (40000000), got 1.0 (3f800000) in float32"),
        ([ONE, ONE], [ONE, TWO], "it[1]: element 0: wanted 2.0 (40000000), got 1.0 (3f800000) in float32"),
        ({"a": [ONE]}, {"a": [TWO]}, "it['a'][0]: element 0: wanted 2.0 (40000000), got 1.0 (3f800000) in float32"),
        (array("float64", [1.0]), ONE, "it: wanted float32, got float64"),
        (array("float32", 1.0), ONE, "it: wanted shape (1,), got ()"),
        ([ONE], [ONE, TWO], "it: wanted leaves at ['[0]', '[1]'], got ['[0]']"),
        ([ONE, TWO], [ONE], "it: wanted leaves at ['[0]'], got ['[0]', '[1]']"),
        ({"b": ONE}, {"a": ONE}, """it: wanted leaves at ["['a']"], got ["['b']"]"""),
        ([None], [ONE], "it[0]: wanted an array, got None"),
        (
            array("float32", [0.0]),
            array("float32", [-0.0]),
            "it: element 0: wanted -0.0 (80000000), got 0.0 (00000000) in float32",
        ),
        (
            array("float32", [math.inf]),
            array("float32", [math.nan]),
            "it: element 0: wanted nan (7fc00000), got inf (7f800000) in float32",
        ),
    ],
)
def test_a_difference_is_told_with_its_place(got, wanted, message):
    """Dtype, shape and bits, in this order; the sign of a zero is a bit."""
    assert failed(subject().expect_same, got, wanted, "it") == message


def test_none_is_none_alone():
    """An array in its place is not."""
    assert failed(subject().expect_same, [ONE], [None], "it").startswith("it[0]: wanted None, got Bits(")


NANS = [
    ("float16", 0x7E00, 0xFC01),
    ("bfloat16", 0x7FC0, 0xFF81),
    ("float32", 0x7FC00000, 0xFF800001),
    ("float64", 0x7FF8 << 48, (0xFFF0 << 48) + 1),
    ("complex64", (0x7FC00000 << 32) + 0x3F800000, (0xFF800001 << 32) + 0x3F800000),
    ("complex64", (0x3F800000 << 32) + 0x7FC00000, (0x3F800000 << 32) + 0xFF800001),
]


@pytest.mark.parametrize(("dtype", "one", "other"), NANS)
def test_any_nan_is_any_nan(dtype, one, other):
    """Its sign and its payload mean nothing."""
    subject().expect_same(Bits(dtype, (1,), (one,)), Bits(dtype, (1,), (other,)), "it")


@pytest.mark.parametrize(
    ("dtype", "infinity"), [("float16", 0x7C00), ("bfloat16", 0x7F80), ("float32", 0x7F800000), ("float64", 0x7FF0 << 48)]
)
def test_an_infinity_is_no_nan(dtype, infinity):
    """It lies directly below them; and the largest number is another pattern still."""
    for other in (infinity + 1, infinity - 1):
        failed(subject().expect_same, Bits(dtype, (1,), (infinity,)), Bits(dtype, (1,), (other,)), "it")


def test_integers_have_no_nan():
    """Their patterns are themselves."""
    failed(subject().expect_same, Bits("int32", (1,), (0x7FC00000,)), Bits("int32", (1,), (0xFFC00000,)), "it")


# --- trees ---


@pytest.mark.parametrize("arrays", LIBRARIES)
@pytest.mark.parametrize("dtype", ["bool", "int32", "float16", "float32", "float64", "bfloat16", "complex64"])
def test_a_tree_is_made_of_the_librarys_arrays(arrays, dtype):
    """They come back with the bits that they were made of, in the containers of the tree."""
    one, zero = (True, False) if dtype == "bool" else (1, 0)
    given, tree = [], {"a": [array(dtype, [one, zero, one]), None], "b": (array(dtype, [[one], [zero]]), array(dtype, one))}
    asked = subject(arrays, all_finite=lambda made: given.append(made) or True)
    assert asked.all_finite(tree) is True
    assert {type(leaf).__module__.partition(".")[0] for leaf in given[0]["b"]} <= {arrays, "jaxlib"}
    assert asked.read(given[0], "it") == tree


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


@pytest.mark.parametrize("leaf", [1.0, "1", object, np.asarray("x"), np.asarray(1, "uint8")], ids=repr)
def test_what_is_no_array_has_failed(leaf):
    """A Python float is none, and a dtype that no case has is none of ours."""
    assert failed(subject(unscale=lambda *_: [leaf]).unscale, None, [ONE]).startswith("unscale: wanted an array")


def test_a_numpy_scalar_is_an_array():
    """NumPy makes them of arrays of shape ()."""
    assert subject(unscale=lambda *_: np.float32(1)).unscale(None, ONE) == array("float32", 1.0)


@pytest.mark.parametrize("arrays", LIBRARIES)
def test_an_answer_may_be_an_array(arrays):
    """A bool one of shape (), of any library."""
    asked = subject(arrays)
    answer = asked.made(array("bool", True)), asked.made(array("bool", False))
    for made, meant in zip(answer, (True, False), strict=True):
        assert subject(all_finite=lambda _, made=made: made).all_finite([]) is meant


@pytest.mark.parametrize("arrays", LIBRARIES)
def test_a_scale_may_be_an_array(arrays):
    """Of shape (), of any library."""
    made = subject(arrays).made(array("float32", 1.5))
    assert subject(read_scale=lambda _: made).read_scale(None) == 1.5


# --- calls ---


def test_none_for_a_handle_is_the_same_handle():
    """`update` may change it in place, or return the next one."""
    handle, after = object(), object()
    assert subject(update=lambda *_: None).update(handle, True) is handle
    assert subject(update=lambda *_: after).update(handle, True) is after


@pytest.mark.parametrize("result", [0, False, (), {}], ids=repr)
def test_a_handle_may_be_false(result):
    """It is one all the same."""
    assert subject(update=lambda *_: result).update(object(), True) is result


def test_a_refusal_is_whatever_is_raised():
    """But not what says that there is no such thing."""

    def raising(error):
        def update(*_):
            raise error

        return subject(update=update)

    assert raising(ValueError()).refuses("update", None, True)
    assert not subject(update=lambda *_: None).refuses("update", None, True)
    with pytest.raises(Unsupported):
        raising(Unsupported()).refuses("update", None, True)
    with pytest.raises(Absent):
        raising(NotImplementedError()).refuses("update", None, True)
    with pytest.raises(Absent):
        subject().refuses("update", None, True)


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
        update_ranks=lambda handles, _: list(reversed(handles)),
        step_on_arrays=lambda handle, tree: (handle, tree),
    )
    handles = [asked.create(LossScaleRule()), asked.create(LossScaleRule())]
    asked.call("update_ranks", handles, [True, False])
    asked.call("step_on_arrays", handles[1], [np.float32(1)])
    ranks, step = asked.calls[2:]
    assert (ranks.arguments, ranks.result) == ([[{"handle": 0}, {"handle": 1}], [True, False]], [{"handle": 1}, {"handle": 0}])
    assert (step.arguments[0], step.result) == ({"handle": 1}, [{"handle": 1}, [array("float32", 1.0).to_json()]])


def test_a_compiled_form_is_written_down_with_its_maker():
    """Its calls say through what they went."""
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


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (1.5, "0x1.8000000000000p+0"),
        (math.inf, "inf"),
        (True, True),
        (3, 3),
        ("text", "text"),
        (None, None),
        ((1, [2.0]), {"tuple": [1, ["0x1.0000000000000p+1"]]}),
        ({"a": 1, 2: 3}, {"dict": {"a": 1, "2": 3}}),
        (np.float32(1), array("float32", 1.0).to_json()),
        (np.ones(1, "float16"), {"dtype": "float16", "shape": [1], "bits": ["3c00"]}),
        (1j, {"repr": "1j"}),
    ],
)
def test_a_value_is_written_down_in_jsons_words(value, said):
    """Floats as hex, arrays as bits, and what JSON has not as its repr."""
    assert plain(value) == said


def test_a_rule_is_written_down_whole():
    """As its own JSON."""
    rule = LossScaleRule(init_scale=8.0, min_scale=1.0)
    assert plain(rule)["min_scale"] == 1.0
    assert plain(rule)["refill"] == ["finite", "backoff"]
