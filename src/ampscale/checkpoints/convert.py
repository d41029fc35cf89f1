"""Functions that load, save and convert the state of a scaler, and the report of a conversion."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

from ..core.machine import check_optional_arrays, check_state
from ..core.rule import LossScaleRule
from ..core.validation import check_type
from ..parsing import excerpt
from .divergence import Divergence, divergence, steps_to_growth
from .formats.ampscale import AmpscaleFormat
from .formats.entries import scale
from .formats.format import Format
from .formats.locate import find
from .formats.published import FORMATS
from .state import Checkpoint, arrays_of, canonical, check_reachable, numbers_of


@dataclass(frozen=True)
class ConversionReport:
    """
    Report of a conversion: the values that the target format changed, and how far the two scalers can diverge as a result.

    Args:
        source: Rule and state that were saved.
        target: Rule and state of a target scaler that is constructed with *settings* and then loads the entries.
        settings: Constructor arguments that the target scaler requires, under the names that it uses.
        taken: Instructions for loading the entries into the target scaler.

    >>> from ampscale import presets
    >>> rule = presets.paddle(hysteresis=2)
    >>> report = save("torch", Checkpoint(rule, rule.init(like=0.0))).report
    >>> report.lossless, report.dropped["hysteresis"], report.divergence.first
    (False, (2, 1), (Run(symbol='x', steps=1),))
    """

    source: Checkpoint
    target: Checkpoint
    settings: Mapping[str, Any]
    taken: str

    @cached_property
    def dropped(self) -> dict[str, tuple[Any, Any]]:
        """
        Return the rule and state fields that the conversion changed, with the values (source, target).

        Fields without an effect on later steps are omitted.
        """
        pairs = canonical(self.source), canonical(self.target)
        source, target = ({**asdict(rule), **state._asdict()} for rule, state in pairs)
        return {name: (source[name], target[name]) for name in source if source[name] != target[name] and name != "init_scale"}

    @cached_property
    def divergence(self) -> Divergence:
        """Return how far the two scales can differ over all overflow traces. The search runs on the first access."""
        return divergence(self.source, self.target)

    @property
    def lossless(self) -> bool:
        """Return True if the search has proven that both scales are equal for every overflow trace."""
        return self.divergence.steps == 0

    @property
    def growth(self) -> tuple[int | None, int | None]:
        """Return the numbers of finite steps after which the scales of (source, target) grow; None if a scale never grows."""
        return steps_to_growth(self.source), steps_to_growth(self.target)


@dataclass(frozen=True)
class Saved:
    """
    Result of `save` and `convert`.

    Args:
        mapping: Entries with the keys, types, dtypes and shapes that the target scaler loads.
        report: Differences between the source and the target.

    >>> from ampscale import presets
    >>> rule = presets.keras(8.0)
    >>> save("torch", Checkpoint(rule, rule.init(like=0.0))).mapping["growth_interval"]
    2000
    """

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
    Read the rule and the state of a scaler, and list the constants that had to be assumed.

    Args:
        format: One of `FORMATS`.
        mapping: Entries that the scaler saved, as Python numbers or arrays, or a larger checkpoint that contains them.
        rule: Rule of the scaler, for the constants that *mapping* lacks; by default, the preset's constants are assumed.
        settings: Constants that *mapping* lacks, under the names of the arguments of the scaler's constructor.
        at: Path of the entries in a larger checkpoint, such as "optimizer.loss_scaler.0"; "" for the top level. By default
            the whole checkpoint is searched for the keys of the format.

    Raises:
        TypeError: An argument has the wrong type.
        ValueError: The format is unknown, a key is missing or unknown, a value is invalid, no run reaches the counts, the
            checkpoint contains several scalers, or *rule* contradicts *mapping*.

    >>> checkpoint = load("flax", {"fin_steps": 4, "scale": 1024.0}, settings={"growth_interval": 500})
    >>> float(checkpoint.state.scale), int(checkpoint.state.good_steps), checkpoint.rule.growth_interval
    (1024.0, 4, 501)
    >>> checkpoint.assumed
    {'growth_factor': 2.0, 'backoff_factor': 0.5, 'min_scale': 1.1754943508222875e-38}
    """
    if rule is not None and not isinstance(rule, LossScaleRule):
        raise TypeError(f"rule must be a LossScaleRule or None, got {type(rule).__name__}")
    source_format = _get_format(format)
    path, entries = find(source_format, mapping, at)
    invalid = [key for key in settings or {} if key not in source_format.settings or key in entries]
    if invalid:
        lacking = [key for key in source_format.settings if key not in entries]
        expected = f"among {lacking}, which the checkpoint lacks" if lacking else "empty, since the checkpoint has all constants"
        raise ValueError(f"the settings for {format} must be {expected}, got {excerpt(invalid)}")
    return replace(source_format.load({**entries, **(settings or {})}, rule), at=path)


