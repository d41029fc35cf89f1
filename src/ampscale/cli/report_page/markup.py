"""Parts that both pictures share: texts, ticks and axes as HTML and SVG, which fit into any width without scripts."""

import html
import math
from collections.abc import Iterable, Sequence

import numpy as np

_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def escaped(text: str) -> str:
    """Return *text* for an element or an attribute. Half of a surrogate pair, which UTF-8 lacks, is replaced."""
    return html.escape(text.encode("utf-8", "replace").decode())


def name_of(name: str) -> str:
    """Return the name of a gradient as HTML, in which lines can be broken at dots."""
    return escaped(name).replace(".", ".<wbr>")


def power_of_two(exponent: int) -> str:
    """Return 2 with a superscript."""
    return f"2{str(exponent).translate(_SUPERSCRIPTS)}"


def scale_text(scale: float) -> str:
    """Return a scale as a power of two, with a factor from 1 to 2 if necessary."""
    if not 0 < scale < math.inf:
        return f"{scale:g}"
    fraction, exponent = math.frexp(scale)
    return power_of_two(exponent - 1) if fraction == 0.5 else f"{2 * fraction:.4g}·{power_of_two(exponent - 1)}"


def percent(share: float) -> str:
    """Return a share with two significant digits, such as "0.13 %"; "-" for NaN."""
    if math.isnan(share):
        return "-"
    return f"{100 * share:.2g} %" if share < 0.995 else f"{100 * share:.3g} %"


def short(number: int) -> str:
    """Return a step for an axis, such as "250k"."""
    for size, unit in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if abs(number) >= 10 * size or (number and number % size == 0 and abs(number) >= size):
            return f"{number / size:.4g}{unit}"
    return str(number)


def step_ticks(steps: np.ndarray, most: int = 5) -> list[tuple[float, str]]:
    """Return at most *most* + 1 ticks of the axis of steps: the position in percent, and the label."""
    size = 10 ** math.floor(math.log10(max(1, steps.size)))
    width = next(
        (size * factor // 100 for factor in (10, 20, 50, 100, 200, 500) if 100 * steps.size <= most * size * factor), size
    )
    positions = range(0, steps.size, max(1, width))
    return [(100 * (position + 0.5) / steps.size, short(int(steps[position]))) for position in positions]


def frame(name: str, label: str, content: str, rows: Iterable[tuple[float, str]], ticks: Sequence[tuple[float, str]]) -> str:
    """
    Return a plot with its axes.

    Args:
        name: Class of the plot, which has its height.
        label: Description for readers who do not see it.
        content: SVG elements, whose coordinates are in percent.
        rows: Heights in percent, and labels, of the vertical axis.
        ticks: Positions in percent, and labels, of the horizontal axis.
    """
    rows = list(rows)
    grid = "".join(f'<line class="grid" x1="0" x2="100%" y1="{y:.2f}%" y2="{y:.2f}%"/>' for y, _ in rows)
    left = "".join(f'<text x="100%" y="{y:.2f}%" dy="0.35em">{escaped(text)}</text>' for y, text in rows)
    below = "".join(f'<text x="{x:.2f}%" y="1.1em"{_anchor(x)}>{text}</text>' for x, text in ticks)
    return (
        f'<div class="plot {name}"><svg class="left" aria-hidden="true">{left}</svg>'
        f'<svg class="area" role="img" aria-label="{escaped(label)}">{grid}{content}</svg>'
        f'<svg class="below" aria-hidden="true">{below}</svg></div>'
    )


def _anchor(position: float) -> str:
    """Return the attribute that keeps a label at an end of the axis within the picture."""
    return ' class="start"' if position < 4 else ' class="end"' if position > 96 else ""
