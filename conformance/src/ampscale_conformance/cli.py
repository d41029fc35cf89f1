"""`ampscale conform`: test a loss scaler against the specification."""

import json
import os
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, redirect_stdout
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from ampscale.files import write_atomically

from .adapters import SHIPPED
from .adapters.loading import NotFound, find, installed
from .cases import every_case
from .model.adapter import LEVELS, parse_level
from .model.case import Case
from .model.clauses import clauses
from .model.subject import check_seconds
from .model.verdicts import Report, Result
from .model.versions import SUITE, belongs
from .remote.client import Client, CommandAdapter, NotStarted, ReplayAdapter
from .reports import badge, junit, markdown, matrix
from .reports.page import render
from .reports.snippet import reproduced, snippet_of
from .reports.text import text_of
from .run.check import MIN_PASSED, SECONDS, check, matches
from .run.expectations import read, updated
from .run.random_cases import CLAUSES, random_results

FILE = click.Path(dir_okay=False, path_type=Path)
STDOUT = "-"
MAX_WIDTH = 120

SOURCES = "observed: leave out cases that rest on a decision of the specification, not on a document or an observation."
LEAST = f"Number of cases that must pass. [default: {MIN_PASSED} of the whole suite, 0 of selected cases]"
LIMITS = "Time limit per case, and per reply of another process. [default: 60 per case, 10 per reply]"

# Title and formatter of the report that each of these options writes.
_FORMATS: dict[str, tuple[str, Callable[[Report], str]]] = {
    "json": ("JSON", lambda report: report.to_json() + "\n"),
    "junit": ("JUnit", junit.xml_of),
    "markdown": ("Markdown", markdown.markdown_of),
    "badge": ("badge", badge.json_of),
    "html": ("HTML", lambda report: render.html_of(matrix.of([json.loads(report.to_json())]))),
}
_FILES = (*_FORMATS, "record", "replay", "expect")  # options with a file


@click.command()
@click.argument("implementation", required=False)
@click.option("--command", metavar="'./PROGRAM ...'", help="Program that speaks the protocol, instead of IMPLEMENTATION.")
@click.option("--replay", type=FILE, metavar="FILE", help="Output of --record, instead of IMPLEMENTATION.")
@click.option("--list", "listed", is_flag=True, help="List the installed adapters and exit.")
@click.option("--level", metavar="N", help="Skip cases above this level, 0 to 5.")
@click.option("--case", metavar="GLOB", help="Run only cases whose id matches.")
@click.option("--clause", metavar="GLOB", help="Run only cases whose clause matches.")
@click.option("--suite", metavar="VERSION", help="Run only the cases of this version of the suite, such as 1.0.")
@click.option("--sources", type=click.Choice(("all", "observed")), help=SOURCES)
@click.option("--min-passed", type=click.IntRange(min=0), metavar="N", help=LEAST)
@click.option("--seconds", type=float, metavar="S", help=LIMITS)
@click.option("--isolate", is_flag=True, help="Run a Python adapter in its own process: a crash or a hang becomes a verdict.")
@click.option("--record", type=FILE, metavar="FILE", help="With --command: write all messages to a file for --replay.")
@click.option("--random", type=click.IntRange(min=0), metavar="SEED", help="Add random cases; requires hypothesis.")
@click.option("--only-random", is_flag=True, help="With --random: run no other cases.")
@click.option("--expect", type=FILE, metavar="FILE", help="TOML file of expected failures.")
@click.option("--update-expectations", is_flag=True, help="Update the file of --expect, and print the changes.")
@click.option("--json", is_flag=False, flag_value=STDOUT, metavar="[FILE]", help="Write the report as JSON.")
@click.option("--junit", type=FILE, metavar="FILE", help="Write the report as JUnit XML.")
@click.option("--markdown", type=FILE, metavar="FILE", help="Write the report as Markdown; runs the script of each failure.")
@click.option("--badge", type=FILE, metavar="FILE", help="Write the counts as JSON for the endpoint badge of shields.io.")
@click.option("--html", type=FILE, metavar="FILE", help="Write the report as an HTML page; runs the script of each failure.")
def conform(listed: bool, **options: Any) -> None:
    """
    Test a loss scaler against the specification.

    IMPLEMENTATION is an adapter, written pkg.mod:NAME, where modules of the current directory come first; or the name of an
    installed adapter: see --list.

    Prints the counts of each chapter and, for each case that did not pass, its clause, the bug that the case detects, and the
    expected and actual value. Cases that require a feature which the implementation does not claim are unsupported: neither
    passed nor failed. With --json and no FILE, prints the report as JSON and nothing else.

    The exit code is 0 if nothing failed, 1 if a case failed or too few passed, and 2 for a usage error.
    """
    if listed:
        for entry in installed():
            provider = f" ({entry.dist.name} {entry.dist.version})" if entry.dist else ""
            click.echo(f"{entry.name}\n    {entry.value}{provider}")
        return
    _check_usage(options)
    report, changes = _report(options)
    with _usage_errors():
        files = list(_write(report, options))
    if options["json"] == STDOUT:
        click.echo(report.to_json())
    else:
        width = min(shutil.get_terminal_size().columns, MAX_WIDTH)
        text = "\n\n".join(filter(None, [text_of(report, width), "\n".join([*changes, *files])]))
        encoding = sys.stdout.encoding or "utf-8"
        click.echo(text.encode(encoding, "backslashreplace").decode(encoding))  # the sources quote Chinese documents
    raise SystemExit(0 if report.ok else 1)