def save(format: str, checkpoint: Checkpoint) -> Saved:
    """
    Write the state of a scaler in a format, so that the format's scaler behaves as much like the original one as possible.

    Args:
        format: One of `FORMATS`.
        checkpoint: Rule and state; the state consists of arrays of shape () of any supported library, or of Python numbers.

    Returns:
        The entries that the published scaler loads, and a report of the differences.

    Raises:
        TypeError: An argument has the wrong type.
        ValueError: The format is unknown, no run of the rule reaches the state, or the target cannot hold the scale.

    >>> from ampscale import presets
    >>> rule = presets.torch(init_scale=8.0)
    >>> save("deepspeed_fp16_optimizer", Checkpoint(rule, rule.init(like=0.0))).mapping["cur_scale"]
    8.0
    """
    target_format, source = _get_format(format), _validated(checkpoint)
    target = target_format.fitted(source)
    report = ConversionReport(source, target, target_format.settings_of(target.rule), target_format.taken)
    return Saved(target_format.entries(target), report)


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
    Convert the state of a scaler from one format to another: `load`, then `save`.

    Args:
        mapping: Entries that the source scaler saved, or a larger checkpoint that contains them.
        source: Format of *mapping*; one of `FORMATS`.
        target: Format to convert to; one of `FORMATS`.
        rule: See `load`.
        settings: See `load`.
        at: See `load`.

    Returns:
        The entries that the target scaler loads, and a report of the differences.

    Raises:
        TypeError, ValueError: See `load` and `save`.

    >>> saved = convert({"step_counter": 12, "dynamic_scale": 1024.0}, source="keras", target="deepspeed_fp16_optimizer")
    >>> saved.mapping["cur_scale"], saved.mapping["cur_iter"], saved.mapping["last_overflow_iter"]
    (1024.0, 13, -1)
    """
    return save(target, load(source, mapping, rule, settings=settings, at=at))


def _get_format(name: str) -> Format | AmpscaleFormat:
    if name not in FORMATS:
        raise ValueError(f"the format must be one of {list(FORMATS)}, got {excerpt(name)}")
    return FORMATS[name]


def _validated(checkpoint: Checkpoint) -> Checkpoint:
    """Return *checkpoint* with its state as NumPy arrays, after checking that a run of its rule can reach the state."""
    if not isinstance(checkpoint, Checkpoint):
        raise TypeError(f"checkpoint must be a Checkpoint, got {type(checkpoint).__name__}")
    check_type(checkpoint.rule, "checkpoint.rule", LossScaleRule)
    check_state(checkpoint.state)
    check_optional_arrays(checkpoint.rule, checkpoint.state)
    rule, state = checkpoint.rule, numbers_of(checkpoint.state)
    check_scale = scale("float64")  # raises an error unless a scale is positive and finite
    check_scale(state.scale, "scale")
    if state.pending_scale is not None:
        check_scale(state.pending_scale, "pending_scale")
    check_reachable(rule, state)
    return replace(checkpoint, state=arrays_of(rule, state))
