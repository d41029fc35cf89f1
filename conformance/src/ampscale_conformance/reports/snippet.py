"""
A failure as a script of its own: the adapter's own source, the calls as they were, and the result that came, without ampscale.

The script raises an AssertionError with the result's message where the same calls give the same wrong result again, and
whatever the implementation raises where that is the failure.
"""

import inspect
import os
import re
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ..model.adapter import Adapter
from ..model.bits import Bits, tree_from_json, values_of
from ..model.clauses import clauses
from ..model.methods import METHODS, OPAQUE
from ..model.verdicts import Call, Result, Verdict
from .snippet_source import source_of

SECONDS = 120.0
ENDS = "# Ends with: "
_REPRODUCIBLE = (Verdict.FAIL, Verdict.ERROR, Verdict.XFAIL)
_SHORTEST_LOOP = 3

# What a script may need above its calls.
_STEP = """def step(handle, finite):
    after = adapter.update(handle, finite)
    return handle if after is None else after"""
_IMPORTS = {
    "SimpleNamespace": "from types import SimpleNamespace",
    "np": "import numpy as np",
    "jnp": "import jax.numpy as jnp",
    **{library: f"import {library}" for library in ("torch", "paddle", "mindspore", "tensorflow", "cupy", "ml_dtypes")},
    "inf": "from math import inf",
    "nan": "from math import nan",
}
_MAKE = {
    "numpy": "{array}",
    "torch": "torch.from_numpy({array})",
    "jax": "jnp.asarray({array})",
    "paddle": "paddle.to_tensor({array})",
    "mindspore": "mindspore.Tensor({array})",
    "tensorflow": "tensorflow.constant({array})",
    "cupy": "cupy.asarray({array})",
}


def shown(value: Any) -> Any:
    """Values and dtypes, in a form that can be compared."""
    if isinstance(value, list | tuple):
        return [shown(item) for item in value]
    if isinstance(value, dict):
        return {key: shown(item) for key, item in value.items()}
    if not hasattr(value, "dtype"):
        return repr(value)
    host = value.asnumpy() if hasattr(value, "asnumpy") else value
    return f"{str(value.dtype).rpartition('.')[2].lower()} {host.tolist()}"


def snippet_of(result: Result, adapter: Adapter) -> str:
    """A script that shows the failure; empty where there is none, or the adapter's source cannot be had."""
    if result.verdict not in _REPRODUCIBLE or not result.calls:
        return ""
    source = source_of(adapter, {call.method.rpartition(".")[2] for call in result.calls})
    if not source:
        return ""
    body = "\n".join([*_lines(result.calls, adapter.info.arrays, source), _ending(result.calls[-1], result.message)])
    helpers = {"step": _STEP, "shown": inspect.getsource(shown).replace("(value: Any) -> Any", "(value)").rstrip()}
    body = "\n\n\n".join([*(text for name, text in helpers.items() if re.search(rf"\b{name}\(", body)), body])
    needed = {line for name, line in _IMPORTS.items() if re.search(rf"\b{name}\b", body)}
    above = "".join(f"{line}\n" for line in sorted(needed - set(source.splitlines())))
    if above and not source.startswith(("import", "from")):
        above += "\n\n"
    # What annotations name need not be there.
    return f"{_heading(result, adapter)}\n\nfrom __future__ import annotations\n\n{above}{source}\n\n\n{body}\n"


def reproduced(snippet: str, python: str = sys.executable, seconds: float = SECONDS) -> bool:
    """Whether the script, run by that interpreter, ends as its heading says."""
    known = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, [os.curdir, *known]))}
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "snippet.py")  # a file, since some compilers want to read what they compile
        script.write_text(snippet, encoding="utf-8")
        run = partial(subprocess.run, cwd=folder, env=environment)  # so that what it writes is not left behind
        try:
            done = run([python, "-W", "ignore", str(script)], capture_output=True, text=True, timeout=seconds, check=False)
        except subprocess.TimeoutExpired:
            return False
    wanted = next(line for line in snippet.splitlines() if line.startswith(ENDS)).removeprefix(ENDS)
    return done.returncode != 0 and any(line.startswith(wanted) for line in done.stderr.splitlines())


def _heading(result: Result, adapter: Adapter) -> str:
    info, clause = adapter.info, clauses()[result.clause]
    fault = f"The fault that this catches is {result.catches}" if result.catches else ""
    said = (f"{info.name} {info.version}".strip() + f", and {clause.id} of ampscale's specification:", clause.sentence, fault)
    lines = [f"# {line}" for text in said for line in textwrap.wrap(text, 110)]
    last = result.calls[-1]
    end = last.raised if _raises(last, result.message) else f"AssertionError: {result.message}"
    return "\n".join([*lines, f"{ENDS}{end.splitlines()[0]}"])


def _raises(last: Call, message: str) -> bool:
    """Whether the failure is that the last call raises."""
    return bool(last.raised) and message.startswith(f"{last.method} raised")


def _ending(last: Call, message: str) -> str:
    """Raises where the last call's result is again what it was."""
    if _raises(last, message):
        return ""
    if last.raised or not _is_value(last.result):
        return f"raise AssertionError({message!r})"
    if isinstance(last.result, bool) or (isinstance(last.result, str) and last.result != "nan"):
        return f"assert got != {_literal(last.result)}, {message!r}"
    wanted = shown(_value(last.result, lambda bits: _Code(f"{bits.dtype} {_nested(values_of(bits), bits.shape)}")))
    return f"assert shown(got) != {wanted!r}, {message!r}"


