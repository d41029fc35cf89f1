"""Drawn cases: choices depend on the seed alone, and only the calls of a case that fails are recorded."""

import pytest
from ampscale_conformance import Unsupported
from ampscale_conformance.model.draw import DrawnCase, numbered, run_draws, run_unrecorded, seeded
from ampscale_conformance.model.subject import Failed, Subject
from mutants.plain import Plain


def drawn(outcome):
    """Return a function that draws cases. Each case creates a scaler, and calls *outcome* with the subject and its own number."""
    numbers = iter(range(99))

    def draw(_pick, _info):
        number = next(numbers)

        def run(subject):
            subject.create(subject.rule(init_scale=2.0**number))
            outcome(subject, number)

        return DrawnCase(run)

    return draw


def scales(subject):
    """Return the initial scales of the scalers in the record."""
    return [call.arguments[0]["init_scale"] for call in subject.calls]


def test_a_choice_is_one_of_the_values_and_every_value_is_chosen():
    """Equal seeds repeat the choices, and different seeds do not."""
    first, repeated, other = ([pick(range(7)) for _ in range(200)] for pick in (seeded("a"), seeded("a"), seeded("b")))
    assert set(first) == set(range(7))
    assert first == repeated != other


def test_only_the_calls_of_a_failing_case_are_recorded():
    """The failing case, number 2, is drawn again to record its calls. It then has number 3, and a scale of 2**3."""
    subject = Subject(Plain())
    with pytest.raises(Failed, match=r"^draw x 2: number 2$"):
        run_draws(subject, drawn(lambda subject, number: subject.expect(number < 2, f"number {number}")), numbered("x", 9))
    assert scales(subject) == [8.0]


def test_a_case_without_choices_records_its_calls_and_has_the_message_of_its_failure():
    """The message names no draw, since the case has none."""

    def run(subject):
        subject.create(subject.rule(init_scale=4.0))
        subject.expect(False, "no scale")

    subject = Subject(Plain())
    with pytest.raises(Failed, match=r"^no scale$"):
        run_unrecorded(subject, run)
    assert scales(subject) == [4.0]


def test_a_failure_that_is_not_repeated_has_no_calls():
    """A snippet of the calls would not reproduce the failure."""
    subject = Subject(Plain())
    with pytest.raises(Failed, match=r"^draw x 1: number 1; not reproducible: the same case passed when repeated$"):
        run_draws(subject, drawn(lambda subject, number: subject.expect(number != 1, f"number {number}")), numbered("x", 9))
    assert subject.calls == []


def test_calls_after_the_drawn_cases_are_recorded():
    subject = Subject(Plain())
    run_draws(subject, drawn(lambda *_: None), numbered("x", 3))
    subject.create(subject.rule(init_scale=64.0))
    assert scales(subject) == [64.0]


def test_cases_are_unsupported_only_if_all_of_them_are():
    def unsupported_from(first_number):
        def outcome(_, number):
            if number >= first_number:
                raise Unsupported("too many")

        return drawn(outcome)

    run_draws(Subject(Plain()), unsupported_from(1), numbered("x", 3))
    with pytest.raises(Unsupported, match="too many"):
        run_draws(Subject(Plain()), unsupported_from(0), numbered("x", 3))
