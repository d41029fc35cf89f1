"""HTML page of a run in one file, with its styles, script and pictures; it requires no network."""

import base64
import hashlib
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from ...diagnostics.float16 import SMALLEST_NORMAL
from ...diagnostics.run_files import Run
from ...diagnostics.run_lines import Measurement
from ...diagnostics.verdicts import Diagnosis, message_with_stall
from ..describe import counted, percent, sentences
from .heat_maps import heat_maps
from .layers import Layer, complete_measurements, layers_of
from .markup import escaped, power_of_two, scale_text
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
    template, style, script = ((_FOLDER / f"page.{suffix}").read_text("utf-8") for suffix in ("html", "css", "js"))
    policy = f"default-src 'none'; img-src data:; script-src '{_hash(script)}'; style-src '{_hash(style)}'"
    parts = {"policy": policy, "style": style, "script": script, "title": escaped(title), "body": "\n".join(_sections(run))}
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], template)


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")


def _sections(run: Run) -> Iterator[str]:
    yield f'<p class="lede">{_summary(run)}</p>'
    if run.rule is not None:
        items = "".join(f"<li>{escaped(sentence)}</li>" for sentence in sentences(run.rule))
        yield f"<details><summary>The scaler</summary><ul>{items}</ul></details>"
    if run.steps.size:
        names, measurements = complete_measurements(run)
        layers = layers_of(run, names, measurements)
        for name, title, content in (
            ("scale", "Scale and skipped steps", _scale(run)),
            ("verdicts", "Verdicts", _verdicts(run)),
            ("exponents", "Exponents of the gradients", _exponents(run, layers, measurements)),
            ("gradients", "Gradients", _layers(layers, len(measurements))),
        ):
            yield f'<section aria-labelledby="{name}"><h2 id="{name}">{title}</h2>{content}</section>'


def _summary(run: Run) -> str:
    steps = run.steps.size
    if not steps:
        return "The run file has no step yet."
    applied = int(np.count_nonzero(run.applied))
    skipped = f"{steps - applied:,} skipped ({percent((steps - applied) / steps)})" if applied < steps else "none skipped"
    scales = run.scales[0], run.next_scales[-1], run.scales.min(), run.scales.max()
    first, last, low, high = (scale_text(float(scale)) for scale in scales)
    spread = f"stayed at {first}" if low == high else f"started at {first}, was between {low} and {high}"
    return f"{counted(steps, 'step')}: {applied:,} applied, {skipped}. The scale {spread}, and is now {last}."


def _scale(run: Run) -> str:
    note = (
        "Each dot is a skipped step, and the bars below count skipped steps, on a logarithmic axis. If there are more than 1,000 "
        "scale changes, the line becomes a band that contains all scales; dots that would cover each other are drawn once."
    )
    return f'<figure>{scale_chart(run)}<figcaption class="note">{note}</figcaption></figure>{_events(run)}'


def _events(run: Run) -> str:
    """Return a table of the last skipped steps and scale changes."""
    steps = np.flatnonzero(~run.applied | (run.next_scales != run.scales))
    if not steps.size:
        return '<p class="note">No step was skipped, and the scale did not change.</p>'
    events = "skipped step or scale change" if steps.size == 1 else "skipped steps and scale changes"
    rows = ((f"{run.steps[step]:,}", scale_text(run.scales[step]), _event(run, step)) for step in steps[-_EVENTS:][::-1].tolist())
    table = _table("events", ("Step", "Scale", "Event"), rows, text_column=2)
    return f"<details><summary>Last {min(_EVENTS, steps.size):,} of {steps.size:,} {events}</summary>{table}</details>"


def _event(run: Run, step: int) -> str:
    """Return the outcome of a step, and the change of the scale if there is one."""
    outcome = "applied" if run.applied[step] else "skipped"
    if not (run.applied[step] or run.finite[step]):
        outcome = "overflow, skipped"
    scale, new_scale = run.scales[step], run.next_scales[step]
    change = "grows" if new_scale > scale else "backs off"
    return outcome if new_scale == scale else f"{outcome}: {change} to {scale_text(new_scale)}"


