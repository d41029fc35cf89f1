"""
Failures as stand-alone scripts: the adapter's source, the recorded calls, and the wrong result, without ampscale.

A script raises an AssertionError with the message of the failure if its calls give the same wrong result again. If the failure
is an error of the implementation, the script raises that error.
"""

import inspect
import os
import re
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np

from ..model.adapter import METHODS, OPAQUE, Adapter
from ..model.bits import Bits, tree_from_json, values_of
from ..model.clauses import clauses
from ..model.verdicts import Call, Result, Verdict
from .snippet_source import source_of

SECONDS = 120.0
ENDS = "# Ends with: "  # precedes the expected last line of stderr in the heading of a script
_REPRODUCIBLE = (Verdict.FAIL, Verdict.ERROR, Verdict.XFAIL)
_SHORTEST_LOOP = 3  # steps; fewer are written one by one

# Helpers that a script includes if its calls use them.
_STEP = """def step(handle, finite):
    new_handle = adapter.update(handle, finite)
    return handle if new_handle is None else new_handle"""
_IMPORTS = {
    "SimpleNamespace": "from types import SimpleNamespace",
    "np": "import numpy as np",
    "jnp": "import jax.numpy as jnp",
    **{library: f"import {library}" for library in ("torch", "paddle", "mindspore", "tensorflow", "cupy", "ml_dtypes")},
    "inf": "from math import inf",
    "nan": "from math import nan",
    "suppress": "from contextlib import suppress",
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


def comparable(value: Any) -> Any:
    """Return values and dtypes in a comparable form."""
    if isinstance(value, list | tuple):
        return [comparable(item) for item in value]
    if isinstance(value, dict):
        return {key: comparable(item) for key, item in value.items()}
    if not hasattr(value, "dtype"):
        return repr(value)
    host = value.asnumpy() if hasattr(value, "asnumpy") else value
    return f"{str(value.dtype).rpartition('.')[2].lower()} {host.tolist()}"


def snippet_of(result: Result, adapter: Adapter) -> str:
    """Return a script that reproduces a fail, error or xfail; "" if there is none, or the adapter's source is unavailable."""
    methods = [getattr(type(adapter), call.method, None) for call in result.calls if call.method in METHODS]
    if result.verdict not in _REPRODUCIBLE or not result.calls or not all(map(callable, methods)):
        return ""
    source = source_of(adapter, set(map(_method, result.calls)))
    if not source:
        return ""
    body = "\n".join(_lines(result.calls, result.message, adapter.info.arrays, source))
    if "on_ranks(" in source:  # each rank imports the script
        body = f'if __name__ == "__main__":\n{textwrap.indent(body, "    ")}'
    body = "\n\n\n".join([*_helpers(body), body])
    # Annotations are not evaluated, so that the names in them need not be defined.
    head = f"{_heading(result, adapter)}\n\nfrom __future__ import annotations\n\n"
    return f"{head}{_imports(body, source)}{source}\n\n\n{body}\n"


def _helpers(body: str) -> Iterator[str]:
    """Yield the source code of the helpers that the calls use."""
    helpers = {"step": _STEP, "comparable": inspect.getsource(comparable).replace("(value: Any) -> Any", "(value)").rstrip()}
    return (text for name, text in helpers.items() if re.search(rf"\b{name}\(", body))


def _imports(body: str, source: str) -> str:
    """Return the imports that *body* requires and that *source*, the adapter's code, lacks."""
    required = {line for name, line in _IMPORTS.items() if re.search(rf"\b{name}\b", body)}
    imports = "".join(f"{line}\n" for line in sorted(required - set(source.splitlines())))
    return imports if not imports or source.startswith(("import", "from")) else f"{imports}\n\n"


def reproduced(snippet: str, python: str = sys.executable, seconds: float = SECONDS) -> bool:
    """Return True if the script, run with that interpreter, ends as its heading states."""
    paths = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    path = os.pathsep.join(map(os.path.abspath, [os.curdir, *paths]))
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONIOENCODING": "utf-8"}
    with tempfile.TemporaryDirectory() as folder:  # also the current directory, so that files which the script writes are removed
        script = Path(folder, "snippet.py")  # a file, since some compilers read the source of what they compile
        script.write_text(snippet, encoding="utf-8")
        command = [python, "-W", "ignore", str(script)]
        try:
            process = subprocess.run(command, cwd=folder, env=environment, capture_output=True, timeout=seconds, check=False)
        except subprocess.TimeoutExpired:
            return False
    ending = next(line for line in snippet.splitlines() if line.startswith(ENDS)).removeprefix(ENDS)
    # torch.distributed prefixes the lines of an error with the rank, and a traceback the name of an error with its module.
    expected = re.compile(rf"(\[rank0\]: )?([\w.]+\.)?{re.escape(ending)}")
    return process.returncode != 0 and any(map(expected.match, process.stderr.decode("utf-8", "replace").splitlines()))


def _heading(result: Result, adapter: Adapter) -> str:
    info, clause = adapter.info, clauses()[result.clause]
    bug = f"Detects: {result.catches}" if result.catches else ""
    texts = (f"{info.name} {info.version}".strip() + f", and {clause.id} of ampscale's specification:", clause.sentence, bug)
    lines = [f"# {line}" for text in texts for line in textwrap.wrap(text, 110)]
    last = result.calls[-1]
    end = last.raised if _raises(last, result.message) else f"AssertionError: {result.message}"
    # A traceback escapes surrogates in the same way.
    return "\n".join([*lines, f"{ENDS}{end.splitlines()[0]}"]).encode("utf-8", "backslashreplace").decode()


def _raises(last: Call, message: str) -> bool:
    """Return True if the failure is an error raised by the last call."""
    return bool(last.raised) and f"{_method(last)} raised {last.raised}" in message


def _method(call: Call) -> str:
    """Return the name of the method, without the prefix of the compiled form."""
    return call.method.rpartition(".")[2]


def _ending(last: Call, results: Sequence[Any], message: str) -> str:
    """
    Return a statement that fails if `got` equals the recorded result or results, or always if these cannot be compared.

    Return "" if the last call raises the error.
    """
    if _raises(last, message):
        return ""
    result: Any = results[0] if len(results) == 1 else list(results)
    if _has_handles(last):
        result = result[-1]
    if last.raised or not _is_value(result):
        return f"raise AssertionError({message!r})"
    if isinstance(result, bool) or (isinstance(result, str) and result != "nan"):
        return f"assert got != {_literal(result)}, {message!r}"
    expected = comparable(_value(result, lambda bits: _Code(f"{bits.dtype} {_nested(bits)}")))
    return f"assert comparable(got) != {expected!r}, {message!r}"


def _lines(calls: Sequence[Call], message: str, library: str, source: str) -> Iterator[str]:
    """Yield the lines of the calls of one case, and the comparison. Scales that are read last are compared together."""
    count = len(list(takewhile(lambda call: _method(call) == "read_scale" and not call.raised, reversed(calls))))
    reads = calls[-count:] if count > 1 else []
    index = 0
    while index < len(calls) - len(reads):
        call, end = calls[index], _loop_end(calls, index)
        if "rule" in METHODS[_method(call)].takes:
            yield f"rule = {_rule(call.arguments[0], source)}"
        if end:
            yield from _loop(calls[index:end:2])
        else:
            yield _statement(call, library, last=index == len(calls) - 1)
        index = end or index + 1
    if reads:
        yield f"got = [{', '.join(_expression(call, library) for call in reads)}]"
    yield _ending(calls[-1], [call.result for call in reads or calls[-1:]], message)


def _statement(call: Call, library: str, last: bool) -> str:
    if call.raised and not last:  # an error that the specification requires or allows
        return f"with suppress(Exception):\n    {_expression(call, library)}"
    if _has_handles(call):
        name = f"[{', '.join(_name(item) or 'got' for item in call.result)}]"
    elif _method(call) == "compiled":
        name = "compiled"
    else:
        name = _name(call.result) or ("got" if last or _is_value(call.result) else "")
    return f"{name} = {_expression(call, library)}" if name else _expression(call, library)


def _expression(call: Call, library: str) -> str:
    method = _method(call)
    receiver = "adapter" if method == call.method else "compiled"
    arguments = ", ".join(_arguments(method, call.arguments, library))
    return f"step({arguments})" if call.method == "update" else f"{receiver}.{method}({arguments})"


def _has_handles(call: Call) -> bool:
    """Return True if the result is a list of handles, or a handle with a tree."""
    return isinstance(call.result, list) and bool(call.result) and bool(_name(call.result[0]))


def _arguments(method: str, recorded: Sequence[Any], library: str) -> Iterator[str]:
    """Yield each argument as source code; options become keyword arguments."""
    for kind, argument in zip(METHODS[method].takes, recorded, strict=False):
        if kind == "options":
            yield from (f"{name}={_literal(value, library)}" for name, value in argument["dict"].items())
        elif kind == "rule":
            yield "rule"
        else:
            yield _literal(argument, library)


def _loop_end(calls: Sequence[Call], start: int) -> int:
    """Return the end index of the steps from *start* on that one loop can take; 0 if there are too few."""
    end, handles = start, list[str]()
    while end + 1 < len(calls) and _is_step(*calls[end : end + 2]):
        if handles and _name(calls[end].arguments[0]) != handles[-1]:
            break  # a step of another scaler
        handles.append(_name(calls[end + 1].arguments[0]))
        end += 2
    if len(handles) < _SHORTEST_LOOP:
        return 0
    later = {_name(argument) for call in calls[end:] for argument in call.arguments}
    needs_earlier_handle = bool(later & (set(handles) - {handles[-1]}))  # a loop keeps only the last one
    return 0 if needs_earlier_handle else end


def _is_step(call: Call, following: Call) -> bool:
    """Return True for an update and a read of the scale after it."""
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


def _name(recorded: Any) -> str:
    """Return the variable name of an opaque object; "" for other values."""
    if isinstance(recorded, dict) and len(recorded) == 1:
        ((kind, number),) = recorded.items()
        if kind in OPAQUE and isinstance(number, int):
            return f"{kind}{number}" if number else kind
    return ""


def _is_value(recorded: Any) -> bool:
    """Return True if a result can be compared: it is not None, not opaque, and not a repr."""
    if isinstance(recorded, list):
        return all(map(_is_value, recorded))
    return recorded is not None and not _name(recorded) and not (isinstance(recorded, dict) and "repr" in recorded)


def _rule(fields: dict[str, Any], source: str) -> str:
    """Return the rule as source code, with the fields that the adapter's source reads, or all if it reads none by name."""
    used = {name: value for name, value in fields.items() if re.search(rf"\.{name}\b", source)} or fields
    values = ", ".join(f"{name}={tuple(value) if isinstance(value, list) else value!r}" for name, value in used.items())
    return f"SimpleNamespace({values})"


class _Code(str):
    """String of source code, whose `repr` is the code itself."""

    __repr__ = str.__str__


def _literal(recorded: Any, library: str = "numpy") -> str:
    """Return a recorded argument as source code."""
    return repr(_value(recorded, lambda bits: _Code(_creation(bits, library))))


def _value(recorded: Any, array: Callable[[Bits], Any]) -> Any:
    """Return a recorded value: a name, a number, or a container, with *array* applied to the bits of each array."""
    return tree_from_json(recorded, lambda leaf: _leaf(leaf, array))


def _leaf(recorded: Any, array: Callable[[Bits], Any]) -> Any:
    if isinstance(recorded, dict) and "bits" in recorded:
        return array(Bits.from_json(recorded))
    if name := _name(recorded):
        return _Code(name)
    is_float = isinstance(recorded, str) and re.fullmatch(r"-?(0x[0-9a-f.]+p[+-]\d+|inf)|nan", recorded)
    return float.fromhex(recorded) if is_float else recorded


def _creation(bits: Bits, library: str) -> str:
    if library == "torch" and bits.dtype == "bfloat16":  # which `torch.from_numpy` rejects
        return f"torch.from_numpy({_array(bits)}.view(np.int16)).view(torch.bfloat16)"
    return _MAKE[library].format(array=_array(bits))


def _array(bits: Bits) -> str:
    dtype = "ml_dtypes.bfloat16" if bits.dtype == "bfloat16" else f"np.{bits.dtype.replace('bool', 'bool_')}"
    if not bits.bits:
        return f"np.empty({bits.shape}, {dtype})"
    if bits.dtype.startswith("complex"):
        parts = [f"complex({value.real}, {value.imag})" for value in values_of(bits)]
        return f"np.array([{', '.join(parts)}], {dtype}).reshape({bits.shape})"
    return f"np.array({_nested(bits)!r}, {dtype})"


def _nested(bits: Bits) -> Any:
    return np.array(values_of(bits), object).reshape(bits.shape).tolist()
