"""Plain-text report: counts per chapter, each failure with its clause, and the unsupported cases."""

import re
import textwrap
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence

from ..model.adapter import ImplementationInfo
from ..model.case import CHAPTERS
from ..model.clauses import clauses
from ..model.verdicts import BAD, Report, Result, Verdict
from ..model.versions import SUITE, spec_version

_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")  # control characters, and surrogates, which UTF-8 lacks


def printable(text: str) -> str:
    """Return *text* with Python escapes instead of surrogates and of control characters other than tabs and newlines."""
    return _UNPRINTABLE.sub(escaped, text)


def escaped(match: re.Match[str]) -> str:
    """Return matched text as Python escapes."""
    return match[0].encode("unicode_escape").decode("ascii")


def facts(report: Report) -> dict[str, str]:
    """Return the versions, the claims of the implementation and the environment, by name."""
    info = report.info
    claims = {"level": str(info.level), "capabilities": ", ".join(sorted(info.capabilities)) or "none"}
    versions = {"suite": SUITE, "spec": spec_version()}
    return {**versions, **claims, "preset": _preset(info), "arrays": info.arrays, **report.environment}


def heading(info: ImplementationInfo) -> str:
    """Return one line that describes the implementation and the suite."""
    claims = f"; claims {', '.join(sorted(info.capabilities))}" if info.capabilities else ""
    name = " ".join(filter(None, (info.name, info.version)))
    return f"{name}: level {info.level}, {_preset(info)}, {info.arrays} arrays; suite {SUITE}, spec {spec_version()}{claims}"


def _preset(info: ImplementationInfo) -> str:
    return info.preset if isinstance(info.preset, str) else "its own rule"


def text_of(report: Report, width: int = 80) -> str:
    """Return the report as printable text, with lines of at most *width* characters where a word boundary allows it."""
    is_started = [result.case for result in report.results] != ["hello"]
    parts = [[heading(report.info) if is_started else f"{report.info.name}: not started"], list(_chapters(report))]
    parts += [_group(results, width) for results in same_failures(report.results)]
    reason = f"; {report.too_little}" if report.too_little else ""
    parts += [list(_unsupported(report, width)), [f"{'ok' if report.ok else 'not ok'}: {_counts(report.results)}{reason}"]]
    return printable("\n\n".join("\n".join(lines) for lines in parts if lines))


def same_failures(results: Iterable[Result]) -> list[list[Result]]:
    """Return the results with verdicts other than pass and unsupported, grouped by verdict and message."""
    groups = defaultdict[tuple[str, str], list[Result]](list)
    for result in results:
        if result.verdict not in (Verdict.PASS, Verdict.UNSUPPORTED):
            groups[result.verdict, result.message].append(result)
    return list(groups.values())


def _group(results: Sequence[Result], width: int) -> list[str]:
    """Return the lines on the first of several results with the same message, and a line with the cases of the others."""
    first, *others = results
    lines = lines_of(first, width)
    if others:
        cases = f"{len(others)} more {'case' if len(others) == 1 else 'cases'}"
        lines += _wrapped(f"Same result for {cases}: {', '.join(result.case for result in others)}", width)
    return lines


def lines_of(result: Result, width: int = 80) -> list[str]:
    """Return the lines on one result: verdict, clause, its sources, the bug that the case detects, and the message."""
    lines = [f"{str(result.verdict).upper()} {result.case}"]
    if result.clause:
        clause = clauses()[result.clause]
        if clause.basis == "decision":
            lines[0] += f" (a difference from a decision of spec {spec_version()})"
        lines += _wrapped(f"{clause.id}: {clause.sentence}", width)
        lines += [line for source in clause.sources for line in _wrapped(f"Source: {source}", width)]
    if result.catches:
        lines += _wrapped(f"Detects: {result.catches}", width)
    first, *remaining = result.message.split("\n")
    return lines + _wrapped(f"Result: {first}", width) + remaining


def _chapters(report: Report) -> Iterator[str]:
    """Yield a line for each chapter, in the order of `CHAPTERS`."""
    by_chapter: dict[str, list[Result]] = {chapter: [] for chapter in CHAPTERS}
    for result in report.results:
        if result.clause:
            by_chapter.setdefault(clauses()[result.clause].chapter, []).append(result)
    column = max(map(len, by_chapter))
    for chapter, results in by_chapter.items():
        if results:
            yield f"{chapter:<{column}}  {_counts(results)}"


def _unsupported(report: Report, width: int) -> Iterator[str]:
    """Yield the number of unsupported cases for each reason."""
    reasons = Counter(result.message for result in report.results if result.verdict is Verdict.UNSUPPORTED)
    if reasons:
        yield f"Not run: {reasons.total()} unsupported"
    for reason, count in reasons.most_common():
        yield from textwrap.wrap(f"{count:>5}  {reason}", width, subsequent_indent=" " * 7, break_long_words=False)


def _counts(results: Iterable[Result]) -> str:
    counter = Counter(result.verdict for result in results)
    failures_first = sorted(counter, key=lambda verdict: (verdict not in BAD, list(Verdict).index(verdict)))
    return ", ".join(f"{counter[verdict]} {verdict}" for verdict in failures_first) or "no case"


def _wrapped(line: str, width: int) -> list[str]:
    return textwrap.wrap(
        line, width, initial_indent="  ", subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
    )
