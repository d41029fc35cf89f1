"""Loading, saving, and both in one go, with a report of what became of everything."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ..core.rule import LossScaleRule
from ..parsing import excerpt
from .divergence import Divergence, divergence, steps_to_growth
from .formats.ampscale import Own
from .formats.entries import Scale
from .formats.format import Format
from .formats.locate import find
from .formats.published import FORMATS
from .state import Checkpoint, arrays_of, check_reachable, numbers_of, plain


@dataclass(frozen=True)
class ConversionReport:
    """
    What became of a scaler that was saved in another format.

    Args:
        source: Where it stood.
        target: Where the scaler that takes over will stand, with the rule that it will run.
        settings: What that one must be constructed with, under its own names.
        taken: How it takes the mapping.
    """

    source: Checkpoint
    target: Checkpoint
    settings: Mapping[str, Any]
    taken: str

    @cached_property
    def dropped(self) -> dict[str, tuple[Any, Any]]:
        """The constants and counts that are others now, each with what it was and what it is; none that have no effect."""
        pairs = zip(plain(self.source), plain(self.target), strict=True)
        before, after = ({**vars(rule), **state._asdict()} for rule, state in zip(*pairs, strict=True))
        return {name: (before[name], after[name]) for name in before if before[name] != after[name] and name != "init_scale"}

    @cached_property
    def divergence(self) -> Divergence:
        """How far the two can part, over all traces of overflows; it is worked out when it is first asked for."""
        return divergence(self.source, self.target)

    @property
    def lossless(self) -> bool:
        """Whether it is proven that the target goes on as the source would, whatever comes."""
        return self.divergence.steps == 0

    @property
    def growth(self) -> tuple[int | None, int | None]:
        """After how many steps the scale grows next if no overflow comes, in the source and in the target; None for never."""
        return steps_to_growth(self.source), steps_to_growth(self.target)


@dataclass(frozen=True)
class Saved:
    """The entries in the target's format, and the report."""

    mapping: dict[str, Any]
    report: ConversionReport


def load(
    format: str,
    mapping: Mapping[str, Any],
    rule: LossScaleRule | None = None,
    *,
    settings: Mapping[str, Any] | None = None,
    at: str | None = None,
) -> Checkpoint:
    """
    Reads the state of a scaler.

    Args:
        format: One of `FORMATS`.
        mapping: What the scaler saved: Python numbers and arrays. Or a larger checkpoint, in which one mapping fits.
        rule: What the scaler runs, for the constants that it does not save; by default those of its preset.
        settings: Constants that it does not save, under its own names: what its constructor was called with.
        at: Where in a larger checkpoint to look, as "optimizer.loss_scaler.0"; empty for the top.

    Returns:
        The rule and the state, and what of the rule was assumed.

    Raises:
        TypeError: An argument is of the wrong type.
        ValueError: The format is unknown, a key is missing or unknown, a value is wrong, no run leads to such a count, or
            the rule says something else than the mapping.
    """
    if rule is not None and not isinstance(rule, LossScaleRule):
        raise TypeError(f"rule must be a LossScaleRule or None, got {type(rule).__name__}")
    known = _known(format)
    path, inner = find(known, mapping, at)
    wrong = [key for key in settings or {} if key not in known.settings or key in inner]
    if wrong:
        fitting = f"some of {list(known.settings)} that are not in the file"
        raise ValueError(f"settings of {format} must be {fitting}, got {excerpt(wrong)}")
    found = known.load({**inner, **(settings or {})}, rule)
    return Checkpoint(found.rule, found.state, found.assumed, path, found.ignored)


def save(format: str, checkpoint: Checkpoint) -> Saved:
    """
    Writes the state of a scaler for another one, which is to go on as it would.

    Args:
        format: One of `FORMATS`.
        checkpoint: The rule and the state; of the array library that the scaler used, or in Python numbers.

    Returns:
        The entries as the published scaler takes them, and a report.

    Raises:
        TypeError: An argument is of the wrong type.
        ValueError: The format is unknown, no run of the rule reaches the state, or the target cannot hold the scale.
    """
    known, source = _known(format), _checked(checkpoint)
    target = known.fitted(source)
    return Saved(known.entries(target), ConversionReport(source, target, known.settings_of(target.rule), known.taken))


def convert(
    mapping: Mapping[str, Any],
    source: str,
    target: str,
    rule: LossScaleRule | None = None,
    *,
    settings: Mapping[str, Any] | None = None,
    at: str | None = None,
) -> Saved:
    """
    From one format to another: `load`, then `save`.

    Args:
        mapping: What the source saved, or a larger checkpoint.
        source: The format of *mapping*.
        target: The format that is wanted.
        rule: See `load`.
        settings: See `load`.
        at: See `load`.

    Returns:
        The entries as the target takes them, and a report.

    Raises:
        TypeError, ValueError: See `load` and `save`.
    """
    return save(target, load(source, mapping, rule, settings=settings, at=at))


def _known(format: str) -> Format | Own:
    if format not in FORMATS:
        raise ValueError(f"the format must be one of {list(FORMATS)}, got {excerpt(format)}")
    return FORMATS[format]


def _checked(checkpoint: Checkpoint) -> Checkpoint:
    """*checkpoint* with its state on the host, as a run can have left it."""
    if not isinstance(checkpoint, Checkpoint):
        raise TypeError(f"checkpoint must be a Checkpoint, got {type(checkpoint).__name__}")
    rule, state = checkpoint.rule, numbers_of(checkpoint.state)
    for name in ("scale", "pending_scale"):
        if getattr(state, name) is not None:
            Scale(wide=True)(getattr(state, name), name)
    check_reachable(rule, state)
    return Checkpoint(rule, arrays_of(rule, state), checkpoint.assumed, checkpoint.at, checkpoint.ignored)
