"""Implementation under test as cases use it: calls are checked, converted and recorded."""

import json
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NoReturn

from ampscale import LossScaleRule

from .adapter import METHODS, OPAQUE, Adapter, ImplementationInfo, Unsupported
from .arrays import dtype_name, from_bits, is_array, to_bits
from .bits import Bits, arrays, element_text, leaves, map_tree, safe_repr, tree_to_json, values_of
from .supported_rules import SupportedRules, supported_rules
from .verdicts import Call, Trajectory, Verdict

LONGEST_SECONDS = 1e8  # three years; some systems accept no longer timer


class Failed(Exception):  # noqa: N818 - a verdict, not an error
    """Raised if an expectation is not met; the message states the expected and the actual value."""


class Raised(Exception):  # noqa: N818 - states what the implementation did
    """Raised if the implementation raises an error; the message names the call."""


class Absent(Exception):  # noqa: N818 - a verdict, not an error
    """Raised if a claimed method is missing or raises NotImplementedError."""


class Interruption(BaseException):
    """
    External end of a call: a timeout, the end of the process, or an invalid reply.

    It is a BaseException, so that an implementation that catches every Exception does not catch it.
    """


class TimedOut(Interruption):
    """No reply within the time limit."""


class Crashed(Interruption):
    """End of the implementation's process."""


class ProtocolError(Interruption):
    """Reply that violates the protocol."""


VERDICTS: dict[type[BaseException], Verdict] = {
    **dict.fromkeys((Failed, Absent), Verdict.FAIL),
    Raised: Verdict.ERROR,
    Unsupported: Verdict.UNSUPPORTED,
    TimedOut: Verdict.TIMEOUT,
    Crashed: Verdict.CRASH,
    ProtocolError: Verdict.PROTOCOL_ERROR,
}


def verdict_of(error: BaseException) -> Verdict:
    """Return the verdict on a case that ended with this exception."""
    return next(verdict for cls, verdict in VERDICTS.items() if isinstance(error, cls))


def check_seconds(name: str, seconds: float) -> None:
    """Raise a TypeError or ValueError unless the time limit with this name is positive and at most `LONGEST_SECONDS`."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise TypeError(f"{name} must be a number, got {seconds!r}")
    if not 0 < seconds <= LONGEST_SECONDS:
        raise ValueError(f"{name} must be positive and at most {LONGEST_SECONDS:,.0f}, got {seconds!r}")


class Subject:
    """Implementation under test. Calls are appended to *calls*, with *prefix* before the method: "compiled()." or nothing."""

    def __init__(self, adapter: Adapter, prefix: str = "", calls: list[Call] | None = None) -> None:
        self.adapter, self.info = adapter, adapter.info
        self._prefix = prefix
        self.supported: SupportedRules = supported_rules(adapter.info.preset)
        self.calls: list[Call] = [] if calls is None else calls
        self.trajectory: Trajectory | None = None
        self.records = True  # False to record no calls, since recording takes longer than most calls
        self._objects: dict[int, tuple[int, Any]] = {}  # by id; keeps references, so that an id is not reused

    # --- expectations ---

    def expect(self, holds: bool, message: str) -> None:
        """Fail the case with this message unless *holds* is True."""
        if not holds:
            raise Failed(message)

    def expect_same(self, got: Any, expected: Any, label: str) -> None:
        """Fail unless two trees of `Bits` are equal. A list equals a tuple, all NaNs are equal, and dict keys have any order."""
        if got == expected:  # as almost always
            return
        actual, target = dict(leaves(got)), dict(leaves(expected))
        self.expect(actual.keys() == target.keys(), f"{label}: expected leaves at {list(target)}, got {list(actual)}")
        for path, leaf in target.items():
            difference = _difference(actual[path], leaf)
            self.expect(not difference, f"{label}{path}: {difference}")

    def raises(self, method: str, *arguments: Any) -> bool:
        """Return True if the call raises an error. Unsupported propagates, and so does Absent for a missing method."""
        try:
            self.call(method, *arguments)
        except Raised:
            return True
        return False

    # --- calls ---

    def rule(self, **settings: Any) -> LossScaleRule:
        """Return the supported rule with these settings; raise Unsupported if there is none."""
        return self.supported.rule(**settings)

    def create(self, rule: LossScaleRule, **options: Any) -> Any:
        """Return the handle of a new scaler."""
        return self.call("create", rule, **options)

    def update(self, handle: Any, finite: bool) -> Any:
        """Return the handle after a step."""
        new_handle = self.call("update", handle, finite)
        return handle if new_handle is None else new_handle

    def read_scale(self, handle: Any) -> float:
        """Return the scale as a float."""
        return self.number(self.call("read_scale", handle), "read_scale")

    def scaled(self, method: str, handle: Any, tree: Any) -> Any:
        """Return the result of `scale` or `unscale` for a tree of `Bits`, also if the implementation works in place."""
        argument = self.to_arrays(tree)
        result = self.call(method, handle, argument)
        return self.to_bits(argument if result is None else result, method)

    def all_finite(self, tree: Any) -> bool:
        """Return the result of `all_finite` for a tree of `Bits` as a bool."""
        return self.flag(self.call("all_finite", self.to_arrays(tree)), "all_finite")

    def compiled(self) -> "Subject":
        """Return the compiled form of the same implementation. Its calls are recorded with those of this object."""
        adapter = self.call("compiled")
        if not isinstance(getattr(adapter, "info", None), ImplementationInfo):
            raise Absent(f"compiled must return an adapter, got {safe_repr(adapter)}")
        compiled = Subject(adapter, f"{self._prefix}compiled().", self.calls)
        compiled.records, compiled._objects = self.records, self._objects
        return compiled

    def to_arrays(self, tree: Any) -> Any:
        """Return a tree of `Bits` as new arrays of the adapter's library."""
        return map_tree(lambda leaf: from_bits(leaf, self.info.arrays), tree)

    def to_bits(self, tree: Any, label: str) -> Any:
        """Return a tree of arrays as `Bits`; fail if a leaf is not an array."""
        return map_tree(lambda leaf: self._bits(leaf, label), tree)

    def call(self, method: str, *arguments: Any, **options: Any) -> Any:
        """
        Call a method of the adapter and record the call.

        Raises Absent if there is no such method; Unsupported if the method raises it, or if an array other than a loss is
        float16 and the capability "float16" is not claimed; and Raised for any other Exception.
        """
        takes, gives, _ = METHODS[method]
        if method != "scale" and "float16" not in self.info.capabilities:
            self._reject_float16(takes, arguments)
        passed = (*arguments, options) if options else arguments
        recorded = [self._record(kind, value) for kind, value in zip(takes, passed, strict=False)] if self.records else []
        try:
            function = getattr(self.adapter, method, None)
            if not callable(function):
                raise NotImplementedError(f"the adapter has no method {method}")
            result = function(*arguments, **options)
        except (Exception, Interruption) as error:  # noqa: BLE001 - any error of the implementation is a result
            if self.records:
                self.calls.append(Call(self._prefix + method, recorded, None, _error_text(error)))
            _raise_outcome(error, method)
        if self.records:
            self.calls.append(Call(self._prefix + method, recorded, self._record(gives, result)))
        return result

    def _reject_float16(self, kinds: Sequence[str], arguments: Sequence[Any]) -> None:
        trees = [value for kind, value in zip(kinds, arguments, strict=False) if kind in ("tree", "arrays")]
        if "float16" in map(dtype_name, arrays(trees)):
            raise Unsupported("does not claim float16")

    def _bits(self, leaf: Any, label: str) -> Bits:
        try:
            return to_bits(leaf)
        except TypeError as error:
            raise Failed(f"{label}: {error}") from None

    def number(self, value: Any, label: str) -> float:
        """Return a result as a float; fail if it is a bool, text, or not convertible."""
        if not isinstance(value, str | bytes | bool):
            with suppress(Exception):  # any error of its conversion means that it is not a number
                return float(value)
        raise Failed(f"{label}: expected a float, got {safe_repr(value)}")

    def flag(self, value: Any, label: str) -> bool:
        """Return a result as a bool; fail unless it is a bool or a bool array of shape ()."""
        if isinstance(value, bool):
            return value
        if is_array(value):
            bits = self._bits(value, label)
            if bits.dtype == "bool" and bits.shape == ():
                return bits.bits[0] != 0
        description = f"{bits.dtype} of shape {bits.shape}" if is_array(value) else safe_repr(value)
        raise Failed(f"{label}: expected a bool or a bool array of shape (), got {description}")

    def _record(self, kind: str, value: Any) -> Any:
        """Return *value* in the JSON form of a report: opaque objects as numbers, others by `to_record`."""
        if isinstance(value, bool):
            return value
        if kind in ("handles", "handle and tree") and isinstance(value, list | tuple):
            later_kind = "handle" if kind == "handles" else "tree"  # of all items but the first
            return [self._record(later_kind if index else "handle", item) for index, item in enumerate(value)]
        if value is not None and kind in OPAQUE:
            return {kind: self._objects.setdefault(id(value), (len(self._objects), value))[0]}
        return to_record(value)


