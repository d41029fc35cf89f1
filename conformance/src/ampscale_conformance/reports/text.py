"""A report in plain text, for a terminal: chapters with their counts, each failure with its clause, and what was not asked."""

import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator

from ..model.adapter import ImplementationInfo
from ..model.case import CHAPTERS
from ..model.clauses import clauses
from ..model.verdicts import BAD, Report, Result, Verdict

QUIET = (Verdict.PASS, Verdict.UNSUPPORTED)


def heading(info: ImplementationInfo) -> str:
    """What is tested, in one line."""
    preset = info.preset if isinstance(info.preset, str) else "its own rule"
    claims = f"; claims {', '.join(sorted(info.capabilities))}" if info.capabilities else ""
    return f"{' '.join(filter(None, (info.name, info.version)))}: level {info.level}, {preset}, {info.arrays} arrays{claims}"


def text(report: Report, width: int = 80) -> str:
    """The whole report. What is longer than *width* characters is broken between words."""
    parts = [[heading(report.info)], list(_chapters(report))]
    parts += [explained(result, width) for result in report.results if result.verdict not in QUIET]
    parts += [list(_unsupported(report, width)), [closing(report)]]
    return "\n\n".join("\n".join(lines) for lines in parts if lines)


def explained(result: Result, width: int = 80) -> list[str]:
    """What came of one case: the clause that it holds against, where that comes from, what it is there for, what happened."""
    lines = [f"{str(result.verdict).upper()} {result.case}"]
    if result.clause:
        clause = clauses()[result.clause]
        lines += _filled(f"{clause.id}: {clause.sentence}", width)
        lines += [line for source in clause.sources for line in _filled(f"Source: {source}", width)]
    if result.catches:
        lines += _filled(f"Fault: {result.catches}", width)
    first, *rest = result.message.split("\n")
    return lines + _filled(f"Here: {first}", width) + rest


def closing(report: Report) -> str:
    """The last line: whether all is well, and how many results there are of each verdict."""
    return f"{'ok' if report.ok else 'not ok'}: {_counts(report.results)}"


def _chapters(report: Report) -> Iterator[str]:
    """A line for each chapter, in the order of `CHAPTERS`."""
    known: dict[str, list[Result]] = {chapter: [] for chapter in CHAPTERS}
    for result in report.results:
        if result.clause:
            known.setdefault(clauses()[result.clause].chapter, []).append(result)
    wide = max(map(len, known))
    for chapter, results in known.items():
        if results:
            yield f"{chapter:<{wide}}  {_counts(results)}"


def _unsupported(report: Report, width: int) -> Iterator[str]:
    """How many cases were not put to it, by the reason."""
    reasons = Counter(result.message for result in report.results if result.verdict is Verdict.UNSUPPORTED)
    if reasons:
        yield f"Not tested, and not passed: {reasons.total()} unsupported"
    for reason, count in reasons.most_common():
        yield from textwrap.wrap(f"{count:>5}  {reason}", width, subsequent_indent=" " * 7, break_long_words=False)


def _counts(results: Iterable[Result]) -> str:
    found = Counter(result.verdict for result in results)
    bad_first = sorted(found, key=lambda verdict: (verdict not in BAD, list(Verdict).index(verdict)))
    return ", ".join(f"{found[verdict]} {verdict}" for verdict in bad_first) or "no case"


def _filled(line: str, width: int) -> list[str]:
    return textwrap.wrap(
        line, width, initial_indent="  ", subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
    )
