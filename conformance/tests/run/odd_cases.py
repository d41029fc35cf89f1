"""Cases on which the audit of the mutants is tested: no one would ask so."""

import math

from ampscale_conformance.model.case import case


@case("MACHINE-state", 0, "seven: the scale is 7")
def is_not_seven_twice(subject):
    """Looks at it again."""
    scale = subject.read_scale(subject.create(subject.rule()))
    subject.expect(scale != 7, "expected another scale")
    subject.expect(scale != 7, "still wanted another scale")


@case("MACHINE-state", 0, "a sign: the scale is negative")
def has_a_logarithm(subject):
    """Cannot be asked of a negative scale."""
    scale = subject.read_scale(subject.create(subject.rule()))
    subject.expect(scale > 0, "expected one with a logarithm")
    math.log2(scale)


@case("MACHINE-pure", 0, "nothing: whatever it is, this sees none of it")
def has_nothing(subject):
    """Asks for a tree that it has by itself."""
    subject.expect_same([None], [None], "a tree")
