"""`ampscale conform`: which clauses of the specification an implementation keeps."""

import json
import os
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, redirect_stdout
from dataclasses import replace
from fnmatch import fnmatchcase
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from ampscale.files import write_atomically

from .adapters.loading import find, installed
from .cases import every_case
from .model.adapter import level_of
from .model.case import Case
from .model.verdicts import Report, Result
from .remote.client import Client, NotStarted
from .remote.command_adapter import CommandAdapter, ReplayAdapter
from .reports import junit, markdown, matrix
from .reports.page import render
from .reports.snippet import reproduced, snippet_of
from .reports.text import text
from .run.check import SECONDS, check
from .run.expectations import read
from .run.expectations_update import rewritten
from .run.random_cases import CLAUSES, random_results

FILE = click.Path(dir_okay=False, path_type=Path)
STDOUT = "-"
WIDEST = 120


@click.command()
@click.argument("implementation", required=False)
@click.option("--command", metavar="'./PROGRAM ...'", help="A program that speaks the protocol, instead of IMPLEMENTATION.")
@click.option("--replay", type=FILE, metavar="FILE", help="What --record has written, instead of IMPLEMENTATION.")
@click.option("--list", "listed", is_flag=True, help="List the adapters that are installed, and end.")
@click.option("--level", metavar="N", help="Leave out the cases above this level, 0 to 4.")
@click.option("--case", metavar="GLOB", help="Only cases whose id matches.")
@click.option("--clause", metavar="GLOB", help="Only cases whose clause matches.")
@click.option(
    "--seconds", type=click.FloatRange(min=0, min_open=True), metavar="S", help="How long a case may take. [default: 60]"
)
@click.option("--isolate", is_flag=True, help="Run a Python adapter in a process of its own; a crash or a hang is a verdict.")
@click.option("--record", type=FILE, metavar="FILE", help="With --command: write all messages down, for --replay.")
@click.option("--random", type=click.IntRange(min=0), metavar="SEED", help="Add random cases; this needs hypothesis.")
@click.option("--expect", type=FILE, metavar="FILE", help="A TOML file of what the implementation is known to fail.")
@click.option("--update-expectations", is_flag=True, help="Rewrite that file by what came, and say what changed.")
@click.option("--json", is_flag=False, flag_value=STDOUT, metavar="[FILE]", help="The report as JSON.")
@click.option("--junit", type=FILE, metavar="FILE", help="The report as JUnit's XML.")
@click.option("--markdown", type=FILE, metavar="FILE", help="The report as Markdown, its scripts run once.")
@click.option("--html", type=FILE, metavar="FILE", help="The report as a page of HTML, likewise.")
def conform(listed: bool, **said: Any) -> None:
    """
    Say which clauses of the specification a loss scaler keeps.

    IMPLEMENTATION is an adapter in a module, written pkg.mod:NAME, where modules of the current directory come first; or the
    name of an installed adapter: see --list.

    Prints the counts of each chapter, and each case that did not pass with its clause, the fault that it is there for, and
    what was wanted and came. What the implementation does not claim is unsupported, which is neither a pass nor a failure.
    With --json and no FILE, prints the report as JSON and nothing else.

    The exit code is 0 if nothing failed, 1 if something did, and 2 for wrong usage.
    """
    if listed:
        click.echo("\n".join(_adapters()))
        return
    _check_usage(said)
    report, changes = _reported(said)
    with _usage():
        files = list(_write(report, said))
    if said["json"] == STDOUT:
        click.echo(report.to_json())
    else:
        width = min(shutil.get_terminal_size().columns, WIDEST)
        click.echo("\n\n".join(filter(None, [text(report, width), "\n".join([*changes, *files])])))
    raise SystemExit(0 if report.ok else 1)


@contextmanager
def _usage() -> Iterator[None]:
    """What is asked for and cannot be had ends the command with one line."""
    try:
        yield
    except (ImportError, OSError, TypeError, ValueError) as error:
        raise click.UsageError(str(error)) from error


def _adapters() -> Iterator[str]:
    wide = max(len(entry.name) for entry in installed())
    for entry in installed():
        brought = f"  ({entry.dist.name} {entry.dist.version})" if entry.dist else ""
        yield f"{entry.name:<{wide}}  {entry.value}{brought}"


_NEEDS = {"isolate": "implementation", "record": "command", "update_expectations": "expect"}
_PARTIAL = ("level", "case", "clause", "random")


