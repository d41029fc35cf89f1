"""
Comparison of the settings of all ranks. The error names one setting that differs, and the ranks with each of its values.

Spec: REPLICAS-settings-compared, REPLICAS-error-names-ranks.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import Field, fields
from functools import lru_cache
from itertools import zip_longest
from typing import Any

from ..core.dtypes import name_of
from ..core.replicas import rank_difference
from ..core.rule import LossScaleRule
from ..core.typing import Array

FIRST_NAMES = ("argument gradients", "mean", "call")  # reported first: each explains differences in those after it
STRUCTURE = "gradients structure"  # setting whose items are paths: messages leave out the index of an item
Settings = Mapping[str, Any]  # settings by name; JSON can represent the values


def array_texts(arrays: Iterable[Array], *, shapes: bool) -> list[str]:
    """Return the dtype and, if *shapes* is True, the shape of each array as text."""
    return [f"{name_of(array.dtype)} {tuple(array.shape)}" if shapes else name_of(array.dtype) for array in arrays]


def array_paths(parts: Iterator[Any], path: str = "") -> Iterator[str]:
    """Yield the path of each array, such as "['layer']['weight']"; *parts* iterates over the result of `structure`."""
    part = next(parts)
    if part is None:
        return
    if not isinstance(part, tuple):
        yield path
        return
    _, keys, is_flat = part  # `is_flat`: all members are arrays, for which *parts* has no further items
    for key in keys:
        member = f"{path}[{key!r}]"
        if is_flat:
            yield member
        else:
            yield from array_paths(parts, member)


def setting_texts(settings: Settings) -> dict[str, str | list[str]]:
    """
    Return *settings* as texts: the `repr` of each value.

    A rule becomes an entry with the text "rule", which no other value has, and one per field, such as "rule.growth_interval".
    A list becomes a list of the `str` of each item.
    """
    texts: dict[str, str | list[str]] = {}
    for name, value in settings.items():
        if isinstance(value, LossScaleRule):
            texts.update(_rule_texts(name, value))
        elif isinstance(value, list):
            texts[name] = list(map(str, value))
        else:
            texts[name] = _text(value, is_float=name == "max_norm")
    return texts


@lru_cache
def _rule_texts(name: str, rule: LossScaleRule) -> dict[str, str]:
    """Return the entries of `setting_texts` for a rule."""
    texts = {f"{name}.{field.name}": _text(getattr(rule, field.name), _is_float(field)) for field in fields(rule)}
    return {name: "rule", **texts}


def _text(value: Any, is_float: bool) -> str:
    """Return the `repr` of *value*. If *is_float* is True, an equal int or NumPy scalar has the same text as a float."""
    if is_float and value is not None:
        value = float(value)
    return repr(value)


def _is_float(field: Field[Any]) -> bool:
    """Return True if a field of a rule is a float, or may be None or another type instead."""
    return float in getattr(field.type, "__args__", (field.type,))


def to_text(settings: Settings) -> str:
    """Return *settings* as JSON, which `difference` compares."""
    return json.dumps(settings, sort_keys=True)


def difference(texts: list[str], ranks: list[int]) -> str | None:
    """
    Return a sentence that names a setting that differs, and the ranks with each value; None if all texts are equal.

    Args:
        texts: Result of `to_text` on each rank.
        ranks: Number of each rank, for the message.
    """
    if len(set(texts)) == 1:
        return None
    settings = [json.loads(text) for text in texts]
    names = set[str]().union(*settings)
    ordered = [name for name in FIRST_NAMES if name in names] + sorted(names.difference(FIRST_NAMES))
    name = next(name for name in ordered if _differ(rank_settings.get(name) for rank_settings in settings))
    values = [rank_settings.get(name, "not set") for rank_settings in settings]
    if all(isinstance(value, list) for value in values):
        name, values = _first_difference(name, values)
    return rank_difference(name, list(map(str, values)), ranks)


def _differ(values: Iterable[Any]) -> bool:
    return len({json.dumps(value) for value in values}) > 1


def _first_difference(name: str, lists: list[list[Any]]) -> tuple[str, list[Any]]:
    """Return the name and the values of the first item that differs; if the lists have different lengths, return the lengths."""
    if _differ(map(len, lists)):
        return f"length of {name}", [len(items) for items in lists]
    index, items = next((index, items) for index, items in enumerate(zip_longest(*lists)) if _differ(items))
    return name if name == STRUCTURE else f"{name}[{index}]", list(items)
