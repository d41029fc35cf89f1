"""An adapter under observation: every call is checked, converted and written down, and every expectation is met or told."""

import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NoReturn

import numpy as np

from ampscale import LossScaleRule

from .adapter import Adapter, Unsupported
from .arrays import from_bits, is_array, to_bits
from .bits import Bits, leaves, map_tree, seen, told, tree_to_json, values_of
from .claimed_rules import Family, family_of
from .methods import METHODS, OPAQUE
from .verdicts import Call, Trajectory


class Failed(Exception):  # noqa: N818 - an expectation that was not met
    """What was wanted and what came."""


class Raised(Exception):  # noqa: N818 - what the implementation raised, with the call
    """The implementation raised where nothing was to be raised."""


class Absent(Exception):  # noqa: N818 - what is claimed is not there
    """A method that the claims promise is missing, or says NotImplementedError."""


class Interruption(BaseException):
    """
    What ended a call from outside: no answer in time, the end of the process, an answer that is none.

    No Exception, so that an implementation which catches those does not catch this.
    """


class TimedOut(Interruption):
    """No answer in time."""


class Crashed(Interruption):
    """The implementation's process ended."""


class ProtocolError(Interruption):
    """An answer that the protocol does not know."""


class Subject:
    """
    What a case speaks to.

    Args:
        adapter: The implementation.
        made_by: Which call made the adapter; empty for the one under test itself, "compiled()." for its compiled form.
        calls: Where calls are written down.
    """

    def __init__(self, adapter: Adapter, made_by: str = "", calls: list[Call] | None = None) -> None:
        self.adapter = adapter
        self.info = adapter.info
        self.family: Family = family_of(adapter.info.preset)
        self.calls: list[Call] = [] if calls is None else calls
        self.trajectory: Trajectory | None = None
        self._made_by = made_by
        self._made: list[Any] = []  # held, so that a number stays its own

    # --- what a case may expect ---

    def expect(self, holds: bool, message: str) -> None:
        """Nothing where it holds; else the case has failed, with this message."""
        if not holds:
            raise Failed(message)

    def expect_same(self, got: Any, wanted: Any, what: str) -> None:
        """Two trees of `Bits` are the same, a list for a tuple allowed; any NaN equals any NaN."""
        found, hoped = dict(leaves(got)), dict(leaves(wanted))
        self.expect(list(found) == list(hoped), f"{what}: wanted leaves at {list(hoped)}, got {list(found)}")
        for path, leaf in hoped.items():
            self._expect_leaf(found[path], leaf, f"{what}{path}")

    def _expect_leaf(self, got: Any, wanted: Any, what: str) -> None:
        if not isinstance(got, Bits) or wanted is None:
            self.expect(got is wanted, f"{what}: wanted {'None' if wanted is None else 'an array'}, got {seen(got)}")
            return
        difference = _difference(got, wanted)
        self.expect(not difference, f"{what}: {difference}")

    def refuses(self, method: str, *arguments: Any) -> bool:
        """Whether the call raises something else than Unsupported."""
        try:
            self.call(method, *arguments)
        except Raised:
            return True
        return False

    # --- the calls ---

    def rule(self, **settings: Any) -> LossScaleRule:
        """The claimed rule with these settings; Unsupported where it does not have them."""
        return self.family.rule(**settings)

    def create(self, rule: LossScaleRule, **options: Any) -> Any:
        """A handle."""
        return self.call("create", rule, **options)

    def update(self, handle: Any, finite: bool) -> Any:
        """The next handle."""
        after = self.call("update", handle, finite)
        return handle if after is None else after

    def read_scale(self, handle: Any) -> float:
        """The scale, as a float."""
        return self.number(self.call("read_scale", handle), "read_scale")

    def scale(self, handle: Any, tree: Any) -> Any:
        """A tree of `Bits`, times the scale."""
        return self._on_tree("scale", tree, handle)

    def unscale(self, handle: Any, tree: Any) -> Any:
        """A tree of `Bits`, divided by the scale."""
        return self._on_tree("unscale", tree, handle)

    def all_finite(self, tree: Any) -> bool:
        """Of a tree of `Bits`; what comes is a bool, or a bool array of shape ()."""
        return self.flag(self.call("all_finite", self.made(tree)), "all_finite")

    def compiled(self) -> "Subject":
        """The compiled form of the same implementation; its calls are written down with these."""
        made = self.call("compiled")
        if not hasattr(made, "info"):
            raise Absent(f"compiled is claimed and gives no adapter: {seen(made)}")
        return Subject(made, f"{self._made_by}compiled().", self.calls)

    def made(self, tree: Any) -> Any:
        """A tree of `Bits` as new arrays of the adapter's library."""
        return map_tree(lambda leaf: from_bits(leaf, self.info.arrays), tree)

    def read(self, tree: Any, what: str) -> Any:
        """A tree of arrays as `Bits`; a leaf that is no array has failed."""
        return map_tree(lambda leaf: self._bits(leaf, what), tree)

    def call(self, method: str, *arguments: Any, **options: Any) -> Any:
        """
        Calls the adapter, and writes it down.

        Raises:
            Absent: There is no such method, or it raised NotImplementedError.
            Raised: It raised.
            Unsupported: It said so.
        """
        takes, gives, _ = METHODS[method]
        given = [*arguments, options] if options else list(arguments)
        said = [self._shown(kind, value) for kind, value in zip(takes, given, strict=False)]
        try:
            with np.errstate(all="ignore"):  # the suite asks for overflows, and NumPy warns of each
                result = self._method(method)(*arguments, **options)
        except (Exception, Interruption) as error:  # noqa: BLE001 - whatever an implementation raises is its result
            self.calls.append(Call(self._made_by + method, said, None, _said(error)))
            _translate(error, method)
        self.calls.append(Call(self._made_by + method, said, self._shown(gives, result)))
        return result

    def _method(self, name: str) -> Callable[..., Any]:
        found = getattr(self.adapter, name, None)
        if not callable(found):
            raise NotImplementedError(f"the adapter has no method {name}")
        return found  # type: ignore[no-any-return]  # it is callable

    def _on_tree(self, method: str, tree: Any, handle: Any) -> Any:
        given = self.made(tree)
        result = self.call(method, handle, given)
        return self.read(given if result is None else result, method)

    def _bits(self, leaf: Any, what: str) -> Bits:
        try:
            return to_bits(leaf)
        except TypeError as error:
            raise Failed(f"{what}: {error}") from None

    def number(self, value: Any, what: str) -> float:
        """What came for a float; whatever `float` takes, and no bool and no text."""
        if not isinstance(value, str | bytes | bool):
            with suppress(Exception):  # whatever its conversion raises, it is no float
                return float(value)
        raise Failed(f"{what}: wanted a float, got {seen(value)}")

    def flag(self, value: Any, what: str) -> bool:
        """What came for a flag: a bool, or a bool array of shape ()."""
        if isinstance(value, bool):
            return value
        if is_array(value):
            bits = self._bits(value, what)
            if bits.dtype == "bool" and bits.shape == ():
                return bits.bits[0] != 0
        came = f"{bits.dtype} of shape {bits.shape}" if is_array(value) else seen(value)
        raise Failed(f"{what}: wanted a bool or a bool array of shape (), got {came}")

    def _shown(self, kind: str, value: Any) -> Any:
        """*value* in JSON's words: what only its maker can read by a number, everything else as it is."""
        if kind in ("handles", "handle and tree") and isinstance(value, list | tuple):
            return [self._shown("handle" if at == 0 or kind == "handles" else "tree", item) for at, item in enumerate(value)]
        if value is not None and kind in OPAQUE:
            return {kind: self._number_of(value)}
        return plain(value)

    def _number_of(self, made: Any) -> int:
        for number, known in enumerate(self._made):
            if known is made:
                return number
        self._made.append(made)
        return len(self._made) - 1


