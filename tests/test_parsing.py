"""Limits of the parsers: hostile input raises an error of one line within a second."""

import json
import math
import struct
import time
from contextlib import suppress
from functools import partial
from types import SimpleNamespace

import click
import numpy as np
import pytest
from errors import unexpected
from frameworks.networks import Recorder, array, linear

import ampscale
from ampscale import GradScaler, LossScaleRule, Network, TrainOneStepWithLossScaleCell, optimizers, use_backend
from ampscale.backends import choice
from ampscale.checkpoints import Checkpoint, load, read_file, save, write_file
from ampscale.cli.rule_arguments import number, read_rule
from ampscale.core.validation import check_number
from ampscale.diagnostics import JSONLines, Monitor, suggest
from ampscale.parsing import DEEPEST, LONGEST_JSON, LONGEST_NUMBER, MOST_STEPS, excerpt, json_text, parse_json, parse_toml
from ampscale.simulation import compare, from_csv, from_string, identify, simulate
from ampscale.simulation.recordings.logs import read_log

torch = pytest.importorskip("torch", reason="needs torch")

LONG = "9" * 1_000_000
PARAMS = [array([1.0])]
REPEATS = 20_000
PATTERNS = (
    "overflow ", "iteration 1/1 | ", "num_updates=1, ", "num_updates=1, b", "num_updates 1 ", "train_inner ", "inf or nan ",
    "train_inner num_updates=1, a=b, ", "successfully loaded checkpoint from ", "oaded checkpoint ", "1", "Rank 1",
    "OVERFLOW! Skipping step", "[deepspeed] OVERFLOW! ", "rank=1] step=1, skipped=1 ", "Grad overflow on iteration 1 ",
)  # fmt: skip
STEPS = {  # logs in which the number of the last step is to be inserted
    "paddle": "global_step: 1\nFound inf or nan, current scale is: 8, decrease to: 8*0.5\nglobal_step: {}\n",
    "lightning": "epoch,step,scale\n0,0,8\n0,{},8\n",
    "step_pattern": "step 1\nstep {}\n",
}


def train(gradients=PARAMS, **members):
    """Run a training step of a state with other *members*, in which the network returns *gradients*."""
    network = Network(len, PARAMS, lambda _: (array(8), lambda _: gradients))
    optimizer = optimizers.SGD(network)
    state = ampscale.init_train_state(network.params, optimizer, RULE)._replace(**members)
    return ampscale.train_step(network, optimizer, RULE, state)


def brackets(count):
    """Return nested empty lists, as JSON or TOML."""
    return "[" * count + "]" * count


def nested(value, count):
    """Return *value* nested in *count* dicts."""
    for _ in range(count):
        value = {"a" * 10: value}  # with shorter keys, the paths up to the longest allowed one would take 400 MB
    return value


def safetensors(header):
    """Return the bytes of a safetensors file with four bytes of data."""
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + b"\0" * 4