def to_record(value: Any) -> Any:
    """Return rules, arrays, floats and containers of them in the JSON form of a report; other values as their repr."""
    return tree_to_json(value, _record_leaf)


def _record_leaf(value: Any) -> Any:
    if isinstance(value, LossScaleRule):
        return json.loads(value.to_json())
    if isinstance(value, float):
        return value.hex()
    if isinstance(value, bool | int | str):
        return value
    try:
        return to_bits(value).to_json()
    except TypeError:
        return {"repr": safe_repr(value)}


def _raise_outcome(error: BaseException, method: str) -> NoReturn:
    """Raise the exception that stands for this error of a method: Unsupported, Interruption, Absent or Raised."""
    if isinstance(error, Unsupported | Interruption):
        raise error
    if isinstance(error, NotImplementedError):
        raise Absent(f"{method} is claimed but missing: {message_of(error)}") from error
    raise Raised(f"{method} raised {_error_text(error)}") from error


def _error_text(error: BaseException) -> str:
    return f"{type(error).__name__}: {message_of(error)}"


def message_of(error: BaseException) -> str:
    """Return the message of an error; a note if the implementation's own error type fails to format it."""
    try:
        return str(error)
    except Exception as failure:  # noqa: BLE001 - any error of the implementation's code
        return f"its message cannot be formatted: {type(failure).__name__}"


def _difference(got: Any, expected: Bits | None) -> str:
    """Return the first difference between two leaves, or "" if they are equal. All NaNs are equal."""
    if expected is None or not isinstance(got, Bits):
        return "" if got is expected else f"expected {'None' if expected is None else 'an array'}, got {safe_repr(got)}"
    if got.dtype != expected.dtype:
        return f"expected {expected.dtype}, got {got.dtype}"
    if got.shape != expected.shape:
        return f"expected shape {expected.shape}, got {got.shape}"
    if got.bits == expected.bits:
        return ""
    for index, (actual, target) in enumerate(zip(values_of(got), values_of(expected), strict=True)):
        both_nan = actual != actual and target != target
        if got.bits[index] != expected.bits[index] and not both_nan:
            return f"element {index}: expected {element_text(expected, index)}, got {element_text(got, index)} in {got.dtype}"
    return ""
