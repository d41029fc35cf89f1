"""JUnit XML report, for build servers."""

import re
from collections import Counter
from xml.etree import ElementTree

from ..model.verdicts import Report, Result, Verdict
from .matrix import clause
from .text import escaped, facts

# XML element of each verdict; a pass has none.
_ELEMENTS = {
    **dict.fromkeys((Verdict.FAIL, Verdict.XPASS), "failure"),
    **dict.fromkeys((Verdict.ERROR, Verdict.TIMEOUT, Verdict.CRASH, Verdict.PROTOCOL_ERROR), "error"),
    **dict.fromkeys((Verdict.UNSUPPORTED, Verdict.XFAIL), "skipped"),
}

# Characters that XML 1.0 forbids, even as references.
_FORBIDDEN = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def xml_of(report: Report) -> str:
    """
    Return the report as a JUnit test suite, with a test case for each result.

    A fail and an unexpected pass are failures; an error, a timeout, a crash and a protocol error are errors; unsupported cases
    and expected failures are skipped, with their reason. Characters that XML forbids are written as Python escapes.
    """
    full_name = _escaped(f"{report.info.name} {report.info.version}".strip())
    suite = ElementTree.Element("testsuite", {"name": full_name, **_totals(report)})
    properties = ElementTree.SubElement(suite, "properties")
    for name, value in facts(report).items():
        ElementTree.SubElement(properties, "property", name=_escaped(name), value=_escaped(value))
    for result in report.results:
        suite.append(_testcase(result))
    root = ElementTree.Element("testsuites", {"name": "ampscale conformance", **_totals(report)})
    root.append(suite)
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _totals(report: Report) -> dict[str, str]:
    counter = Counter(_ELEMENTS.get(result.verdict) for result in report.results)
    totals = {"tests": counter.total(), "failures": counter["failure"], "errors": counter["error"], "skipped": counter["skipped"]}
    seconds = sum(result.seconds for result in report.results)
    return {name: str(total) for name, total in totals.items()} | {"time": f"{seconds:.3f}"}


def _testcase(result: Result) -> ElementTree.Element:
    attributes = {"classname": clause(result.clause)["chapter"], "name": _escaped(result.case), "time": f"{result.seconds:.3f}"}
    testcase = ElementTree.Element("testcase", attributes)
    if element := _ELEMENTS.get(result.verdict):
        head = _escaped(result.message.partition("\n")[0])
        reason = ElementTree.SubElement(testcase, element, message=head, type=str(result.verdict))
        details = [result.message, f"Clause: {result.clause}", f"Detects: {result.catches}"]
        reason.text = _escaped("\n".join([*details, "", result.snippet] if result.snippet else details))
    return testcase


def _escaped(text: str) -> str:
    return _FORBIDDEN.sub(escaped, text)