CELL = TrainOneStepWithLossScaleCell(linear(), Recorder(), array(8))
RULE, ONES, TWOS = LossScaleRule(), array([1.0, 1.0]), array([2.0, 2.0])
META = torch.ones((), device="meta")
PADDLE, TORCH = GradScaler().state_dict(), ampscale.torch.GradScaler("cpu").state_dict()
CHECKPOINT = {"format": "ampscale.scaler", "version": 1, "rule": {}, "state": {}}
LARGE_SIZES = {"dtype": "F32", "shape": [10**1000] * 3000, "data_offsets": [0, 4]}
BYTEARRAY = b"\x80\2}X\1\0\0\0ac__builtin__\nbytearray\n\x8a\5" + (8 * 10**9).to_bytes(5, "little") + b"\x85Rs."  # makes 8 GB
FILES = {
    "deep.json": (brackets(100_000).encode(), "nested too deeply"),
    "sizes.safetensors": (safetensors({"a": LARGE_SIZES}), "lists of at most 32 ints"),
    "quoted.safetensors": (safetensors({"a": "x" * 1_000_000}), "got 'xxx"),
    "disks.pt": (b"PK\6\7" + struct.pack("<LQL", 0, 0, 9) + b"PK\5\6" + bytes(18), "(multiple disks|weights_only)"),
    "bytearray.bin": (BYTEARRAY, "a bytearray"),
}
REJECTED = {  # a lambda makes a large value only when the test runs
    "a list": (partial(parse_json, [LONG]), "must be a str or bytes, got list"),
    "None": (partial(LossScaleRule.from_json, None), "must be a str or bytes, got NoneType"),
    "deep JSON": (partial(parse_json, brackets(100_000)), "nested too deep"),
    "escapes": (lambda: parse_json('"' + '\\"' * 1_000_000), "Unterminated string"),
    "long JSON": (
        lambda: parse_json("9" * (LONGEST_JSON + 1)),
        f"must have at most {LONGEST_JSON} bytes, got {LONGEST_JSON + 1}",
    ),
    "digits": (partial(parse_json, "9" * 5000), f"each number must have at most {LONGEST_NUMBER} characters, got 5000"),
    "half a surrogate pair": (partial(parse_json, '"\\ud800"'), "surrogates not allowed"),
    "duplicate key": (
        partial(parse_json, "{" + ",".join(f'"{index}":1' for index in (*range(1000), 7)) + "}"),
        "duplicate key in JSON object: '7'",
    ),
    "deep TOML": (partial(parse_toml, "a = " + brackets(10_000)), "nested too deep"),
    "long key": (partial(parse_toml, "a." * 100_000 + "a = 1"), f"at most {DEEPEST} parts"),
    "long quoted key": (partial(parse_toml, "'a' . " * 100_000 + "a = 1"), f"at most {DEEPEST} parts"),
    "digits in TOML": (partial(parse_toml, "a = " + "1_" * 3000), f"at most {LONGEST_NUMBER} digits"),
    "long TOML": (lambda: parse_toml("9" * (LONGEST_JSON + 1)), "must have at most"),
    "long field": (lambda: LossScaleRule.from_json(json.dumps({"x" * 1_000_000: 1})), "the keys of a rule must be"),
    "a power": (partial(number, "9" * 1000 + "**2000"), "a number must be written like"),
    "a root": (partial(number, "-2**0.5"), "a number must be written like"),
    "long number": (partial(number, LONG), "a number must be written like"),
    "log of words": (partial(read_log, "overflow " * 60_000), "no known messages"),
    "blank lines": (lambda: read_log("\n" * 2_000_000), "no known messages"),
    "row": (lambda: read_log("epoch,step,scale\n" + "," * 2_000_000), "each row must have at most"),
    "log of digits": (lambda: read_log("steps: " + "9" * 1_000_000 + " loss: "), "at most"),
    "field": (partial(read_log, "epoch,step,scale\n0,0," + "8" * 200_000), "field larger than field limit"),
    "header": (partial(read_log, 'epoch,step,"scale\n0,0,8"'), "Lightning's metrics.csv must have 1 to 5000001 rows"),
    "a path": (partial(load, "torch", {}, at="a." * 50_000), "a path must have at most"),
    "nested state": (lambda: load("torch", nested({}, 100_000)), "each path in a checkpoint must have at most"),
    "nested rule": (lambda: load("ampscale", CHECKPOINT | {"rule": nested({}, 100_000)}), "must be representable in JSON"),
    "nested number": (partial(check_number, nested({}, 5000), "scale", "a number", 0), "a number, got"),
    "text": (partial(from_string, LONG), "'9' in line 1"),
    "backend": (partial(use_backend, LONG), "must name a backend"),
    "device": (partial(ampscale.torch.GradScaler, LONG), "device must be"),
    "enable": (partial(GradScaler, LONG), "enable must be a bool"),
    "decr_count": (partial(GradScaler, decr_count=LONG), "decr_count must be one of"),
    "keys": (lambda: GradScaler().load_state_dict(dict.fromkeys(range(100_000))), "state_dict must have the keys"),
    "loss_fn": (partial(Network, [LONG], []), "loss_fn must be callable"),
    "network": (partial(optimizers.SGD, LONG), "network must be"),
    "optimizer": (partial(TrainOneStepWithLossScaleCell, linear(), LONG, array(8)), "optimizer must be"),
    "scale_sense": (partial(TrainOneStepWithLossScaleCell, linear(), Recorder(), LONG), "scale_sense must be"),
    "update_cell": (partial(CELL.load_state_dict, {"scale_sense": array(8), "update_cell": LONG}), "update_cell must be empty"),
    "an array": (
        partial(CELL.load_state_dict, {"scale_sense": array(8), "update_cell": np.ones(2)}),
        "update_cell must be empty",
    ),
    "nested tensor": (lambda: load("torch", TORCH | {"scale": torch.nested.nested_tensor([torch.ones(1)])}), "scale must have"),
    "dtype": (partial(ampscale.unscale, [], 2.0, LONG), "dtype must be"),
    "rule of a state": (partial(ampscale.init_train_state, [], optimizers.SGD(linear()), LONG), "rule must be a LossScaleRule"),
    "flag": (partial(LossScaleRule().update, LossScaleRule().init(like=1.0), LONG), "finite must be a bool"),
    "rule": (partial(simulate, LONG, from_string(".")), "rule must be"),
    "candidates": (partial(identify, [], LONG), "candidates must be"),
    "version": (partial(load, "ampscale", CHECKPOINT | {"version": LONG}), "version"),
    "state dict without a value": (
        lambda: GradScaler().load_state_dict(PADDLE | {"scale": META}),
        "got a tensor on the device meta",
    ),
    "state without a value": (
        lambda: save("torch", Checkpoint(RULE, RULE.init(like=META))),
        "each member of the state must have a",
    ),
    "inputs of suggest": (partial(suggest, [1]), "histograms must be a sequence of Histogram"),
    "learning rate": (lambda: optimizers.SGD(linear(), lambda _: ONES).learning_rate, r"must have shape \(\), got \(2,\)"),
    "mapping": (partial(write_file, "rule.json", [1]), "mapping must be a mapping, got list"),
    "scale": (partial(ampscale.scale, torch.ones(1), torch.ones(1).to_sparse()), "scale must be a dense tensor, got a sparse"),
    "layout": (partial(ampscale.all_finite, torch.ones(2).to_mkldnn()), "strided, jagged or sparse COO, got torch._mkldnn"),
    "objects": (partial(ampscale.scale, [np.ones(1, object)], 2.0), r"tree\[0\] must be one of float16, .*, got object"),
    "library": (partial(RULE.update, RULE.init(array(8)), torch.tensor(True)), "finite from torch"),
    "scaler": (partial(train, scaler=RULE.init(torch.ones(1))), "scaler.* from torch"),
    "moments": (partial(train, optimizer=optimizers.Momentum(linear()).state), "moments must have 0 trees, got 1"),
    "integers": (partial(train, [np.int32([1])]), r"gradients\[0\] must be floating-point or complex, got int32"),
    "one result": (partial(ampscale.unscale_and_check, [ONES, TWOS], 2.0, out=[ONES, ONES]), "receives another result"),
    "iterator": (partial(GradScaler().unscale_, SimpleNamespace(parameters=iter([]))), "a list of parameters"),
    "key": (partial(write_file, "rule.json", {"a": {1: 2}}), "each key must be a str, got 1"),
    "sparse": (partial(write_file, "rule.json", {"a": torch.ones(1).to_sparse()}), "representable in JSON"),
    "path": (partial(load, "torch", TORCH, at=["a"]), "at must be a str"),
    "descriptor": (partial(from_csv, 1), "not int"),
    "rules": (partial(compare, "torch", from_string(".")), "rules must be a mapping"),
    "limits": (partial(Monitor, limits={}), "limits must be a Limits"),
    "empty rule": (partial(JSONLines, "/dev/null", {}), "rule must be a LossScaleRule"),
    **{
        f"{name}, {text[:9]}": (partial(read_log, STEPS[name].format(text)), "at most|from 0 to")
        for name in ("paddle", "lightning")
        for text in ("2147483648", "9000000000000000", "9" * 5000, str(MOST_STEPS + 1))
    },
}