def _check_usage(said: Mapping[str, Any]) -> None:
    given = [name for name, value in said.items() if value is not None and value is not False]  # a seed may be 0
    sources = [name for name in ("implementation", "command", "replay") if name in given]
    if not sources and said["json"] not in (None, STDOUT):
        raise click.UsageError(f"--json took {said['json']!r} for its FILE, and no IMPLEMENTATION is left: put --json last")
    if len(sources) != 1:
        got = " and ".join(map(_spelled, sources)) or "none"
        raise click.UsageError(f"one of IMPLEMENTATION, --command, --replay and --list is wanted, got {got}")
    for option, needed in _NEEDS.items():
        if option in given and needed not in given:
            raise click.UsageError(f"{_spelled(option)} goes with {_spelled(needed)}")
    if "update_expectations" in given and (partial := [name for name in _PARTIAL if name in given]):
        raise click.UsageError(f"--update-expectations goes with the whole suite, and not with {_spelled(partial[0])}")


def _spelled(name: str) -> str:
    return name.upper() if name == "implementation" else f"--{name.replace('_', '-')}"


@contextmanager
def _apart() -> Iterator[None]:
    """What an implementation prints goes to the standard error, as the standard output is the report's; warnings go nowhere."""
    sys.stdout.flush()
    ours = os.dup(1)
    os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a scale that becomes infinite is what some cases ask for
            yield
    finally:
        os.dup2(ours, 1)
        os.close(ours)


def _reported(said: Mapping[str, Any]) -> tuple[Report, list[str]]:
    """The report, and what is different in the file of expectations."""
    file, changes = said["expect"], list[str]()
    if file is None:
        return _checked(said), changes
    with _usage():
        # What is wrong with the file is said before the suite is run.
        before = None if said["update_expectations"] and rewritten(file, ()) else read(file)
    report = _checked(said)
    if before is None:
        with _usage():
            entries, changes = rewritten(file, report.results)
            write_atomically(file, entries)
        changes = [f"{file}: {change}" for change in changes or ["nothing changed"]]
    expectations = before or read(file)
    results = [expectations.applied(result) for result in report.results]
    known = {case.id: case.clause for case in every_case()} | CLAUSES
    return replace(report, results=(*results, *expectations.stale(results, known))), changes


def _checked(said: Mapping[str, Any]) -> Report:
    """The report, with a snippet for each failure where the implementation is here to make one from."""
    if said["random"] is not None and find_spec("hypothesis") is None:
        raise click.UsageError('--random requires hypothesis: pip install "ampscale-conformance[random]"')
    with _usage(), _apart():
        level, chosen = _level(said["level"]), _chosen(said)
        adapter = _adapter(said)
    seconds = said["seconds"] or SECONDS
    with _apart(), adapter if isinstance(adapter, Client) else nullcontext():
        try:
            report = check(adapter, level, seconds=seconds, cases=chosen)
        except NotStarted as error:
            return error.report()
        results = list(report.results)
        if said["random"] is not None:
            results += random_results(adapter, said["random"], level, seconds=seconds)
    if not isinstance(adapter, Client):
        results = [replace(result, snippet=snippet_of(result, adapter)) for result in results]
        results = _executed(results) if said["html"] or said["markdown"] else results
    return replace(report, results=tuple(results))


def _executed(results: Sequence[Result]) -> list[Result]:
    """Run the snippet of each result by itself, and note in the result whether it shows the failure."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        shown = pool.map(lambda result: reproduced(result.snippet) if result.snippet else None, results)
        return [replace(result, reproduced=one) for result, one in zip(results, shown, strict=True)]


def _level(word: str | None) -> int | None:
    return None if word is None else level_of(int(word) if word.isdecimal() else word)


def _adapter(said: Mapping[str, Any]) -> Any:
    limit = {} if said["seconds"] is None else {"seconds": said["seconds"]}
    if said["replay"] is not None:
        return ReplayAdapter(said["replay"])
    if said["command"] is not None:
        return CommandAdapter(said["command"], record=said["record"], **limit)
    if said["isolate"]:
        return CommandAdapter([sys.executable, "-m", "ampscale_conformance.remote.serve", said["implementation"]], **limit)
    return find(said["implementation"])


def _chosen(said: Mapping[str, Any]) -> list[Case]:
    by_case, by_clause = said["case"] or "*", said["clause"] or "*"
    chosen = [case for case in every_case() if fnmatchcase(case.id, by_case) and fnmatchcase(case.clause, by_clause)]
    if not chosen:
        raise ValueError(f"no case of the suite has an id like {by_case!r} and a clause like {by_clause!r}")
    return chosen


def _write(report: Report, said: Mapping[str, Any]) -> Iterator[str]:
    """Write the requested files, and yield a line on each."""
    for name, (title, of) in _FORMS.items():
        if said[name] not in (None, STDOUT):
            write_atomically(said[name], of(report))
            yield f"The {title} report is {said[name]}."


_FORMS: dict[str, tuple[str, Callable[[Report], str]]] = {
    "json": ("JSON", lambda report: report.to_json() + "\n"),
    "junit": ("JUnit", junit.xml_of),
    "markdown": ("Markdown", markdown.of),
    "html": ("HTML", lambda report: render.html_of(matrix.of([json.loads(report.to_json())]))),
}
