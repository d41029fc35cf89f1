"""Markdown report, for a pull request, an issue or a build summary."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from ..model.adapter import LEVELS
from ..model.verdicts import BAD, Report, Result, Verdict
from .matrix import clause
from .text import facts, printable

# Outcomes of the script that reproduces a failure, by `Result.reproduced`.
_OUTCOMES = {None: "it was not run", True: "when run, it did", False: "when run, it did **not**"}


def markdown_of(report: Report) -> str:
    """
    Return the report as Markdown: totals by chapter and level, and each result that did not pass with its clause and message.

    Unsupported cases are counted apart from passes, in a collapsed section.
    """
    parts = [
        *_head(report),
        *_totals("Chapter", report.results, lambda result: str(clause(result.clause)["chapter"])),
        *_totals("Level", report.results, lambda result: f"{result.level} ({LEVELS[result.level].partition(':')[0]})"),
        *_section("Not passed", [result for result in report.results if result.verdict in BAD]),
        *_section("Expected failures", [result for result in report.results if result.verdict is Verdict.XFAIL]),
        *_unsupported(report.results),
    ]
    return "\n\n".join(parts) + "\n"


def _head(report: Report) -> Iterator[str]:
    info, counts = report.info, report.counts
    yield f"# Conformance of {_plain(f'{info.name} {info.version}'.strip())}"
    unsupported = counts.get("unsupported", 0)
    total = len(report.results) - unsupported
    not_run = f"{unsupported} more {'is unsupported and was' if unsupported == 1 else 'are unsupported and were'} not run."
    others = ", ".join(f"{number} {verdict}" for verdict, number in counts.items() if verdict not in ("pass", "unsupported"))
    yield f"**{counts.get('pass', 0)} of {total} cases passed**{f'; {others}' if others else ''}. {not_run}"
    yield "\n".join(f"- {_plain(name)}: {_plain(value)}" for name, value in facts(report).items())


def _totals(title: str, results: Sequence[Result], group_of: Callable[[Result], str]) -> Iterator[str]:
    """Yield a table of the verdicts that occur, with a row per group in the order of the results."""
    counter = Counter((group_of(result), result.verdict) for result in results)
    verdicts = [verdict for verdict in Verdict if any(result.verdict is verdict for result in results)]
    if not verdicts:
        return
    lines = [f"| {title} | {' | '.join(verdicts)} |", f"|---|{'---:|' * len(verdicts)}"]
    for group in dict.fromkeys(map(group_of, results)):
        lines += [f"| {group} | {' | '.join(str(counter[group, verdict] or '') for verdict in verdicts)} |"]
    yield "\n".join(lines)


def _section(title: str, results: Sequence[Result]) -> Iterator[str]:
    if results:
        yield f"## {title}"
    for result in results:
        yield f"### {_plain(result.case)}: {result.verdict}"
        yield from _fenced(result.message, "text")
        yield from _clause(result)
        if result.snippet:
            yield f"Script that reproduces the failure without ampscale; {_OUTCOMES[result.reproduced]}:"
            yield from _fenced(result.snippet, "python")


def _clause(result: Result) -> Iterator[str]:
    info = clause(result.clause)
    if result.clause:
        level = f", {info['level']}" if info["level"] else ""
        yield f"**{_plain(result.clause)}**{level}: {info['sentence'] or 'unknown clause.'}"
    if info["sources"]:
        yield "\n".join(f"> Source: {source}  " for source in info["sources"])
    if result.catches:
        yield f"Detects: {_plain(result.catches)}"


def _unsupported(results: Sequence[Result]) -> Iterator[str]:
    """Yield a collapsed section with the unsupported cases by reason."""
    reasons: dict[str, list[str]] = {}
    for result in results:
        if result.verdict is Verdict.UNSUPPORTED:
            reasons.setdefault(result.message, []).append(result.case)
    if not reasons:
        return
    number = sum(len(cases) for cases in reasons.values())
    yield f"<details>\n<summary>{number} unsupported: not run, and not counted as passed</summary>"
    for reason, cases in reasons.items():
        yield f"{len(cases)} × {_plain(reason)}: {', '.join(_plain(case) for case in cases)}"
    yield "</details>"


def _fenced(text: str, language: str) -> Iterator[str]:
    """Yield *text* between fences longer than any in the text."""
    text = printable(text)
    if text:
        fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
        yield f"{fence}{language}\n{text.rstrip()}\n{fence}"


def _plain(text: str) -> str:
    """Return *text* on one line, with Markdown's special characters escaped."""
    return re.sub(r"([\\`*_\[\]<>|#&~])", r"\\\1", " ".join(printable(text).split()))