def _verdicts(run: Run) -> str:
    groups: dict[str, list[Diagnosis]] = {}
    for diagnosis in run.diagnoses:
        groups.setdefault(str(diagnosis.verdict), []).append(diagnosis)
    if not groups:
        skipped = counted(int(np.count_nonzero(~run.applied)), "step")
        return f'<p class="note">The run file has no diagnoses; {skipped} skipped.</p>'
    rows = []
    for verdict, group in sorted(groups.items(), key=lambda item: -len(item[1])):
        last = group[-1]
        message = escaped(message_with_stall(last))
        rows.append((f"<b>{escaped(verdict)}</b><br>{message}", f"{len(group):,}", f"{group[0].step:,}", f"{last.step:,}"))
    return _table("verdicts", ("Verdict, and message of the last step", "Steps", "First", "Last"), rows)


def _exponents(run: Run, layers: list[Layer], measurements: list[Measurement]) -> str:
    names, pictures = heat_maps(run, layers, measurements)
    if not pictures:
        return '<p class="note">The run file has no histograms: create the monitor with <code>histogram_every</code>.</p>'
    options = "".join(f"<option>{escaped(name)}</option>" for name in names)
    shown = len(names) - 1  # the first picture is of all gradients together
    omitted = ""
    if shown < len(layers):
        omitted = f" {shown} of {len(layers)} gradients are shown: those that were not finite, then those that lose the most."
    note = (
        "Each column is a measured step, drawn until the next measured step, or the mean of several steps. The stronger the "
        "color, the larger the share of the values with this exponent, after multiplication by the scale. Values beyond the ends "
        f"are counted in the first and the last row.{omitted}"
    )
    select = f'<p id="choice" hidden><label for="layer">Gradient</label> <select id="layer">{options}</select></p>'
    return f'{select}{"".join(pictures)}<p class="note">{note}</p>'


def _layers(layers: list[Layer], measured_steps: int) -> str:
    if not layers:
        return '<p class="note">The run file has no statistics: create the monitor with <code>measure_every</code>.</p>'
    rows = (
        (
            escaped(layer.name).replace(".", ".<wbr>"), f"{layer.size:,}", percent(layer.lost), percent(layer.subnormal),
            "-" if layer.largest is None else f"&lt; {power_of_two(layer.largest)}", f"{layer.nonfinite:,}",
        )
        for layer in sorted(layers, key=Layer.sort_key)[:_LAYERS]
    )  # fmt: skip
    omitted = f" The first {_LAYERS:,} of {len(layers):,} are listed." if len(layers) > _LAYERS else ""
    note = (
        f"Over {counted(measured_steps, 'measured step')}. A value is lost if float16 rounds it to zero at the scale of its "
        f"step, and subnormal below {power_of_two(SMALLEST_NORMAL)}, where float16 keeps fewer digits. "
        f"The largest value is that of the unscaled gradient.{omitted}"
    )
    titles = ("Gradient", "Values", "Lost", "Subnormal", "Largest", "Steps not finite")
    return f'<p class="note">{note}</p>{_table("gradients", titles, rows)}'


def _table(name: str, titles: tuple[str, ...], rows: Iterable[tuple[str, ...]], text_column: int = 0) -> str:
    """Return a table whose cells are HTML: numbers, except in one column. In a narrow window, the table scrolls, not the page."""
    marks = ['class="number"' if index != text_column else "" for index in range(len(titles))]
    head = "".join(f'<th scope="col" {mark}>{title}</th>' for title, mark in zip(titles, marks, strict=True))
    body = "".join(
        "<tr>" + "".join(f"<td {mark}>{cell}</td>" for cell, mark in zip(row, marks, strict=True)) + "</tr>\n" for row in rows
    )
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class="scroll" tabindex="0" role="region" aria-label="Table of {name}">{table}</div>'
