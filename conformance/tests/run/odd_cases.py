"""Unusual cases for the tests of the audit of the mutants."""

import math

from ampscale_conformance.model.case import case


@case("MACHINE-state", 0, "seven: the scale is 7")
def is_not_seven_twice(subject):
    """Check the scale twice."""
    scale = subject.read_scale(subject.create(subject.rule()))
    subject.expect(scale != 7, "expected another scale")
    subject.expect(scale != 7, "expected another scale again")


@case("MACHINE-state", 0, "a sign: the scale is negative")
def has_a_logarithm(subject):
    """Compute a logarithm that a negative scale does not have."""
    scale = subject.read_scale(subject.create(subject.rule()))
    subject.expect(scale > 0, "expected a positive scale")
    math.log2(scale)


@case("MACHINE-pure", 0, "nothing: this case detects no bug")
def has_nothing(subject):
    """Compare a tree without calling the implementation."""
    subject.expect_same([None], [None], "a tree")
