"""Parsers of the library, with valid inputs to mutate and the errors that they document."""

import io
import json
import zipfile
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import click

from ampscale import LossScaleRule, checkpoints, presets
from ampscale.backends import choice
from ampscale.checkpoints.formats.published import FORMATS
from ampscale.cli import rule_arguments
from ampscale.parsing import parse_json, parse_toml
from ampscale.simulation.recordings.files import from_file
from ampscale.simulation.recordings.log_formats import LOG_FORMATS
from ampscale.simulation.recordings.logs import read_log
from ampscale.simulation.recordings.tables import from_csv, observed_from_csv
from ampscale.simulation.traces import from_string

from . import mutate
from .parser import Parser, parse_file

LOGS = Path(__file__).parents[2] / "tests" / "simulation" / "recordings" / "logs"


def _parts(text: str) -> tuple[str, ...]:
    """Return a log in parts of six lines, so that most inputs are short."""
    lines = text.splitlines(keepends=True)
    return tuple("".join(lines[start : start + 6]) for start in range(0, len(lines), 6))


def _states() -> tuple[tuple[str, Any], ...]:
    """Return pairs of a format's name and the state of one scaler in this format."""
    state = {"scale": 65536.0, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 2000, "_growth_tracker": 7}
    converted = {name: checkpoints.convert(state, "torch", name).mapping for name in FORMATS}
    # Through JSON, which replaces arrays by numbers.
    return tuple(json.loads(json.dumps(converted, default=lambda array: array.tolist())).items())


def _json(random: Random) -> str | bytes:
    text = mutate.json_text(random, VALUES)
    return text if random.random() < 0.7 else mutate.data(random, text.encode("utf-8", "surrogatepass"))


def _safetensors(random: Random) -> bytes:
    """Return a safetensors file with a mutated header, in some cases with a wrong length of the header or mutated bytes."""
    header = mutate.json_text(random, HEADERS).encode("utf-8", "surrogatepass")
    length = len(header)
    if random.random() >= 0.95:
        length = random.choice((0, max(length - 1, 0), length + 1, 2**31, 2**63, 2**64 - 1))
    content = length.to_bytes(8, "little") + header + b"\0" * random.choice((0, 4, 8, 12, 12, 12))
    return content if random.random() < 0.8 else mutate.data(random, content)


def _archive(random: Random) -> bytes:
    """Return a torch file with mutated bytes, or an archive with compressed, mutated or missing entries."""
    if random.random() < 0.6:
        return mutate.data(random, random.choice(TORCH))
    packed = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(TORCH[0])) as source, zipfile.ZipFile(packed, "w") as target:
        for entry in source.infolist():
            content = source.read(entry)
            if random.random() < 0.3:
                content = mutate.data(random, content)
            if random.random() < 0.9:
                target.writestr(entry.filename, content, random.choice((zipfile.ZIP_STORED,) * 5 + (zipfile.ZIP_DEFLATED,)))
    return packed.getvalue()


def _torch_seeds() -> tuple[bytes, ...]:
    import torch

    seeds = []
    for zipped in (True, False):
        file = io.BytesIO()
        content = {"scaler": {"scale": 65536.0, "_growth_tracker": 7}, "model": {"w": torch.ones(3), "b": torch.ones(())}}
        torch.save(content, file, _use_new_zipfile_serialization=zipped)
        seeds.append(file.getvalue())
    return tuple(seeds)


