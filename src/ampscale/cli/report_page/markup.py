"""Parts of the scale chart and of the heat maps: texts, ticks and axes as HTML and SVG, which fit any width without scripts."""

import html
import math
from collections.abc import Sequence

import numpy as np

_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def escaped(text: str) -> str:
    """Return *text* for an element or an attribute. Half of a surrogate pair, which UTF-8 lacks, is replaced."""
    return html.escape(text.encode("utf-8", "replace").decode())


def power_of_two(exponent: int) -> str:
    """Return a power of two, with its exponent as a superscript."""
    return f"2{str(exponent).translate(_SUPERSCRIPTS)}"


def scale_text(scale: float) -> str:
    """Return a scale as a power of two, with a factor from 1 to 2 if necessary."""
    if not 0 < scale < math.inf:
        return f"{scale:g}"
    fraction, exponent = math.frexp(scale)
    return power_of_two(exponent - 1) if fraction == 0.5 else f"{2 * fraction:.4g}·{power_of_two(exponent - 1)}"


def short(number: int) -> str:
    """Return a step or a count for an axis, such as "250k"."""
    for size, unit in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if abs(number) >= 10 * size or (number and number % size == 0 and abs(number) >= size):
            return f"{number / size:.4g}{unit}"
    return str(number)


def step_ticks(steps: np.ndarray) -> list[tuple[float, str]]:
    """Return at most six ticks of the axis of steps: the position in percent, and the label."""
    power_of_ten = 10 ** math.floor(math.log10(steps.size))
    # The smallest round distance such that five of them cover all steps, in percent of the power of ten.
    percent = next(percent for percent in (10, 20, 50, 100, 200) if 100 * steps.size <= 5 * power_of_ten * percent)
    positions = range(0, steps.size, max(1, power_of_ten * percent // 100))
    return [(100 * (position + 0.5) / steps.size, short(int(steps[position]))) for position in positions]


def stretched(kind: str, width: int, height: int, path: str) -> str:
    """Return an SVG path of class *kind*, with coordinates in a box of this size that is stretched over the whole plot."""
    return (
        f'<svg class="stretched" width="100%" height="100%" viewBox="0 0 {width} {height}" preserveAspectRatio="none">'
        f'<path class="{kind}" vector-effect="non-scaling-stroke" d="{path}"/></svg>'
    )


def frame(name: str, label: str, content: str, rows: Sequence[tuple[float, str]], ticks: Sequence[tuple[float, str]]) -> str:
    """
    Return a plot of the CSS class *name*, with its axes. *label* describes it for screen readers, and *content* is SVG.

    *rows* and *ticks* have the position in percent and the label of each tick of the vertical and of the horizontal axis.
    """
    grid = "".join(f'<line class="grid" x1="0" x2="100%" y1="{y:.2f}%" y2="{y:.2f}%"/>' for y, _ in rows)
    left = "".join(f'<text x="100%" y="{y:.2f}%" dy="0.35em">{escaped(text)}</text>' for y, text in rows)
    below = ""
    for x, text in ticks:  # the class keeps a label at an end of the axis within the picture
        anchor = ""
        if x < 4:
            anchor = ' class="start"'
        elif x > 96:
            anchor = ' class="end"'
        below += f'<text x="{x:.2f}%" y="1.1em"{anchor}>{text}</text>'
    return (
        f'<div class="plot {name}"><svg class="left" aria-hidden="true">{left}</svg>'
        f'<svg class="area" role="img" aria-label="{escaped(label)}">{grid}{content}</svg>'
        f'<svg class="below" aria-hidden="true">{below}</svg></div>'
    )