@contextmanager
def _usage_errors() -> Iterator[None]:
    """Turn errors in the block into usage errors, which end the command with one line."""
    try:
        yield
    except (ImportError, OSError, TypeError, ValueError) as error:
        raise click.UsageError(str(error)) from error


# The option that each of these options requires.
_REQUIRES = {"isolate": "implementation", "record": "command", "update_expectations": "expect", "only_random": "random"}
# Options that can change which cases are run, with the values that select the whole suite.
_SELECTING: dict[str, tuple[str, ...]] = {
    "level": tuple(f"{prefix}{max(LEVELS)}" for prefix in ("", "L", "l")),
    "case": ("*",),
    "clause": ("*",),
    "suite": (SUITE,),
    "sources": ("all",),
    "random": (),
}


def _check_usage(options: Mapping[str, Any]) -> None:
    used = [name for name, value in options.items() if value is not None and value is not False]  # a seed may be 0
    implementations = [name for name in ("implementation", "command", "replay") if name in used]
    if not implementations and options["json"] not in (None, STDOUT):
        raise click.UsageError(f"--json used {options['json']!r} as its FILE, so IMPLEMENTATION is missing; put --json last")
    if len(implementations) != 1:
        actual = " and ".join(map(_option_name, implementations)) or "none"
        raise click.UsageError(f"expected one of IMPLEMENTATION, --command, --replay and --list, got {actual}")
    for option, required in _REQUIRES.items():
        if option in used and required not in used:
            raise click.UsageError(f"{_option_name(option)} requires {_option_name(required)}")
    selecting = [name for name, whole in _SELECTING.items() if name in used and options[name] not in whole]
    if "update_expectations" in used and selecting:
        raise click.UsageError(f"--update-expectations requires the whole suite, got {_option_name(selecting[0])}")
    _check_files({_option_name(name): Path(options[name]) for name in _FILES if options[name] not in (None, STDOUT)})


def _check_files(files: Mapping[str, Path]) -> None:
    """Check the files of options before the suite runs. A file in two options would be overwritten."""
    seen = dict[Path, str]()
    for option, file in files.items():
        if not file.parent.is_dir():
            raise click.UsageError(f"the folder of {option} must exist, got {file}")
        if (other := seen.setdefault(file.resolve(), option)) != option:
            raise click.UsageError(f"{other} and {option} must be different files, got {file}")


def _option_name(name: str) -> str:
    return name.upper() if name == "implementation" else f"--{name.replace('_', '-')}"


@contextmanager
def _redirected_output() -> Iterator[None]:
    """Redirect the implementation's output to stderr, since stdout carries the report; suppress warnings."""
    sys.stdout.flush()
    stdout = os.dup(1)
    os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # some cases make the scale infinite on purpose
            yield
    finally:
        os.dup2(stdout, 1)
        os.close(stdout)


