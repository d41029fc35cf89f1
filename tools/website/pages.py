"""Pages of the site that the repository does not contain: commands, presets, the matrix and source code; and the API."""

import ast
import csv
import inspect
import re
from collections import Counter
from fnmatch import fnmatchcase
from itertools import pairwise
from textwrap import dedent
from typing import Any

import click
from ampscale_conformance.model.adapter import ImplementationInfo
from ampscale_conformance.model.clauses import clauses
from ampscale_conformance.model.verdicts import BAD, Report, Result, Verdict
from ampscale_conformance.reports import badge
from click.testing import CliRunner
from release.trend import HISTORY, read_matrix

from ampscale.cli.app import main as program
from ampscale.presets import PRESETS

from .clauses import marked_tests, slug
from .layout import ROOT, site_path

_API_ENTRY = re.compile(r"^(###+) (ampscale[\w.]*)\n\n```text\n(.*?)\n```$", re.MULTILINE | re.DOTALL)
_CLAUSES = re.compile(r"\b[A-Z]+(?:-[a-z0-9]+)*-(?:[a-z0-9]+\b|\*)")  # an id, or the start of several ids
_PRESET_SOURCES = (
    "Each is compared with a transcription of the published code, and most with [the code itself](oracles.md). "
    "[Variants](variants.md) runs thirteen of them on the same steps."
)
_MATRIX_HISTORY = "A row is added when a run finds another version of an implementation, or other counts."
_MATRIX_TEXT = (
    'Results of the conformance suite on published implementations. <a href="matrix.html">The interactive matrix</a> shows every '
    "case with its calls, its scales and a script that reproduces a failure. A failure is a difference from [the "
    "specification](../spec/index.md), and not always a defect: see [Defects and decisions](versions.md#defects-and-decisions). "
    "Each file in the last column is the endpoint of [a badge](guide.md#on-a-build-server)."
)


def command_pages() -> dict[str, str]:
    """Return a page for each command, and an index of the commands."""
    context = click.Context(program, info_name="ampscale")
    commands = {name: command for name in program.list_commands(context) if (command := program.get_command(context, name))}
    pages = {f"commands/{name}.md": _command_page(name, command) for name, command in commands.items()}
    rows = [f"- [ampscale {name}]({name}.md): {_paragraphs(command.help)[0]}" for name, command in commands.items()]
    head = '# Commands\n\n`pip install "ampscale[cli]"` installs the commands. [The tools](../tools.md) shows what they print.\n'
    return {"commands/index.md": "\n".join([head, *rows, ""]), **pages}


def _command_page(name: str, command: click.Command) -> str:
    context = click.Context(command, info_name=name, parent=click.Context(program, info_name="ampscale"))
    usage = " ".join(command.collect_usage_pieces(context))
    parts = [f"# ampscale {name}", f"```sh\nampscale {name} {usage}\n```", *_paragraphs(command.help)]
    records = [record for parameter in command.params if (record := parameter.get_help_record(context))]
    rows = [f"| {_code(option)} | {_escape(text)} |" for option, text in records]
    if rows:
        parts += ["## Options", "\n".join(["| option | meaning |", "|---|---|", *rows])]
    return "\n\n".join([*parts, *_paragraphs(command.epilog)]) + "\n"


def _paragraphs(text: str | None) -> list[str]:
    """Return the paragraphs of a help text as Markdown. The first line of a paragraph that click does not wrap is its heading."""
    result = []
    for part in inspect.cleandoc(text or "").split("\n\n"):
        title, _, lines = part.lstrip("\b\n").partition("\n")
        if part.startswith("\b"):
            result.append(f"## {_escape(title.rstrip(':'))}\n\n```text\n{dedent(lines)}\n```")
        elif part:
            result.append(_escape(" ".join(part.split())))
    return result


def _code(option: str) -> str:
    return f"`{option.replace('|', '&#124;')}`"


def _escape(text: str) -> str:
    """Return a text of a command as Markdown, in which options are code and other markup is escaped."""
    return re.sub(r"(--[a-z][a-z-]*)|([\\`*_<>|\[\]])", lambda match: f"`{match[1]}`" if match[1] else f"\\{match[2]}", text)


def presets_page() -> str:
    """Return the page of all presets: a table, and each in prose, as `ampscale presets` describes it."""
    rows = [
        f"| [{preset.name}](#{preset.name}) | {preset.summary} | {preset.project} {preset.version}: `{preset.class_name}` |"
        for preset in PRESETS.values()
    ]
    head = ["# Presets", "", f"The {len(PRESETS)} published scalers of `ampscale.presets`. {_PRESET_SOURCES}", ""]
    table = ["| preset | rule | published as |", "|---|---|---|", *rows, ""]
    return "\n".join([*head, *table, *(line for name in PRESETS for line in (f"## {name}", "", *_preset_lines(name), ""))])


