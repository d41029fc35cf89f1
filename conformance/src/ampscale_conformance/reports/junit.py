"""A report in JUnit's XML, which build servers read."""

import re
from collections import Counter
from xml.etree import ElementTree

from ..model.verdicts import Report, Result, Verdict
from .matrix import clause, escaped

# The element that says why a test did not pass.
_ELEMENTS = {
    **dict.fromkeys((Verdict.FAIL, Verdict.XPASS), "failure"),
    **dict.fromkeys((Verdict.ERROR, Verdict.TIMEOUT, Verdict.CRASH, Verdict.PROTOCOL_ERROR), "error"),
    **dict.fromkeys((Verdict.UNSUPPORTED, Verdict.XFAIL), "skipped"),
}

# What no XML 1.0 document may hold, not even escaped.
_FORBIDDEN = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def xml_of(report: Report) -> str:
    """
    The report as one test suite, with a test case for each result.

    A fail and an unexpected pass are failures; an error, a timeout, a crash and a protocol error are errors; what is
    unsupported or expected not to pass is skipped, with its reason. A character that XML cannot hold is written as Python
    escapes it.
    """
    suite = ElementTree.Element(
        "testsuite", {"name": _held(f"{report.info.name} {report.info.version}".strip()), **_totals(report)}
    )
    properties = ElementTree.SubElement(suite, "properties")
    for name, value in {"level": str(report.info.level), "arrays": report.info.arrays, **report.environment}.items():
        ElementTree.SubElement(properties, "property", name=_held(name), value=_held(value))
    for result in report.results:
        suite.append(_testcase(result))
    root = ElementTree.Element("testsuites", {"name": "ampscale conformance", **_totals(report)})
    root.append(suite)
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _totals(report: Report) -> dict[str, str]:
    found = Counter(_ELEMENTS.get(result.verdict) for result in report.results)
    seconds = sum(result.seconds for result in report.results)
    return {
        "tests": str(len(report.results)),
        "failures": str(found["failure"]),
        "errors": str(found["error"]),
        "skipped": str(found["skipped"]),
        "time": f"{seconds:.3f}",
    }


def _testcase(result: Result) -> ElementTree.Element:
    said = {"classname": clause(result.clause)["chapter"], "name": _held(result.case), "time": f"{result.seconds:.3f}"}
    testcase = ElementTree.Element("testcase", said)
    if element := _ELEMENTS.get(result.verdict):
        head = _held(result.message.partition("\n")[0])
        reason = ElementTree.SubElement(testcase, element, message=head, type=str(result.verdict))
        reason.text = _held(_words(result))
    return testcase


def _words(result: Result) -> str:
    lines = [result.message, f"Clause: {result.clause}", f"Catches: {result.catches}"]
    if result.snippet:
        lines += ["", result.snippet]
    return "\n".join(lines)


def _held(text: str) -> str:
    return _FORBIDDEN.sub(escaped, text)
