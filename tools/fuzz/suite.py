"""Parsers of the conformance suite: protocol messages, encoded values, recordings and expectations."""

import json
from functools import partial
from random import Random
from typing import Any

import numpy as np
from ampscale_conformance.remote.codec import Codec, read_line
from ampscale_conformance.remote.transcript import Recording
from ampscale_conformance.run import expectations

from ampscale import presets
from ampscale.parsing import parse_json

from . import mutate
from .parser import Parser, parse_file

CODEC = Codec("numpy", None)  # type: ignore[arg-type]  # no value below is encoded as a handle
VALUES: dict[str, Any] = {
    "rule": CODEC.encode("rule", presets.megatron()),
    "tree": CODEC.encode("tree", {"w": np.ones(2, np.float16), "b": [np.ones(()), None]}),
    "options": CODEC.encode("options", {"max_norm": 1.5, "out": np.zeros(3, np.float32)}),
    "array or null": CODEC.encode("array or null", np.ones((1, 2), np.int32)),
    "number": CODEC.encode("number", 65536.0),
    "hello": {"protocol": 1, "implementation": {"name": "x", "level": 1, "capabilities": ["resume"], "preset": "torch"}},
}
REQUEST = json.dumps({"id": 3, "call": "create", "arguments": {"rule": VALUES["rule"], "options": VALUES["options"]}})
RECORDING = "\n".join(
    json.dumps(entry)
    for entry in (
        {"format": "ampscale conformance recording", "version": 1, "command": ["python", "x.py"]},
        {"start": True},
        {"request": REQUEST},
        {"reply": '{"id": 3, "result": 1}'},
        {"timeout": "after 3 s"},
    )
)
EXPECTED = '[[expect]]\ncase = "grows"\nverdict = "fail"\nreason = "late"\n'
EXPECTED += '[[expect]]\nclause = "MACHINE-*"\nverdict = "fail"\nreason = "x"\n'


def _line(random: Random) -> bytes:
    line = mutate.text(random, (REQUEST,)).encode("utf-8", "surrogatepass")
    return mutate.data(random, line) if random.random() < 0.3 else line


def _value(random: Random) -> tuple[str, str]:
    return random.choice(list(VALUES)), mutate.json_text(random, tuple(VALUES.values()))


PARSERS = {
    "suite remote.read_line": Parser(0.03, _line, read_line),
    "suite remote.Codec.decode": Parser(0.04, _value, lambda case: CODEC.decode(case[0], parse_json(case[1]))),
    "suite remote.Recording": Parser(
        0.01, lambda random: mutate.text(random, (RECORDING + "\n",)), partial(parse_file, ".jsonl", Recording)
    ),
    "suite run.expectations": Parser(
        0.02, lambda random: mutate.text(random, (EXPECTED,)), partial(parse_file, ".toml", expectations.read)
    ),
}