def _lines(calls: Sequence[Call], library: str, source: str) -> Iterator[str]:
    """The calls of one case."""
    at = 0
    while at < len(calls):
        call, end = calls[at], _loop_end(calls, at)
        if call.method.rpartition(".")[2] in ("create", "load", "create_cell"):
            yield f"rule = {_rule(call.arguments[0], source)}"
        yield from _loop(calls[at:end:2]) if end else [_call(call, library, last=at == len(calls) - 1)]
        at = end or at + 1


def _call(call: Call, library: str, last: bool) -> str:
    method = call.method.removeprefix("compiled().")
    on = "adapter" if method == call.method else "compiled"
    arguments = ", ".join(_arguments(method, call.arguments, library))
    said = f"step({arguments})" if call.method == "update" else f"{on}.{method}({arguments})"
    if method == "compiled":
        return f"compiled = {said}"
    name = _name(call.result) or ("got" if last or _is_value(call.result) else "")
    return f"{name} = {said}" if name else said


def _arguments(method: str, said: Sequence[Any], library: str) -> Iterator[str]:
    """Each argument; options by their names."""
    for kind, argument in zip(METHODS[method].takes, said, strict=False):
        if kind == "options":
            yield from (f"{name}={_literal(value, library)}" for name, value in argument["dict"].items())
        elif kind == "rule":
            yield "rule"
        else:
            yield _literal(argument, library)


def _loop_end(calls: Sequence[Call], at: int) -> int:
    """Where a run of update and read_scale that begins here ends; 0 where it is too short to be a loop."""
    end, name, seen = at, "", set[str]()
    while end + 1 < len(calls) and _is_step(*calls[end : end + 2]) and name in ("", _name(calls[end].arguments[0])):
        name = _name(calls[end + 1].arguments[0])
        seen.add(name)
        end += 2
    later = {_name(argument) for call in calls[end:] for argument in call.arguments}
    return end if end - at >= 2 * _SHORTEST_LOOP and not (seen - {name}) & later else 0


def _is_step(call: Call, following: Call) -> bool:
    return (
        (call.method, following.method) == ("update", "read_scale")
        and not (call.raised or following.raised)
        and (_name(call.result) or _name(call.arguments[0])) == _name(following.arguments[0])
    )


def _loop(steps: Sequence[Call]) -> Iterator[str]:
    signs = "".join("+" if call.arguments[1] else "-" for call in steps)
    first = _name(steps[0].arguments[0])
    name = _name(steps[-1].result) or _name(steps[-1].arguments[0])
    if name != first:
        yield f"{name} = {first}"
    yield f'for sign in "{signs}":'
    yield f'    {name} = step({name}, sign == "+")'
    yield f"    got = adapter.read_scale({name})"


def _name(said: Any) -> str:
    """The variable of what only its maker can read; empty for everything else."""
    if isinstance(said, dict) and len(said) == 1:
        ((kind, number),) = said.items()
        if kind in OPAQUE and isinstance(number, int):
            return f"{kind}{number}" if number else kind
    return ""


def _is_value(said: Any) -> bool:
    """Whether a result can be compared: it is there, and nothing that only its maker can read."""
    if isinstance(said, list):
        return all(map(_is_value, said))
    return said is not None and not _name(said) and not (isinstance(said, dict) and "repr" in said)


def _rule(said: dict[str, Any], source: str) -> str:
    """The constants that the adapter's source reads, or all where it reads them in another way."""
    read = {name: value for name, value in said.items() if re.search(rf"\.{name}\b", source)} or said
    values = ", ".join(f"{name}={tuple(value) if isinstance(value, list) else value!r}" for name, value in read.items())
    return f"SimpleNamespace({values})"


class _Code(str):
    """What `repr` leaves as it is."""

    __repr__ = str.__str__


def _literal(said: Any, library: str = "numpy") -> str:
    """An argument as Python writes it."""
    return repr(_value(said, lambda bits: _Code(_MAKE[library].format(array=_array(bits)))))


def _value(said: Any, array: Callable[[Bits], Any]) -> Any:
    """What JSON's words stand for: a name, a number, or a container of them, with *array* of each array's bits."""
    return tree_from_json(said, lambda leaf: _leaf(leaf, array))


def _leaf(said: Any, array: Callable[[Bits], Any]) -> Any:
    if isinstance(said, dict) and "bits" in said:
        return array(Bits.from_json(said))
    if name := _name(said):
        return _Code(name)
    is_float = isinstance(said, str) and re.fullmatch(r"-?(0x[0-9a-f.]+p[+-]\d+|inf)|nan", said)
    return float.fromhex(said) if is_float else said


def _array(bits: Bits) -> str:
    dtype = "ml_dtypes.bfloat16" if bits.dtype == "bfloat16" else f"np.{bits.dtype.replace('bool', 'bool_')}"
    if not bits.bits:
        return f"np.empty({bits.shape}, {dtype})"
    if bits.dtype.startswith("complex"):
        parts = [f"complex({value.real}, {value.imag})" for value in values_of(bits)]
        return f"np.array([{', '.join(parts)}], {dtype}).reshape({bits.shape})"
    return f"np.array({_nested(values_of(bits), bits.shape)!r}, {dtype})"


def _nested(values: list[Any], shape: tuple[int, ...]) -> Any:
    if not shape:
        return values[0]
    size = len(values) // shape[0] if shape[0] else 0
    return [_nested(values[at * size : (at + 1) * size], shape[1:]) for at in range(shape[0])]