STATES = _states()
ENTRY = {"dtype": "F32", "shape": [], "data_offsets": [0, 4]}
HEADERS: tuple[Any, ...] = (
    {"scale": ENTRY, "good_steps": {"dtype": "I64", "shape": [1], "data_offsets": [4, 12]}},
    {"w": {"dtype": "F32", "shape": [3], "data_offsets": [0, 12]}, "__metadata__": {"format": "pt"}},
)
TORCH = _torch_seeds()
RULES = tuple(json.loads(preset.rule().to_json()) for preset in presets.PRESETS.values())
VALUES = (*RULES[:4], *(state for _, state in STATES), *HEADERS, [1, [2.5, None], {"a": [True, "text"]}])
TOMLS = (
    'backend = "jax"\n',
    '[tool.ampscale]\nbackend = "torch"\n\n[project]\nname = "x"\ndynamic = ["version", "readme"]\n',
    'a.b.c = 1\n[[x.y]]\nz = {p = 1.5, q = [1, 2, [3]]}\nd = 1979-05-27T07:32:00Z\nl = \'lit\'\nm = """two\nlines"""\n',
)
ARGUMENTS = (
    "torch", "paddle:hysteresis=2,init_scale=2**16", "deepspeed:init_scale=0x1p15,growth_interval=1_000", "rule.json",
    "LossScaleRule(init_scale=1024.0, growth_factor=2.0, reset_bad_steps_on=('finite', 'backoff'), min_scale=None)",
    repr(presets.apex()), repr(presets.megatron()),
)  # fmt: skip
LOG_PARTS = tuple(part for path in sorted(LOGS.glob("*.log")) for part in _parts(path.read_text("utf-8")))
METRICS = ((LOGS / "lightning_2.6_metrics.csv").read_text("utf-8"), "epoch,step,loss_scale\n0,0,65536.0\n0,1,32768.0\n0,5,\n")
TABLES = (
    "scale,overflow\n65536.0,0\n65536.0,1\n32768.0,\n",
    "Finite,loss\n1,2.5\nfalse,3\n",
    'found_inf,"a ""b"""\n0.0,x\n1.0,"y\nz"\n',
)
TRACES = ("....x....", ". x X\n..x\n", "." * 50 + "x")
EITHER = (ValueError, TypeError)  # errors of a parser that documents a TypeError for a value of the wrong type

PARSERS = {
    "parsing.parse_json": Parser(0.15, _json, parse_json),
    "parsing.parse_toml": Parser(0.09, lambda random: mutate.text(random, TOMLS), parse_toml),
    "LossScaleRule.from_json": Parser(0.1, lambda random: mutate.json_text(random, RULES), LossScaleRule.from_json, EITHER),
    "cli.rule_arguments.read_rule": Parser(
        0.1, lambda random: mutate.text(random, ARGUMENTS), rule_arguments.read_rule, (click.UsageError,)
    ),
    "cli.rule_arguments.number": Parser(0.06, lambda random: mutate.text(random, mutate.NUMBERS), rule_arguments.number),
    "cli.rule_arguments.parse_settings": Parser(
        0.03, lambda random: [mutate.text(random, (ARGUMENTS[1][7:],))], rule_arguments.parse_settings, (click.UsageError,)
    ),
    "simulation.from_string": Parser(0.04, lambda random: mutate.text(random, TRACES), from_string),
    "simulation.read_log": Parser(
        0.1,
        lambda random: (random.choice((None, None, *LOG_FORMATS)), mutate.text(random, random.choice((LOG_PARTS, METRICS)))),
        lambda case: read_log(case[1], case[0]),
    ),
    "simulation.from_csv": Parser(0.03, lambda random: mutate.text(random, TABLES), partial(parse_file, ".csv", from_csv)),
    "simulation.observed_from_csv": Parser(
        0.03, lambda random: mutate.text(random, TABLES), partial(parse_file, ".csv", observed_from_csv)
    ),
    "simulation.from_file": Parser(
        0.04,
        lambda random: mutate.text(random, (*TABLES, *TRACES, *METRICS, *LOG_PARTS[:9])),
        lambda text: parse_file(".csv" if "," in text else ".log", from_file, text),
    ),
    "checkpoints.load": Parser(
        0.05,
        lambda random: (random.choice(STATES)[0], mutate.value(random, tuple(state for _, state in STATES))),
        lambda case: checkpoints.load(*case),
        EITHER,
    ),
    "checkpoints.read_file json": Parser(
        0.02, lambda random: mutate.json_text(random, VALUES), partial(parse_file, ".json", checkpoints.read_file)
    ),
    "checkpoints.read_file safetensors": Parser(0.03, _safetensors, partial(parse_file, ".safetensors", checkpoints.read_file)),
    "checkpoints.read_file torch": Parser(0.01, _archive, partial(parse_file, ".pt", checkpoints.read_file)),
    "backends configuration file": Parser(
        0.018,
        lambda random: mutate.text(random, TOMLS),
        partial(parse_file, ".toml", partial(choice._table, keys=("tool", "ampscale"))),
        EITHER,
    ),
    "backends AMPSCALE_BACKEND": Parser(
        0.002,
        lambda random: mutate.text(random, ("numpy", "torch", "backend")),
        lambda name: choice._usable.__wrapped__(name, choice.VARIABLE),
    ),
}
