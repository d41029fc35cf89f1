"""What is compared: a published object, how it takes a step, and the settings it is compared under."""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

STOPPED = "stopped"
ODD = {"growth_factor": 1.1, "backoff_factor": 0.7}  # factors that round
HYSTERESIS = "init_scale growth_interval hysteresis"  # the heading of many tables
FLUSHED = "XLA on the CPU takes float32 numbers below 2**-126 for zero"
PADDLE_NAMES = {
    "init_scale": "init_loss_scaling",
    "growth_factor": "incr_ratio",
    "backoff_factor": "decr_ratio",
    "growth_interval": "incr_every_n_steps",
    "hysteresis": "decr_every_n_nan_or_inf",
}

Fresh = Callable[..., Any]
Step = Callable[[Any, bool], Any]
Read = Callable[[Any], dict[str, Any]]


@dataclass(frozen=True)
class Setting:
    """
    One set of constants.

    Args:
        values: By the names of the preset's parameters.
        reason: Why a difference from the preset is expected; empty where none is.
    """

    values: dict[str, Any]
    reason: str = ""


@dataclass(frozen=True)
class Subject:
    """
    A published object beside the preset that claims to be it.

    Args:
        preset: The preset's name in `ampscale.presets`.
        distribution: The package as it is installed or downloaded; its version is the one shown.
        name: The class, or the kernel, by its published name.
        fresh: Called with a setting's values: the object before its first step.
        step: The object after a step, from the object before and whether the gradients were finite. The one before stays
            usable: see `on_a_copy` and `in_turn`.
        read: What an object shows: "scale", and "good_steps" and "bad_steps" where it counts as the machine does.
        settings: What it is compared under.
        how: What was done to run it; empty where it is the installed object as it is.
        stops: The exceptions by which it gives up.
        unpacked: The distribution was downloaded and unpacked, not installed.
    """

    preset: str
    distribution: str
    name: str
    fresh: Fresh
    step: Step
    read: Read
    settings: tuple[Setting, ...]
    how: str = ""
    stops: tuple[type[Exception], ...] = ()
    unpacked: bool = False


def maker(kind: Callable[..., Any], *first: Any, **names: str) -> Fresh:
    """Return a constructor that takes a setting, given the class's own names: `maker(Scaler, growth_interval="scale_window")`."""
    return lambda **values: kind(*first, **{names.get(name, name): value for name, value in values.items()})


def on_a_copy(step: Callable[[Any, bool], object]) -> Step:
    """Turn a step that changes its object into one that returns another object."""

    def stepped(before: Any, finite: bool) -> Any:
        after = copy.deepcopy(before)
        step(after, finite)
        return after

    return stepped


def in_turn(
    fresh: Fresh, step: Callable[[Any, bool], object], save: Callable[[Any], Any], restore: Callable[[Any, Any], object]
) -> tuple[Fresh, Step]:
    """
    Return a maker and a step for an object that cannot be copied.

    One object takes all steps: what was saved after a step is put back before the next one.
    """

    def made(**values: Any) -> tuple[Any, Any]:
        one = fresh(**values)
        return one, save(one)

    def stepped(before: tuple[Any, Any], finite: bool) -> tuple[Any, Any]:
        one, state = before
        restore(one, state)
        step(one, finite)
        return one, save(one)

    return made, stepped


def shown(**attributes: str) -> Read:
    """Return a reader of an object's attributes: `shown(scale="loss_scale")`."""
    return lambda one: {name: getattr(one, attribute) for name, attribute in attributes.items()}


def saved(after: tuple[Any, Any]) -> dict[str, Any]:
    """Read what `in_turn` saved, where that is the scale and then the counts, as arrays of one element."""
    return {name: value.item() for name, value in zip(("scale", "good_steps", "bad_steps"), after[1], strict=False)}


def each(*values: dict[str, Any], reason: str = "") -> tuple[Setting, ...]:
    """Return settings that have one reason, or none."""
    return tuple(Setting(one, reason) for one in values)


def table(names: str, *rows: tuple[Any, ...], **fixed: Any) -> list[dict[str, Any]]:
    """Return the values of settings, given their names and a row for each setting; *fixed* is the same in all."""
    return [dict(zip(names.split(), row, strict=True)) | fixed for row in rows]


def pairs(*rows: tuple[float, int]) -> list[dict[str, Any]]:
    """Return the values of settings that are a first scale and a growth interval."""
    return table("init_scale growth_interval", *rows)


STATIC_SETTINGS = each({"init_scale": 1024.0}, {"init_scale": 1000.1})
