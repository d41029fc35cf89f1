"""HTML page of a run in one file, with its styles, script and pictures; it requires no network."""

import base64
import hashlib
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from ...diagnostics.run_files import Run
from ...diagnostics.verdicts import Diagnosis
from ...diagnostics.window import SMALLEST_NORMAL
from ..describe import counted, sentences
from .heat_maps import heat_maps
from .layers import Layer, complete, layers_of
from .markup import escaped, name_of, percent, power_of_two, scale_text
from .scale_chart import scale_chart

_FOLDER = Path(__file__).parent
_EVENTS = 100  # rows of the table of skipped steps and scale changes
_LAYERS = 1000  # rows of the table of gradients


def html_of(run: Run, title: str) -> str:
    """
    Return the page of *run* with this title.

    The content security policy allows only the page's own script and style, by their hashes. Therefore the page cannot access the
    network, and no text in a run file can run as a script.
    """
    style, script = ((_FOLDER / name).read_text("utf-8") for name in ("page.css", "page.js"))
    parts = {
        "policy": f"default-src 'none'; img-src data:; script-src '{_hash(script)}'; style-src '{_hash(style)}'",
        "style": style,
        "script": script,
        "title": escaped(title),
        "body": "\n".join(_sections(run)),
    }
    template = (_FOLDER / "page.html").read_text("utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], template)


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")


def _sections(run: Run) -> Iterator[str]:
    yield f'<p class="lede">{_summary(run)}</p>'
    if run.rule is not None:
        items = "".join(f"<li>{escaped(sentence)}</li>" for sentence in sentences(run.rule))
        yield f"<details><summary>The scaler</summary><ul>{items}</ul></details>"
    if not run.steps.size:
        return
    yield _section("scale", "Scale and skipped steps", _scale(run))
    yield _section("verdicts", "Verdicts", _verdicts(run.diagnoses, int(np.count_nonzero(~run.applied))))
    layers = layers_of(run, complete(run, run.measurements)) if run.measurements else []
    yield _section("exponents", "Exponents of the gradients", _exponents(run, layers))
    yield _section("gradients", "Gradients", _layers(layers, len(run.measurements)))


def _section(name: str, title: str, content: str) -> str:
    return f'<section aria-labelledby="{name}"><h2 id="{name}">{title}</h2>{content}</section>'


def _summary(run: Run) -> str:
    steps, applied = run.steps.size, int(np.count_nonzero(run.applied))
    if not steps:
        return "The run file has no step yet."
    skipped = f"{steps - applied:,} skipped ({percent((steps - applied) / steps)})" if applied < steps else "none skipped"
    first, last, low, high = (
        scale_text(float(scale)) for scale in (run.scales[0], run.next_scales[-1], run.scales.min(), run.scales.max())
    )
    spread = f"stayed at {first}" if low == high else f"started at {first}, was between {low} and {high}"
    return f"{counted(steps, 'step')}: {applied:,} applied, {skipped}. The scale {spread}, and is now {last}."


def _scale(run: Run) -> str:
    note = (
        "Each dot is a skipped step, and the bars below count them, on a logarithmic axis. If there are more than 1,000 scale "
        "changes, the line is the band that they fill, so that none is left out; dots that would cover each other are drawn once."
    )
    return f'<figure>{scale_chart(run)}<figcaption class="note">{note}</figcaption></figure>{_events(run)}'


def _events(run: Run) -> str:
    """Return a table of the last skipped steps and scale changes."""
    steps = np.flatnonzero(~run.applied | (run.next_scales != run.scales))
    rows = ((f"{run.steps[step]:,}", scale_text(run.scales[step]), _event(run, step)) for step in steps[-_EVENTS:][::-1].tolist())
    title = f"Last {min(_EVENTS, steps.size):,} of {counted(steps.size, 'skipped step or scale change')}"
    if not steps.size:
        return '<p class="note">No step was skipped, and the scale did not change.</p>'
    title = title.replace("step or scale changes", "steps and scale changes")
    table = _table("events", ("Step", "Scale", "Event"), rows, numeric=(0, 1))
    return f"<details><summary>{title}</summary>{table}</details>"


def _event(run: Run, step: int) -> str:
    scale, new_scale = run.scales[step], run.next_scales[step]
    outcome = "applied" if run.applied[step] else "overflow, skipped" if not run.finite[step] else "skipped"
    change = "grows" if new_scale > scale else "backs off"
    return outcome if new_scale == scale else f"{outcome}: {change} to {scale_text(new_scale)}"


def _verdicts(diagnoses: Iterable[Diagnosis], skipped: int) -> str:
    groups: dict[str, list[Diagnosis]] = {}
    for diagnosis in diagnoses:
        groups.setdefault(str(diagnosis.verdict), []).append(diagnosis)
    if not groups:
        return f'<p class="note">The run file has no diagnoses; {counted(skipped, "step")} skipped.</p>'
    rows = (
        (
            f"<b>{escaped(verdict)}</b><br>{_message(group[-1])}", f"{len(group):,}", f"{group[0].step:,}", f"{group[-1].step:,}",
        )
        for verdict, group in sorted(groups.items(), key=lambda item: -len(item[1]))
    )  # fmt: skip
    return _table("verdicts", ("Verdict, and message of the last step", "Steps", "First", "Last"), rows, numeric=(1, 2, 3))


def _message(diagnosis: Diagnosis) -> str:
    return escaped(diagnosis.message + (f" ({diagnosis.stall})" if diagnosis.stall else ""))


def _exponents(run: Run, layers: list[Layer]) -> str:
    names, pictures = heat_maps(run, layers)
    if not pictures:
        return '<p class="note">The run file has no histograms: give the monitor <code>histogram_every</code>.</p>'
    options = "".join(f"<option>{escaped(name)}</option>" for name in names)
    omitted = (
        f" {len(names) - 1} of {len(layers)} gradients are shown: those that lose the most." if len(names) <= len(layers) else ""
    )
    note = (
        "Each column is a measured step, drawn until the next one, or the mean of several. The stronger the color, the larger "
        "the share of the values with this exponent, after multiplication by the scale. Values beyond the ends are counted in "
        f"the first and the last row.{omitted}"
    )
    select = f'<p id="choice" hidden><label for="layer">Gradient</label> <select id="layer">{options}</select></p>'
    return f'{select}{"".join(pictures)}<p class="note">{note}</p>'


def _layers(layers: list[Layer], measurements: int) -> str:
    if not layers:
        return '<p class="note">The run file has no statistics: give the monitor <code>measure_every</code>.</p>'
    ordered = sorted(layers, key=Layer.order)
    rows = (
        (
            name_of(layer.name), f"{layer.size:,}", percent(layer.lost), percent(layer.subnormal),
            "-" if layer.largest is None else f"&lt; {power_of_two(layer.largest)}", f"{layer.nonfinite:,}",
        )
        for layer in ordered[:_LAYERS]
    )  # fmt: skip
    omitted = f" The first {_LAYERS:,} of {len(layers):,} are listed." if len(layers) > _LAYERS else ""
    note = (
        f"Over {counted(measurements, 'measured step')}. A value is lost if float16 rounds it to zero at the scale of its step, "
        f"and subnormal below {power_of_two(SMALLEST_NORMAL)}, where it keeps fewer digits. "
        f"The largest value is that of the unscaled gradient.{omitted}"
    )
    titles = ("Gradient", "Values", "Lost", "Subnormal", "Largest", "Steps not finite")
    return f'<p class="note">{note}</p>{_table("gradients", titles, rows, numeric=(1, 2, 3, 4, 5))}'


def _table(name: str, titles: tuple[str, ...], rows: Iterable[tuple[str, ...]], numeric: tuple[int, ...]) -> str:
    """Return a table whose cells are HTML. It scrolls sideways by itself if the window is narrow."""
    marks = ['class="number"' if index in numeric else "" for index in range(len(titles))]
    head = "".join(f'<th scope="col" {mark}>{title}</th>' for title, mark in zip(titles, marks, strict=True))
    body = "".join(
        "<tr>" + "".join(f"<td {mark}>{cell}</td>" for cell, mark in zip(row, marks, strict=True)) + "</tr>\n" for row in rows
    )
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class="scroll" tabindex="0" role="region" aria-label="Table of {name}">{table}</div>'