def plain(value: Any) -> Any:
    """Rules, arrays, floats and containers of them in JSON's words, floats as hex; anything else as its repr."""
    return tree_to_json(value, _plain_leaf)


def _plain_leaf(value: Any) -> Any:
    if isinstance(value, LossScaleRule):
        return json.loads(value.to_json())
    if isinstance(value, float):
        return value.hex()
    if isinstance(value, bool | int | str):
        return value
    try:
        return to_bits(value).to_json()
    except TypeError:
        return {"repr": seen(value)}


def _translate(error: BaseException, method: str) -> NoReturn:
    if isinstance(error, Unsupported | Interruption):
        raise error
    if isinstance(error, NotImplementedError):
        _, _, words = _said(error).partition(": ")
        raise Absent(f"{method} is claimed and not there: {words}") from error
    raise Raised(f"{method} raised {_said(error)}") from error


def _said(error: BaseException) -> str:
    """Its type and its words, if it has any that can be had."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001 - it is the implementation's own
        return type(error).__name__


def _difference(got: Bits, wanted: Bits) -> str:
    """The first thing in which two arrays differ; empty where they are the same."""
    if got.dtype != wanted.dtype:
        return f"wanted {wanted.dtype}, got {got.dtype}"
    if got.shape != wanted.shape:
        return f"wanted shape {wanted.shape}, got {got.shape}"
    pairs = zip(values_of(got), values_of(wanted), strict=True) if got.bits != wanted.bits else ()
    for element, (came, hoped) in enumerate(pairs):
        if got.bits[element] != wanted.bits[element] and not (came != came and hoped != hoped):
            return f"element {element}: wanted {told(wanted, element)}, got {told(got, element)} in {got.dtype}"
    return ""
