"""Loops written by hand: what each call does, and which are refused."""

import math

import pytest
from ampscale_conformance.oracle.calls import Loop, Refused
from ampscale_conformance.oracle.machine import Constants
from ampscale_conformance.oracle.tensors import array


def loop(*names, **fields):
    """A scaler at 16, and optimizers of one parameter that starts at 8."""
    return Loop(Constants(**{"init_scale": 16.0, **fields}), {name: [array("float32", 8.0)] for name in names})


def lay(made, name, value):
    """One scaled gradient."""
    made.set_gradients(name, [None if value is None else array("float32", value)])


def values(made):
    """The parameters, one an optimizer."""
    return [made.optimizers[name].parameters[0] for name in made.optimizers]


def test_an_iteration():
    """16 by 16 is subtracted once, whether unscale_ was called or not; the scale moves at the end."""
    made = loop("a", "b", growth_interval=1)
    lay(made, "a", 16.0)
    lay(made, "b", 32.0)
    made.unscale_("a")
    assert made.optimizers["a"].gradients == [array("float32", 1.0)]
    assert [made.step("a"), made.step("b")] == [True, True]
    assert made.scale == 16
    made.update()
    assert (made.scale, values(made)) == (32, [array("float32", 7.0), array("float32", 6.0)])


def test_the_flag_is_taken_before_edits_and_edits_are_kept():
    """A repaired infinity still skips; a clipped gradient is what is subtracted."""
    made = loop("a", "b")
    lay(made, "a", math.inf)
    lay(made, "b", 16.0)
    made.unscale_("a")
    made.unscale_("b")
    lay(made, "a", 0.0)
    lay(made, "b", 0.5)
    assert [made.step("a"), made.step("b")] == [False, True]
    assert values(made) == [array("float32", 8.0), array("float32", 7.5)]


def test_nothing_is_no_step_and_no_overflow():
    """Alone it leaves the count too; beside another one it does not count."""
    made = loop("a", "b", growth_interval=2)
    assert not made.step("a")
    made.update()
    lay(made, "b", 16.0)
    made.step("b")
    made.update()
    assert made.scale == 16
    made.step("a")
    lay(made, "b", 16.0)
    made.step("b")
    made.update()
    assert made.scale == 32


@pytest.mark.parametrize(
    ("before", "refused"),
    [
        ([], "update"),
        (["unscale_"], "unscale_"),
        (["step"], "unscale_"),
        (["step"], "step"),
        (["unscale_", "step"], "step"),
        (["step", "update"], "update"),
    ],
)
@pytest.mark.parametrize("gradient", [16.0, math.inf])
def test_what_is_out_of_order_is_refused_and_changes_nothing(before, refused, gradient):
    """Nor does the iteration end by it."""
    made = loop("a")
    lay(made, "a", gradient)

    def call(name):
        return getattr(made, name)(*[] if name == "update" else ["a"])

    for name in before:
        call(name)
    state = (made.scale, values(made), list(made.optimizers["a"].gradients))
    with pytest.raises(Refused):
        call(refused)
    assert (made.scale, values(made), list(made.optimizers["a"].gradients)) == state
    if before[-1:] != ["update"]:
        if before[-1:] != ["step"]:
            call("step")
        call("update")


def test_an_update_opens_everything_again():
    """Also where no step followed; what was found is forgotten, and it was found on both sides: 2**127 by 2**-4 is infinite."""
    for before in (["unscale_"], ["step"], ["unscale_", "step"]):
        made = loop("a")
        lay(made, "a", math.inf)
        for name in before:
            getattr(made, name)("a")
        made.update()
        lay(made, "a", 8.0)
        made.unscale_("a")
        assert made.step("a")
        assert (made.scale, values(made)) == (8, [array("float32", 7.0)])
    made = loop("a", init_scale=2.0**-4)
    lay(made, "a", 2.0**127)
    assert not made.step("a")