def within_a_second(call):
    """Return the result of a call, and fail if it takes more than a second of CPU time."""
    started = time.thread_time()
    try:
        return call()
    finally:
        assert time.thread_time() - started < 1


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_hostile_input_is_rejected_within_a_second():
    """The message is one line, and quotes only an excerpt of the input."""
    one_line = r"^(?=.{1,1500}$)"
    cases = (
        (name, partial(within_a_second, call), (TypeError, ValueError), f"{one_line}.*({text})")
        for name, (call, text) in REJECTED.items()
    )
    assert unexpected(cases) == []


def test_hostile_files_are_rejected_within_a_second(tmp_path):
    """The message quotes only an excerpt of the file."""
    cases = []
    for name, (content, message) in {**FILES, "long.json": (b" " * (LONGEST_JSON + 1), "at most")}.items():
        (tmp_path / name).write_bytes(content)
        read = partial(within_a_second, partial(read_file, tmp_path / name))
        cases.append((name, read, ValueError, f"{name} .*{message}"))
    assert unexpected(cases) == []


@pytest.mark.slow
@pytest.mark.parametrize("pattern", PATTERNS)
def test_line_of_many_log_patterns_takes_linear_time(pattern):
    """20,000 patterns in one line take at most ten times as long as in separate lines."""

    def seconds(text):
        started = time.thread_time()
        with suppress(ValueError):
            read_log(text)
        return time.thread_time() - started

    assert seconds(pattern * REPEATS) < 10 * seconds((pattern + "\n") * REPEATS) + 0.5


