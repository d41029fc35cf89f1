"""A report in Markdown: for a pull request, an issue, a build's summary."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from ..model.adapter import LEVELS
from ..model.verdicts import BAD, Report, Result, Verdict
from .matrix import clause, escaped

_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")  # control characters, and halves of pairs that no UTF-8 holds


def of(report: Report) -> str:
    """
    The report: totals by chapter and level, then each result that is no pass with its clause and what came.

    What is unsupported is counted apart from the passes, and folded away.
    """
    parts = [
        *_head(report),
        *_totals("Chapter", report.results, lambda result: str(clause(result.clause)["chapter"])),
        *_totals("Level", report.results, lambda result: f"{result.level} ({LEVELS[result.level].partition(':')[0]})"),
        *_section("Not passed", [result for result in report.results if result.verdict in BAD]),
        *_section("Expected not to pass", [result for result in report.results if result.verdict is Verdict.XFAIL]),
        *_unsupported(report.results),
    ]
    return "\n\n".join(parts) + "\n"


def _head(report: Report) -> Iterator[str]:
    info, counts = report.info, report.counts
    yield f"# Conformance of {_plain(f'{info.name} {info.version}'.strip())}"
    asked = len(report.results) - counts.get("unsupported", 0)
    told = ", ".join(f"{number} {verdict}" for verdict, number in counts.items() if verdict not in ("pass", "unsupported"))
    yield f"**{counts.get('pass', 0)} of {asked} cases passed**{f'; {told}' if told else ''}. {_not_asked(counts)}"
    preset = info.preset if isinstance(info.preset, str) else "a rule of its own"
    claims = ", ".join(sorted(info.capabilities)) or "none"
    facts = {"level": str(info.level), "capabilities": claims, "preset": preset, "arrays": info.arrays, **report.environment}
    yield "\n".join(f"- {_plain(name)}: {_plain(value)}" for name, value in facts.items())


def _not_asked(counts: dict[str, int]) -> str:
    number = counts.get("unsupported", 0)
    return f"{number} more {'is' if number == 1 else 'are'} unsupported and {'was' if number == 1 else 'were'} not asked."


def _totals(title: str, results: Sequence[Result], group_of: Callable[[Result], str]) -> Iterator[str]:
    """A table of the verdicts that occur, a row for each group in the order of the results."""
    found = Counter((group_of(result), result.verdict) for result in results)
    shown = [verdict for verdict in Verdict if any(result.verdict is verdict for result in results)]
    if not shown:
        return
    lines = [f"| {title} | {' | '.join(shown)} |", f"|---|{'---:|' * len(shown)}"]
    for group in dict.fromkeys(map(group_of, results)):
        lines += [f"| {group} | {' | '.join(str(found[group, verdict] or '') for verdict in shown)} |"]
    yield "\n".join(lines)


def _section(title: str, results: Sequence[Result]) -> Iterator[str]:
    if results:
        yield f"## {title}"
    for result in results:
        yield f"### {_plain(result.case)}: {result.verdict}"
        yield from _fenced(result.message, "text")
        yield from _law(result)
        if result.snippet:
            yield _shown(result.reproduced)
            yield from _fenced(result.snippet, "python")


def _law(result: Result) -> Iterator[str]:
    said = clause(result.clause)
    if result.clause:
        level = f", {said['level']}" if said["level"] else ""
        yield f"**{_plain(result.clause)}**{level}: {said['sentence'] or 'a clause that is unknown here.'}"
    if said["sources"]:
        yield "\n".join(f"> Source: {source}  " for source in said["sources"])
    if result.catches:
        yield f"Catches: {_plain(result.catches)}"


def _shown(reproduced: bool | None) -> str:
    if reproduced is None:
        return "A script that shows it without ampscale; it was not run:"
    return f"A script that shows it without ampscale; run, it {'did' if reproduced else 'did **not**'} show it:"


def _unsupported(results: Sequence[Result]) -> Iterator[str]:
    """Folded away, by reason."""
    reasons: dict[str, list[str]] = {}
    for result in results:
        if result.verdict is Verdict.UNSUPPORTED:
            reasons.setdefault(result.message, []).append(result.case)
    if not reasons:
        return
    number = sum(len(cases) for cases in reasons.values())
    yield f"<details>\n<summary>{number} unsupported: not asked, and no passes</summary>"
    for reason, cases in reasons.items():
        yield f"{len(cases)} × {_plain(reason)}: {', '.join(_plain(case) for case in cases)}"
    yield "</details>"


def _fenced(text: str, language: str) -> Iterator[str]:
    """*text* between fences that are longer than any of its own."""
    text = _UNSEEN.sub(escaped, text)
    if text:
        fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
        yield f"{fence}{language}\n{text.rstrip()}\n{fence}"


def _plain(text: str) -> str:
    """*text* on one line, with what Markdown would read as a sign of its own written out."""
    return re.sub(r"([\\`*_\[\]<>|#])", r"\\\1", " ".join(_UNSEEN.sub(escaped, text).split()))
