"""Subjects of the comparison: published scalers, their step functions, and the settings that they are compared under."""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

RAISED = "raised"  # stands for an object that has raised an error
ODD = {"growth_factor": 1.1, "backoff_factor": 0.7}  # factors that float32 rounds
HYSTERESIS = "init_scale growth_interval hysteresis"  # parameters of many tables
FLUSHED = "XLA on the CPU flushes float32 numbers below 2**-126 to zero"
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
    Setting under which a scaler and its preset are compared.

    Args:
        values: Arguments of the preset, by name.
        reason: Reason for an expected difference from the preset; "" if none is expected.
    """

    values: dict[str, Any]
    reason: str = ""


@dataclass(frozen=True)
class Subject:
    """
    Published scaler and the preset that describes it.

    Args:
        preset: Name of the preset in `ampscale.presets`.
        distribution: Name of the package, whose version the page shows.
        name: Published name of the class or the kernel.
        fresh: Function from a setting's values to the object before its first step.
        step: Function from an object and a flag, True for finite gradients, to the object after the step. It must not change its
            argument: see `on_copies` and `with_saved_state`.
        read: Function from an object to a dict with "scale", and with "good_steps" and "bad_steps" if the object counts them.
        settings: Settings to compare.
        how: Description of the changes that were required to run the object; "" if there are none.
        raises: Exceptions that the scaler documents for a scale that is too small.
        unpacked: True if the package was unpacked and not installed.
    """

    preset: str
    distribution: str
    name: str
    fresh: Fresh
    step: Step
    read: Read
    settings: tuple[Setting, ...]
    how: str = ""
    raises: tuple[type[Exception], ...] = ()
    unpacked: bool = False


def maker(cls: Callable[..., Any], *first: Any, **names: str) -> Fresh:
    """Return a constructor for settings, given the class's parameter names: `maker(Scaler, growth_interval="scale_window")`."""
    return lambda **values: cls(*first, **{names.get(name, name): value for name, value in values.items()})


def on_copies(step: Callable[[Any, bool], object]) -> Step:
    """Return a step that changes a copy of its object and returns the copy."""

    def stepped(before: Any, finite: bool) -> Any:
        after = copy.deepcopy(before)
        step(after, finite)
        return after

    return stepped


def with_saved_state(
    fresh: Fresh, step: Callable[[Any, bool], object], save: Callable[[Any], Any], restore: Callable[[Any, Any], object]
) -> tuple[Fresh, Step]:
    """
    Return a constructor and a step for an object that cannot be copied.

    One object runs all steps. Its state is saved after a step and restored before the next one.
    """

    def created(**values: Any) -> tuple[Any, Any]:
        scaler = fresh(**values)
        return scaler, save(scaler)

    def stepped(before: tuple[Any, Any], finite: bool) -> tuple[Any, Any]:
        scaler, state = before
        restore(scaler, state)
        step(scaler, finite)
        return scaler, save(scaler)

    return created, stepped


def read_attributes(**attributes: str) -> Read:
    """Return a function that reads attributes of an object: `read_attributes(scale="loss_scale")`."""
    return lambda scaler: {name: getattr(scaler, attribute) for name, attribute in attributes.items()}


def read_saved_state(after: tuple[Any, Any]) -> dict[str, Any]:
    """Return the state that `with_saved_state` saved, if it consists of the scale and the counts as arrays of one element."""
    return {name: value.item() for name, value in zip(("scale", "good_steps", "bad_steps"), after[1], strict=False)}


def settings(*values: dict[str, Any], reason: str = "") -> tuple[Setting, ...]:
    """Return settings that share a reason."""
    return tuple(Setting(setting, reason) for setting in values)


def table(names: str, *rows: tuple[Any, ...], **fixed: Any) -> list[dict[str, Any]]:
    """Return the values of settings, given their names and one row for each; *fixed* is added to all."""
    return [dict(zip(names.split(), row, strict=True)) | fixed for row in rows]


def pairs(*rows: tuple[float, int]) -> list[dict[str, Any]]:
    """Return the values of settings that consist of an initial scale and a growth interval."""
    return table("init_scale growth_interval", *rows)


STATIC_SETTINGS = settings({"init_scale": 1024.0}, {"init_scale": 1000.1})
