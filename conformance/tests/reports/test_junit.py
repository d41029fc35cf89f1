"""JUnit XML, as build servers read it."""

import re
from xml.etree import ElementTree

import pytest
from ampscale_conformance import ImplementationInfo, Report, Result, Verdict
from ampscale_conformance.reports import junit
from reports import samples

# Children of each element, in their order, and its attributes: the format that build servers have in common.
CHILDREN = {
    "testsuites": ["testsuite"],
    "testsuite": ["properties", "testcase"],
    "properties": ["property"],
    "testcase": ["skipped", "error", "failure"],
}
ATTRIBUTES = {
    "testsuites": {"name", "tests", "failures", "errors", "skipped", "time"},
    "testsuite": {"name", "tests", "failures", "errors", "skipped", "time"},
    "testcase": {"classname", "name", "time"},
    "property": {"name", "value"},
    "skipped": {"message", "type"},
    "error": {"message", "type"},
    "failure": {"message", "type"},
}


def parsed(report):
    return ElementTree.fromstring(junit.xml_of(report).encode("utf-8"))


def tags_by_case(report):
    """Return the tags of the elements in each test case, by its name."""
    return {case.get("name"): [child.tag for child in case] for case in parsed(report).iter("testcase")}


REPORTS = [samples.report_of(samples.Conforming()), samples.report_of(samples.Raising()), samples.every_verdict(snippet="1\n")]


@pytest.mark.parametrize("report", REPORTS)
def test_elements_have_the_usual_children_and_attributes(report):
    root = parsed(report)
    for element in root.iter():
        tags = [child.tag for child in element]
        allowed = CHILDREN.get(element.tag, [])
        assert tags == sorted(tags, key=allowed.index)
        assert set(element.keys()) == ATTRIBUTES.get(element.tag, set())


@pytest.mark.parametrize("report", REPORTS)
def test_totals_are_those_of_the_test_cases(report):
    """A test case has at most one outcome."""
    root = parsed(report)
    suite = root.find("testsuite")
    cases = list(suite.iter("testcase"))
    assert all(len(case) <= 1 for case in cases)
    assert int(suite.get("tests")) == len(cases) == len(report.results)
    for total, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        assert int(suite.get(total)) == int(root.get(total)) == len(list(suite.iter(tag)))
    assert float(suite.get("time")) == pytest.approx(sum(float(case.get("time")) for case in cases), abs=1e-3 * len(cases))


def test_each_verdict_except_pass_has_one_element():
    """
    Unsupported cases and expected failures are skipped, an unexpected pass is a failure, and interruptions are errors.

    The type of an element is the verdict.
    """
    assert tags_by_case(samples.every_verdict()) == {
        "case-pass": [],
        "case-fail": ["failure"],
        "case-xpass": ["failure"],
        "case-error": ["error"],
        "case-timeout": ["error"],
        "case-crash": ["error"],
        "case-protocol-error": ["error"],
        "case-unsupported": ["skipped"],
        "case-xfail": ["skipped"],
    }
    assert {child.get("type") for case in parsed(samples.every_verdict()).iter("testcase") for child in case} == {
        str(verdict) for verdict in Verdict if verdict is not Verdict.PASS
    }


def test_a_case_has_its_chapter_as_class_name():
    """The class name of an unknown capability is "claims"."""
    report = samples.report_of(samples.Conforming(level=0, capabilities=["time travel"]))
    classes = {case.get("name"): case.get("classname") for case in parsed(report).iter("testcase")}
    assert classes["trace-gggg"] == "machine"
    assert classes["trees-are-scaled"] == "scaling"
    assert classes["capability-time travel"] == "claims"


def test_the_message_attribute_is_the_first_line_of_the_message():
    """The text of the element has the message, the clause, the bug and the script."""
    result = Result("MACHINE-max-scale", "a", Verdict.FAIL, "one\ntwo", 0, "late: three", snippet="print(4)\n")
    (failure,) = parsed(Report(ImplementationInfo(name="x"), (result,))).iter("failure")
    assert failure.get("message") == "one"
    assert failure.text.splitlines() == ["one", "two", "Clause: MACHINE-max-scale", "Detects: late: three", "", "print(4)"]


def test_a_skipped_case_has_the_reason():
    report = samples.report_of(samples.Conforming(level=0))
    skipped = {case.get("name"): case.find("skipped") for case in parsed(report).iter("testcase")}
    assert skipped["trees-are-scaled"].get("message") == "claims level 0; requires level 1"


def test_every_character_can_be_written():
    """Characters that XML forbids are written as Python escapes; all others round-trip."""
    for character in [*map(chr, range(32)), "\x7f", "\x85", "\ud800", "\ufffe", "\uffff", "<", "&", '"', "]]>", "😀", "损"]:
        name = f"a{character}b"
        info = ImplementationInfo(name=name, version="1")
        root = parsed(Report(info, (Result("MACHINE-max-scale", name, Verdict.FAIL, f"x\n{name}"),), {name: name}))
        forbidden = re.fullmatch("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]", character)
        shown = f"a{character.encode('unicode_escape').decode()}b" if forbidden else name
        assert root.find("testsuite").get("name") == f"{shown} 1"
        assert root.find(".//testcase").get("name") == shown
        assert root.find(".//property[last()]").get("value") == shown
        text = f"{shown}\nClause: MACHINE-max-scale\nDetects: ".replace("\r", "\n")
        assert root.find(".//failure").text.splitlines()[1:] == text.splitlines()