@pytest.mark.slow
def test_run_with_the_largest_number_of_steps_is_read():
    """The limit itself is allowed."""
    for name in ("paddle", "lightning"):
        log = read_log(STEPS[name].format(MOST_STEPS))
        assert len(log.observed.finite) == MOST_STEPS
    assert read_log(STEPS["step_pattern"].format(MOST_STEPS), "apex", r"step (?P<step>\d+)").observed is not None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("LossScaleRule(init_scale=1.0, init_scale=2.0)", "each argument of a rule must be given once, got"),
        ("LossScaleRule(init_scale=" + "-" * 9000 + "1)", "a rule must be written as Python prints it"),
        ("LossScaleRule(init_scale=" + "(" * 9000 + "1)", "a rule must be written as Python prints it"),
        ("LossScaleRule(init_scale=2.0)(init_scale=4.0)", "a rule must be written as Python prints it"),
        ("LossScaleRule(init_scale=" + "9" * 20_000 + ")", "a rule must have at most 10000 characters, got"),
        ("LossScaleRule(init_scale=0x" + "f" * 9000 + ")", "init_scale must be .* got an int of 36000 bits"),
        ("torch:init_scale=" + "9" * 300 + "**2000", "a number must be written like"),
        ("x" * 100_000, "File name too long|ampscale presets lists the presets"),
    ],
)
def test_hostile_rule_is_a_usage_error(text, message):
    """The message is one line of at most 1,500 characters."""
    with pytest.raises(click.UsageError, match=f"^(?=.{{1,1500}}$).*({message})"):
        within_a_second(partial(read_rule, text))


def test_hostile_configuration_raises(tmp_path, monkeypatch):
    """The error names the file or the variable, and quotes only an excerpt."""
    monkeypatch.chdir(tmp_path)
    choice._in_files.cache_clear()
    (tmp_path / "ampscale.toml").write_text("backend = " + brackets(10_000))
    with pytest.raises(ValueError, match=r"ampscale\.toml must be readable TOML: the TOML is nested too deeply"):
        within_a_second(choice.configured)
    monkeypatch.setenv("AMPSCALE_BACKEND", "x" * 100_000)
    with pytest.raises(ValueError, match=r"^(?=.{1,1500}$)AMPSCALE_BACKEND must name a backend"):
        choice.configured_backend()


