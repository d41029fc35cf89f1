"""
A failure as a script of its own: the adapter's own source, the calls as they were, and the result that came, without ampscale.

The script raises an AssertionError with the result's message where the same calls give the same wrong result again, and
whatever the implementation raises where that is the failure.
"""

import ast
import os
import re
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ..model.adapter import Adapter
from ..model.bits import Bits, values_of
from ..model.clauses import clauses
from ..model.methods import METHODS
from ..model.verdicts import Call, Result, Verdict
from .snippet_source import source_of

SECONDS = 120.0
ENDS = "# Ends with: "
_REPRODUCIBLE = (Verdict.FAIL, Verdict.ERROR, Verdict.XFAIL)
_SHORTEST_LOOP = 3


def snippet_of(result: Result, adapter: Adapter) -> str:
    """A script that shows the failure; empty where there is none, or the adapter's source cannot be had."""
    if result.verdict not in _REPRODUCIBLE or not result.calls:
        return ""
    methods = {call.method.rpartition(".")[2] for call in result.calls}
    source = source_of(adapter, methods)
    if not source:
        return ""
    body = "\n".join(_Script(result.calls, adapter.info.arrays).lines(result.message, source))
    helpers = "".join(f"{text}\n\n\n" for name, text in _HELPERS.items() if re.search(rf"\b{name}\(", body))
    needed = sorted({line for name, line in _IMPORTS.items() if re.search(rf"\b{name}\b", helpers + body)})
    imports = [line for line in needed if line not in source.splitlines()]
    lazily = "from __future__ import annotations\n\n" if _is_annotated(source) else ""
    above = "".join(f"{line}\n" for line in imports) + ("\n\n" if imports and not source.startswith(("import", "from")) else "")
    return f"{_heading(result, adapter)}\n\n{lazily}{above}{source}\n\n\n{helpers}{body.rstrip()}\n"


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
    lines = [line for text in said if text for line in textwrap.wrap(text, 110)]
    return "\n".join(f"# {line}" for line in lines) + f"\n{ENDS}{_end(result)}"


def _end(result: Result) -> str:
    """How the script's last words begin."""
    raised = result.calls[-1].raised
    if raised and result.message.startswith(f"{result.calls[-1].method} raised"):
        return raised.splitlines()[0]
    return f"AssertionError: {result.message}".splitlines()[0]


def _is_annotated(source: str) -> bool:
    """Whether it has annotations, whose names need not be there."""
    nodes = ast.walk(ast.parse(source))
    return any(getattr(node, "annotation", None) or getattr(node, "returns", None) for node in nodes)