def _report(options: Mapping[str, Any]) -> tuple[Report, list[str]]:
    """Return the report, and the changes to the expectations file."""
    file, update = options["expect"], options["update_expectations"]
    changes = list[str]()
    if file is None:
        return _run(options), changes
    with _usage_errors():  # before the suite runs, so that an invalid file is reported at once
        updated(file, ()) if update else read(file)
    report = _run(options)
    with _usage_errors():
        if update and any(result.clause for result in report.results):  # otherwise, the implementation did not start
            entries, changes = updated(file, report.results)
            write_atomically(file, entries)
            changes = [f"{file}: {change}" for change in changes or ["nothing changed"]]
        expectations = read(file)
    results = [expectations.applied(result) for result in report.results]
    known = {case.id: case.clause for case in every_case()} | CLAUSES
    return replace(report, results=(*results, *expectations.stale(results, known))), changes


def _run(options: Mapping[str, Any]) -> Report:
    """Return the report, with a snippet for each failure of an adapter in this process."""
    if options["random"] is not None and find_spec("hypothesis") is None:
        raise click.UsageError('--random requires hypothesis: pip install "ampscale-conformance[random]"')
    seconds = SECONDS if options["seconds"] is None else options["seconds"]
    with _usage_errors(), _redirected_output():
        check_seconds("--seconds", seconds)
        level = None if options["level"] is None else parse_level(options["level"])
        cases = [] if options["only_random"] else _cases(options)
        adapter = _adapter(options)
    with _redirected_output(), adapter if isinstance(adapter, Client) else nullcontext():
        try:
            report = check(adapter, level, seconds=seconds, cases=cases, min_passed=options["min_passed"])
        except NotStarted as error:
            return error.report()
        results = list(report.results)
        if options["random"] is not None:
            results += random_results(adapter, options["random"], level, seconds=seconds)
    if not isinstance(adapter, Client):
        results = [replace(result, snippet=snippet_of(result, adapter)) for result in results]
        results = _with_reproduced(results) if options["html"] or options["markdown"] else results
    return replace(report, results=tuple(results))


def _with_reproduced(results: Sequence[Result]) -> list[Result]:
    """Run each snippet in its own process, and set `reproduced` of its result."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        outcomes = pool.map(lambda result: reproduced(result.snippet) if result.snippet else None, results)
        return [replace(result, reproduced=outcome) for result, outcome in zip(results, outcomes, strict=True)]


def _adapter(options: Mapping[str, Any]) -> Any:
    limit = {} if options["seconds"] is None else {"seconds": options["seconds"]}
    if options["replay"] is not None:
        return ReplayAdapter(options["replay"])
    if options["command"] is not None:
        return CommandAdapter(options["command"], record=options["record"], **limit)
    name = options["implementation"]
    if name in SHIPPED:
        info = find(name).info
        missing = info.arrays if info.version else info.name
        if not info.version or find_spec(info.arrays) is None:
            raise NotFound(f"{missing} is not installed in this environment ({sys.prefix})")
    if options["isolate"]:
        return CommandAdapter([sys.executable, "-m", "ampscale_conformance.remote.serve", name], **limit)
    return find(name)


def _cases(options: Mapping[str, Any]) -> list[Case] | None:
    """Return the selected cases, or None for the whole suite."""
    given = {name: value for name, value in options.items() if value is not None}
    case_glob, clause_glob, suite = given.get("case", "*"), given.get("clause", "*"), given.get("suite", SUITE)
    cases = [
        case
        for case in every_case()
        if matches(case, case_glob, clause_glob)
        and belongs(case.id, suite)
        and (options["sources"] != "observed" or clauses()[case.clause].basis != "decision")
    ]
    if not cases:
        sources = " with --sources observed" if options["sources"] == "observed" else ""
        remedy = f"; {case_glob} is a clause: pass --clause {case_glob}" if case_glob in clauses() else ""
        raise ValueError(f"no case of suite {suite} matches id {case_glob!r} and clause {clause_glob!r}{sources}{remedy}")
    return None if len(cases) == len(every_case()) else cases


def _write(report: Report, options: Mapping[str, Any]) -> Iterator[str]:
    """Write the requested files, and yield a message for each."""
    for name, (title, formatter) in _FORMATS.items():
        if options[name] not in (None, STDOUT):
            write_atomically(options[name], formatter(report))
            yield f"Wrote the {title} report to {options[name]}."