@pytest.mark.parametrize("error", [OSError(22, "Invalid argument"), KeyError("scale"), RuntimeError("x" * 10**6 + "\nand more")])
def test_errors_of_torch_load_become_value_errors(tmp_path, monkeypatch, error):
    """
    The message has one line of at most 500 characters.

    The file has been read before, so an OSError concerns its content.
    """

    def load(*_, **__):
        raise error

    write_file(tmp_path / "x.pt", {"a": 1.0})
    monkeypatch.setattr(torch, "load", load)
    with pytest.raises(ValueError, match=r"^.{1,500}$"):
        read_file(tmp_path / "x.pt")


def test_table_with_too_many_rows_is_rejected(tmp_path, monkeypatch):
    """Rows are counted while the file is read."""
    monkeypatch.setattr("ampscale.simulation.recordings.tables.MOST_STEPS", 2)
    (tmp_path / "x.csv").write_text("finite\n1\n1\n")
    assert len(from_csv(tmp_path / "x.csv")) == 2
    (tmp_path / "x.csv").write_text("finite\n1\n1\n1\n")
    with pytest.raises(ValueError, match=r"x\.csv must have at most 2 rows, got more"):
        from_csv(tmp_path / "x.csv")


def test_values_that_cannot_be_read_are_not_written(tmp_path):
    """The old files are unchanged."""
    deep, circle = [], {}
    for _ in range(200):
        deep = [deep]
    circle["a"] = circle
    rejected = {
        ".json": [{"a": deep}, circle, {"a": 10**1200}, {1: 2, "1": 3}, {"a": {1}}, {(1,): 2}, {"a": math.nan}],
        ".safetensors": [{"__metadata__": 1.0}, {"a": "x"}, {"a": torch.ones((), requires_grad=True)}],
        ".pt": [{"a": LossScaleRule()}, {"a": lambda: 0}],
    }
    for suffix in rejected:
        write_file(tmp_path / f"x{suffix}", {"scale": 2.0})
    contents = {path: path.read_bytes() for path in tmp_path.iterdir()}
    cases = [
        ((suffix, list(value)), partial(write_file, tmp_path / f"x{suffix}", value), ValueError, ".")
        for suffix, values in rejected.items()
        for value in values
    ]
    assert unexpected(cases) == []
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == contents


def test_values_at_the_limits_are_read():
    """The limits are the deepest nesting and the largest number of digits."""
    assert parse_json(brackets(DEEPEST)) == json.loads(brackets(DEEPEST))
    assert parse_json("9" * LONGEST_NUMBER) == 10**LONGEST_NUMBER - 1
    assert parse_toml(f"a = {brackets(50)}\n" + "a1." * (DEEPEST - 1) + "b = 'c. d. e'")["a"]


def test_brackets_in_strings_are_text():
    """Quotes within a string are escaped. A pair of surrogates is one character."""
    assert parse_json('{"[[": "]]\\"[", "\\ud83d\\ude00": [1.5, null]}') == {"[[": ']]"[', "\U0001f600": [1.5, None]}


def test_arrays_become_json_numbers_and_lists():
    """An array of shape () becomes a number."""
    assert parse_json(json_text({"a": torch.ones(1), "b": torch.ones(())})) == {"a": [1.0], "b": 1.0}


def test_excerpt_of_a_short_value_is_its_repr():
    """Examples are empty and nested containers. A value whose `repr` raises an error is named by its type."""
    for value in ([1, "two"], (1,), (), {"a": (1, b"x"), 2: None}, [], {}, True, 1.5, 10**90, "x'y", range(3)):
        assert excerpt(value, 100) == repr(value)
    raising = type("Deleted", (), {"__repr__": lambda _: 1 / 0})()  # such as an array of JAX whose buffer was donated
    assert "Deleted object at 0x" in excerpt([1, raising], 200)


def test_excerpt_formats_only_the_beginning_of_a_long_value():
    """The length is limited even for a list that contains itself."""
    endless = [1]
    endless.append(endless)
    shared = [0]
    for _ in range(1000):
        shared = [shared, shared]
    for value in (endless, shared, [0] * 10**6, "x" * 10**6, {"x" * 10**6: 1}, 10**10**6, dict.fromkeys(range(10**5))):
        assert len(within_a_second(partial(excerpt, value))) <= 80
        assert len(within_a_second(partial(excerpt, value, 5000))) <= 5000