_HELPERS = {
    "step": """def step(handle, finite):
    after = adapter.update(handle, finite)
    return handle if after is None else after""",
    "shown": '''def shown(value):
    """Values and dtypes, in a form that can be compared."""
    if isinstance(value, (list, tuple)):
        return [shown(item) for item in value]
    if isinstance(value, dict):
        return {key: shown(item) for key, item in value.items()}
    if not hasattr(value, "dtype"):
        return repr(value)
    host = value.asnumpy() if hasattr(value, "asnumpy") else value
    return f"{str(value.dtype).rpartition('.')[2].lower()} {host.tolist()}"''',
}
_IMPORTS = {
    "SimpleNamespace": "from types import SimpleNamespace",
    "np": "import numpy as np",
    "torch": "import torch",
    "jnp": "import jax.numpy as jnp",
    "paddle": "import paddle",
    "mindspore": "import mindspore",
    "tensorflow": "import tensorflow",
    "cupy": "import cupy",
    "ml_dtypes": "import ml_dtypes",
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


def _ending(last: Call, message: str) -> str:
    """Raises where the last call's result is again what it was."""
    if last.raised:
        return "" if message.startswith(f"{last.method} raised") else f"raise AssertionError({message!r})"
    if not _is_value(last.result):
        return f"raise AssertionError({message!r})"
    plain = isinstance(last.result, bool) or (isinstance(last.result, str) and last.result != "nan")
    differs = f"got != {_literal(last.result, '')}" if plain else f"shown(got) != {_shown(last.result)!r}"
    return f"assert {differs}, {message!r}"


class _Script:
    """The calls of one case as lines of Python."""

    def __init__(self, calls: Sequence[Call], library: str) -> None:
        self._calls = calls
        self._library = library
        self._names: dict[tuple[str, int], str] = {}

    def lines(self, message: str, source: str) -> Iterator[str]:
        at, rules = 0, 0
        while at < len(self._calls):
            call = self._calls[at]
            if call.method.rpartition(".")[2] in ("create", "load", "create_cell"):
                yield f"rule = {_rule(call.arguments[0], source)}"
                rules += 1
            end = self._loop_end(at)
            yield from self._loop(at, end) if end else [self._call(call, last=at == len(self._calls) - 1)]
            at = end or at + 1
        yield _ending(self._calls[-1], message)

    def _call(self, call: Call, last: bool) -> str:
        method = call.method.removeprefix("compiled().")
        on = "adapter" if method == call.method else "compiled"
        arguments = ", ".join(self._arguments(method, call.arguments))
        said = f"{on}.{method}({arguments})"
        if method == "update":
            said = said.replace("adapter.update(", "step(", 1)
        name = self._given(call.result)
        if method == "compiled":
            return f"compiled = {said}"
        return f"{name} = {said}" if name else f"got = {said}" if last or _is_value(call.result) else said

    def _given(self, result: Any) -> str:
        """The name of what only its maker can read, a new one where it is new."""
        opaque = _opaque(result)
        if opaque is None:
            return ""
        kind, number = opaque
        self._names.setdefault((kind, number), f"{kind}{number}" if number else kind)
        return self._names[kind, number]

    def _arguments(self, method: str, said: Sequence[Any]) -> Iterator[str]:
        """Each argument; options by their names."""
        for kind, argument in zip(METHODS[method].takes, said, strict=False):
            if kind == "options":
                yield from (f"{name}={_literal(value, self._library)}" for name, value in argument["dict"].items())
            else:
                yield self._argument(argument)

    def _argument(self, said: Any) -> str:
        opaque = _opaque(said)
        if opaque is not None:
            return self._names.get(opaque, f"{opaque[0]}{opaque[1]}")
        if isinstance(said, dict) and "init_scale" in said:
            return "rule"
        return _literal(said, self._library)

    def _loop_end(self, at: int) -> int:
        """Where a run of update and read_scale that begins here ends; 0 where it is too short to be a loop."""
        end, last, seen = at, None, set[tuple[str, int] | None]()
        while end + 1 < len(self._calls) and _is_step(self._calls[end], self._calls[end + 1]):
            before, after = _opaque(self._calls[end].arguments[0]), _opaque(self._calls[end].result)
            if last is not None and before != last:
                break
            last = after or before
            seen.add(last)
            end += 2
        later = {_opaque(argument) for call in self._calls[end:] for argument in call.arguments}
        return end if end - at >= 2 * _SHORTEST_LOOP and not (seen - {last}) & later else 0

    def _loop(self, at: int, end: int) -> Iterator[str]:
        steps = self._calls[at:end:2]
        signs = "".join("+" if call.arguments[1] else "-" for call in steps)
        first, last = self._argument(steps[0].arguments[0]), _opaque(steps[-1].result) or _opaque(steps[-1].arguments[0])
        if last is None:
            return
        name = self._names[last] = f"{last[0]}{last[1]}" if last[1] else last[0]
        if name != first:
            yield f"{name} = {first}"
        yield f'for sign in "{signs}":'
        yield f'    {name} = step({name}, sign == "+")'
        yield f"    got = adapter.read_scale({name})"


def _is_step(call: Call, following: Call) -> bool:
    after = _opaque(call.result) or _opaque(call.arguments[0]) if call.arguments else None
    return (
        call.method == "update"
        and following.method == "read_scale"
        and not call.raised
        and not following.raised
        and after == _opaque(following.arguments[0])
    )


def _opaque(said: Any) -> tuple[str, int] | None:
    if isinstance(said, dict) and len(said) == 1:
        (kind, number), *_ = said.items()
        if kind in ("handle", "optimizer", "cell", "saved", "adapter") and isinstance(number, int):
            return kind, number
    return None


def _is_value(said: Any) -> bool:
    """Whether a result can be compared: it is there, and nothing that only its maker can read."""
    if isinstance(said, list):
        return all(_is_value(item) for item in said)
    return said is not None and _opaque(said) is None and not (isinstance(said, dict) and "repr" in said)


def _rule(said: dict[str, Any], source: str) -> str:
    """The constants that the adapter's source reads, or all where it reads them in another way."""
    read = {name: value for name, value in said.items() if re.search(rf"\.{name}\b", source)} or said
    values = ", ".join(f"{name}={tuple(value) if isinstance(value, list) else value!r}" for name, value in read.items())
    return f"SimpleNamespace({values})"


def _literal(said: Any, library: str) -> str:
    """An argument as Python writes it."""
    if isinstance(said, list):
        return "[" + ", ".join(_literal(item, library) for item in said) + "]"
    if isinstance(said, dict) and "tuple" in said:
        inner = "".join(f"{_literal(item, library)}, " for item in said["tuple"])
        return f"({inner.rstrip()})"
    if isinstance(said, dict) and "dict" in said:
        return "{" + ", ".join(f"{key!r}: {_literal(item, library)}" for key, item in said["dict"].items()) + "}"
    if isinstance(said, dict) and "bits" in said:
        return _MAKE[library].format(array=_array(Bits.from_json(said)))
    if isinstance(said, str) and re.fullmatch(r"-?(0x[0-9a-f.]+p[+-]\d+|inf)|nan", said):
        return repr(float.fromhex(said))
    return repr(said)


def _array(bits: Bits) -> str:
    dtype = "ml_dtypes.bfloat16" if bits.dtype == "bfloat16" else f"np.{bits.dtype.replace('bool', 'bool_')}"
    if not bits.bits:
        return f"np.empty({bits.shape}, {dtype})"
    if bits.dtype.startswith("complex"):
        parts = [f"complex({value.real}, {value.imag})" for value in values_of(bits)]
        return f"np.array([{', '.join(parts)}], {dtype}).reshape({bits.shape})"
    return f"np.array({_nested(values_of(bits), bits.shape)!r}, {dtype})"


def _shown(said: Any) -> Any:
    """What the script's own `shown` makes of such a result."""
    if isinstance(said, list):
        return [_shown(item) for item in said]
    if isinstance(said, dict) and "tuple" in said:
        return [_shown(item) for item in said["tuple"]]
    if isinstance(said, dict) and "dict" in said:
        return {key: _shown(item) for key, item in said["dict"].items()}
    if isinstance(said, dict) and "bits" in said:
        bits = Bits.from_json(said)
        return f"{bits.dtype} {_nested(values_of(bits), bits.shape)}"
    return _literal(said, "numpy")


def _nested(values: list[Any], shape: tuple[int, ...]) -> Any:
    if not shape:
        return values[0]
    size = len(values) // shape[0] if shape[0] else 0
    return [_nested(values[at * size : (at + 1) * size], shape[1:]) for at in range(shape[0])]