def _preset_lines(name: str) -> list[str]:
    printed = CliRunner().invoke(program, ["presets", name], catch_exceptions=False, env={"COLUMNS": "80"}).output
    return ["```text", printed.rstrip(), "```"]


def matrix_page() -> str:
    """Return the page with the counts of the conformance matrix."""
    matrix = read_matrix()
    names = ("pass", "fail", "unsupported")
    lines = ["# Matrix", "", _MATRIX_TEXT, "", "| implementation | pass | fail | unsupported | other | badge |"]
    lines.append("|---|---:|---:|---:|---:|---|")
    details = ["", "## Failed cases", ""]
    for implementation in matrix["implementations"]:
        counts = Counter(result["verdict"] for result in implementation["results"].values())
        cells = [counts[name] for name in names] + [counts.total() - sum(counts[name] for name in names)]
        cells.append(f'<a href="{_badge_file(implementation)}">JSON</a>')
        lines.append(f"| {implementation['id']} | {' | '.join(map(str, cells))} |")
        results = implementation["results"].items()
        failed = {name: result["verdict"] for name, result in results if result["verdict"] in BAD}
        items = [f"- {matrix['cases'][name]['clause']}: {name}, {verdict}" for name, verdict in failed.items()]
        details += [f"### {implementation['id']}", "", *(items or ["None."]), ""]
    head, *runs = csv.reader(HISTORY.read_text("utf-8").splitlines())
    table = [head, ["---"] * len(head), *sorted(runs, key=lambda run: run[1])]
    history = ["## History", "", _MATRIX_HISTORY, "", *(f"| {' | '.join(row)} |" for row in table), ""]
    return "\n".join([*lines, *details, *history, f"Created on {matrix['date'][:10]} by `make conform-matrix`.", ""])


def badges() -> dict[str, str]:
    """Return the badge of each implementation in the matrix, by a path that has no version in it."""
    files = {}
    for implementation in read_matrix()["implementations"]:
        results = [Result("", case, Verdict(result["verdict"])) for case, result in implementation["results"].items()]
        report = Report(ImplementationInfo(name=implementation["info"]["name"]), results)
        files[f"conformance/{_badge_file(implementation)}"] = badge.json_of(report)
    return files


def _badge_file(implementation: dict[str, Any]) -> str:
    return f"badges/{slug(implementation['info']['name'])}.json"


def source_page(path: str) -> str:
    """Return the page of a file of code; of a file of tests, with the clauses of each test."""
    text = (ROOT / path).read_text("utf-8").rstrip()
    language = {"py": "python", "cu": "cuda", "c": "c", "toml": "toml", "sh": "sh"}.get(path.rpartition(".")[2], "text")
    marks = dict(marked_tests(ROOT / path)) if path.startswith("tests/") else {}
    tests = [node for node in ast.parse(text).body if getattr(node, "name", "") in marks] if marks else []
    name_at = {min(item.lineno for item in [test, *test.decorator_list]): test.name for test in tests}  # by the first line
    lines = text.split("\n")
    parts = [f"---\norphan: true\nnosearch: true\n---\n\n# {path.rpartition('/')[2]}\n\n`{path}`"]
    for start, end in pairwise([1, *sorted(name_at), len(lines) + 1]):
        if start in name_at:
            parts.append(f"## {name_at[start]}\n\n{', '.join(marks[name_at[start]])}")
        if code := "\n".join(lines[start - 1 : end - 1]).strip("\n"):
            parts.append(f"`````{language}\n{code}\n`````")
    return "\n\n".join(parts) + "\n"


def api_page(text: str) -> str:
    """Return docs/api.md with its docstrings as descriptions of Python objects, which the search finds by name."""
    return _API_ENTRY.sub(_api_entry, text)


def _api_entry(match: re.Match[str]) -> str:
    """Return an entry of docs/api.md, whose docstring is a text block, as the description of a Python object."""
    from sphinx.ext.napoleon import Config, GoogleDocstring  # the tests need no Sphinx

    level, path, text = match.groups()
    signature, _, docstring = text.partition("\n\n")
    name = path.rpartition(".")[2]
    if name[0].isupper():
        kind = "class"
    elif level == "###":
        kind = "function"
    else:
        kind = "method" if "(" in signature else "attribute"
    body = str(GoogleDocstring(docstring, Config(napoleon_use_rtype=False), what=kind))
    body = _CLAUSES.sub(_clause_as_rst, body)
    lines = [f".. py:{kind}:: {path.removesuffix(name)}{signature}", "", *(f"   {line}".rstrip() for line in body.split("\n"))]
    return "\n".join([f"{level} {path}", "", "````{eval-rst}", *lines, "````"])


def _clause_as_rst(match: re.Match[str]) -> str:
    clause = next((clause for name, clause in clauses().items() if fnmatchcase(name, match[0])), None)
    if clause is None:
        return match[0]
    chapter = site_path(clause.file.relative_to(ROOT).as_posix()).removesuffix(".md")
    return f"`{match[0]} <{chapter}.html#{clause.id}>`__".replace("*", r"\*")
