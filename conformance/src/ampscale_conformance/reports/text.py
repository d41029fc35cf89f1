"""Plain-text report: counts per chapter, each failure with its clause, and the unsupported cases."""

import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator

from ..model.adapter import ImplementationInfo
from ..model.case import CHAPTERS
from ..model.clauses import clauses
from ..model.verdicts import BAD, Report, Result, Verdict

QUIET = (Verdict.PASS, Verdict.UNSUPPORTED)


def heading(info: ImplementationInfo) -> str:
    """Return one line that describes the implementation."""
    preset = info.preset if isinstance(info.preset, str) else "its own rule"
    claims = f"; claims {', '.join(sorted(info.capabilities))}" if info.capabilities else ""
    return f"{' '.join(filter(None, (info.name, info.version)))}: level {info.level}, {preset}, {info.arrays} arrays{claims}"


def text(report: Report, width: int = 80) -> str:
    """Return the report as text, with lines of at most *width* characters where a word boundary allows it."""
    parts = [[heading(report.info)], list(_chapters(report))]
    parts += [explained(result, width) for result in report.results if result.verdict not in QUIET]
    parts += [list(_unsupported(report, width)), [f"{'ok' if report.ok else 'not ok'}: {_counts(report.results)}"]]
    return "\n\n".join("\n".join(lines) for lines in parts if lines)


def explained(result: Result, width: int = 80) -> list[str]:
    """Return the lines on one result: verdict, clause, its sources, the bug that the case detects, and the message."""
    lines = [f"{str(result.verdict).upper()} {result.case}"]
    if result.clause:
        clause = clauses()[result.clause]
        lines += _filled(f"{clause.id}: {clause.sentence}", width)
        lines += [line for source in clause.sources for line in _filled(f"Source: {source}", width)]
    if result.catches:
        lines += _filled(f"Detects: {result.catches}", width)
    first, *rest = result.message.split("\n")
    return lines + _filled(f"Result: {first}", width) + rest


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


def _filled(line: str, width: int) -> list[str]:
    return textwrap.wrap(
        line, width, initial_indent="  ", subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
    )
