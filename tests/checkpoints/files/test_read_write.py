"""Files are read strictly and without running anything that is in them, whatever has become of them."""

import io
import json
import pickle
import struct
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ampscale import checkpoints
from ampscale.checkpoints import read_file, write_file
from ampscale.checkpoints.files.safetensors import Unread

STATE = {"scale": 65536.0, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 2000, "_growth_tracker": 7}
ENTRY = {"dtype": "F32", "shape": [], "data_offsets": [0, 4]}


def safetensors(header, data=b"\0\0\0\0"):
    """The bytes of such a file."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def pickled(value):
    """A file of torch's older kind, with a pickle of *value*."""
    file = io.BytesIO()
    pickle.dump(value, file)
    return file.getvalue()


class Runs:
    """An object whose pickle runs code when it is loaded."""

    def __reduce__(self):
        return (sys.exit, ("a pickle was run",))


@pytest.mark.parametrize("target", [name for name in checkpoints.FORMATS if name != "ampscale"])
def test_what_is_written_is_read(tmp_path, target):
    """In every kind of file: the state that was converted is loaded again."""
    saved = checkpoints.convert(STATE, "torch", target)
    for suffix in (".json", ".safetensors", ".pt", ".pth", ".bin", ".JSON"):
        file = tmp_path / f"scaler{suffix}"
        write_file(file, saved.mapping)
        found = checkpoints.load(target, read_file(file), settings=saved.report.settings)
        assert (found.rule, found.state) == (saved.report.target.rule, saved.report.target.state)


def test_our_own_format_is_json(tmp_path):
    """Nested mappings and strings are no tensors."""
    saved = checkpoints.convert(STATE, "torch", "ampscale")
    write_file(tmp_path / "scaler.json", saved.mapping)
    assert read_file(tmp_path / "scaler.json") == saved.mapping
    assert (tmp_path / "scaler.json").read_text() == json.dumps(saved.mapping, indent=2) + "\n"
    with pytest.raises(ValueError, match=r"safetensors hold numbers and arrays of numbers alone, .* \['format', 'rule', 'sta"):
        write_file(tmp_path / "scaler.safetensors", saved.mapping)


def test_safetensors_agree_with_their_own_package(tmp_path):
    """What is written here is read there, and the other way round."""
    package = pytest.importorskip("safetensors.numpy")
    ours = {"a": np.float32([3]), "b": np.int32(4), "c": np.ones((2, 3), np.float16), "d": np.array(True), "e": 2.5, "f": 7}
    write_file(tmp_path / "ours.safetensors", ours)
    theirs = package.load_file(tmp_path / "ours.safetensors")
    assert {key: np.asarray(value).tolist() for key, value in theirs.items()} == {
        key: np.asarray(value).tolist() for key, value in ours.items()
    }
    package.save_file({"w": np.ones((4, 4)), "scale": np.float64([8.0])}, tmp_path / "theirs.safetensors", metadata={"by": "it"})
    assert read_file(tmp_path / "theirs.safetensors") == {"w": Unread("F64", (4, 4)), "scale": np.array([8.0])}


def test_tensors_of_a_model_are_left_in_the_file(tmp_path):
    """Also those of dtypes that NumPy has not; where a number is wanted, they are refused as an array of their shape would be."""
    header = {
        "w": {"dtype": "BF16", "shape": [1], "data_offsets": [4, 6]},
        "scale": ENTRY,
        "q": {"dtype": "F8_E4M3", "shape": [2], "data_offsets": [6, 8]},
    }
    file = tmp_path / "model.safetensors"
    file.write_bytes(safetensors(header, struct.pack("<f", 2.0) + b"\0\0\0\0"))
    with pytest.raises(ValueError, match=r"scale must have shape \(\) or \(1,\), got \(2,\)"):
        checkpoints.load("torch", {**STATE, "scale": Unread("F32", (2,))})
    with pytest.raises(ValueError, match=r"scale must be .* got Unread\(dtype='BF16', shape=\(1,\)\) of type Unread"):
        checkpoints.load("torch", {**STATE, "scale": Unread("BF16", (1,))})
    assert read_file(file) == {"w": Unread("BF16", (1,)), "scale": np.float32(2.0), "q": Unread("F8_E4M3", (2,))}
    file.write_bytes(safetensors({"a": {"dtype": "F8_E4M3", "shape": [2**63 - 1, *[1] * 31], "data_offsets": [0, 0]}}, b""))
    assert read_file(file) == {"a": Unread("F8_E4M3", (2**63 - 1, *[1] * 31))}


DAMAGED = {
    "truncated.json": (b'{"scale": 1', "Expecting"),
    "empty.json": (b"", "Expecting value"),
    "list.json": (b"[1, 2]", "must hold a mapping, got list"),
    "number.json": (b"3", "must hold a mapping, got int"),
    "twice.json": (b'{"a": {"scale": 1, "scale": 2}}', "each name must come once in an object, got 'scale' twice"),
    "nan.json": (b'{"scale": NaN}', "each number must be finite, got NaN"),
    "infinity.json": (b'{"scale": -Infinity}', "each number must be finite, got -Infinity"),
    "large.json": (b'{"scale": 1e999}', "each number must be one that float64 can hold, got 1e999"),
    "digits.json": (b'{"scale": ' + b"1" * 5000 + b"}", "limit"),
    "deep.json": (b'{"a":' * 100_000, "nested too deep"),
    "latin.json": (b'{"a": "\xe9"}', "utf-8"),
    "utf16.json": ('{"a": 1}'.encode("utf-16"), "utf-8"),
    "empty.safetensors": (b"", "a header of 0 bytes was announced in a file of 0"),
    "short.safetensors": (b"\1\0\0", "was announced in a file of 3"),
    "huge.safetensors": (struct.pack("<Q", 2**63) + b"{}", "a header of 9223372036854775808 bytes was announced in a file of 10"),
    "early_end.safetensors": (struct.pack("<Q", 6) + b"{}", "a header of 6 bytes was announced in a file of 10"),
    "cut.safetensors": (safetensors({"a": ENTRY})[:-2], "must fill the 2 bytes"),
    "no_json.safetensors": (safetensors(b"scale=1"), "Expecting value"),
    "a_list.safetensors": (safetensors([]), "the header must be a JSON object, got list"),
    "twice.safetensors": (safetensors(b'{"a": 1, "a": 2}'), "each name must come once"),
    "entry.safetensors": (safetensors({"a": [1]}), "a must have dtype, shape and data_offsets"),
    "more.safetensors": (safetensors({"a": {**ENTRY, "x": 1}}), "a must have dtype, shape and data_offsets"),
    "shape.safetensors": (safetensors({"a": {**ENTRY, "shape": [-1]}}), "a must have a str and two lists of sizes"),
    "size_of_axis.safetensors": (safetensors({"a": {**ENTRY, "shape": [2**63]}}), "a must have a str and two lists of sizes"),
    "axes.safetensors": (safetensors({"a": {**ENTRY, "shape": [1] * 33}}), "a must have a str and two lists of sizes"),
    "bool.safetensors": (safetensors({"a": {**ENTRY, "shape": [True]}}), "a must have a str and two lists of sizes"),
    "dtype.safetensors": (safetensors({"a": {**ENTRY, "dtype": 3}}), "a must have a str and two lists of sizes"),
    "offsets.safetensors": (safetensors({"a": {**ENTRY, "data_offsets": [0]}}), "a must have two data_offsets"),
    "size.safetensors": (safetensors({"a": {**ENTRY, "dtype": "F64"}}), "a must have as many bytes as its shape"),
    "beyond.safetensors": (safetensors({"a": {**ENTRY, "data_offsets": [4, 8]}}), "must fill the 4 bytes of data"),
    "gap.safetensors": (safetensors({"a": ENTRY}, b"\0" * 8), "must fill the 8 bytes of data"),
    "shared.safetensors": (safetensors({"a": ENTRY, "b": ENTRY}), "must fill the 4 bytes of data"),
    "backwards.safetensors": (safetensors({"a": {**ENTRY, "shape": [0], "data_offsets": [4, 0]}}), "a must have as many bytes"),
    "empty.pt": (b"", "torch.load"),
    "noise.pt": (bytes(range(256)), "torch.load"),
    "code.pt": (pickled({"scale": Runs()}), "torch.load"),
    "code.bin": (pickled(Runs()), "torch.load"),
}


def test_a_damaged_file_is_refused(tmp_path):
    """With its path, the kind that was wanted, and what is wrong with it; one that is not there is the system's error."""
    for name, (data, message) in DAMAGED.items():
        (tmp_path / name).write_bytes(data)
        with pytest.raises(ValueError, match=message) as caught:
            read_file(tmp_path / name)
        assert str(tmp_path / name) in str(caught.value)
    for suffix in (".json", ".safetensors", ".pt"):
        with pytest.raises(FileNotFoundError):
            read_file(tmp_path / f"none{suffix}")


@pytest.mark.parametrize(
    ("names", "advice"),
    [
        (["scaler.ckpt"], "mindspore.save_checkpoint"),
        (["scaler.h5", "scaler.keras"], "save the scaler's entries as JSON"),
        (["scaler.pkl", "scaler.pickle"], "a pickle runs code"),
        (["scaler.npy", "scaler.npz"], "it can be a pickle"),
        (["scaler.pdparams", "scaler.msgpack", "scaler.txt", "scaler"], "load it with its own library"),
    ],
)
def test_other_files_are_refused_with_advice(tmp_path, names, advice):
    """Nothing of them is looked at, and nothing is written to them."""
    for name in names:
        (tmp_path / name).write_bytes(pickled(Runs()))
        with pytest.raises(ValueError, match=f"must end in one of .*{advice}"):
            read_file(tmp_path / name)
        with pytest.raises(ValueError, match="must end in one of"):
            write_file(tmp_path / name, STATE)
        assert (tmp_path / name).read_bytes() == pickled(Runs())


@pytest.mark.parametrize("kind", ["zip", "old"])
def test_code_in_a_torch_file_is_not_run(tmp_path, kind):
    """Neither in the present kind nor in that before torch 1.6; the tensors beside it are not loaded either."""
    file = tmp_path / "scaler.pt"
    torch.save({"scale": torch.ones(1), "more": Runs()}, file, _use_new_zipfile_serialization=kind == "zip")
    with pytest.raises(ValueError, match=r"torch.load\(weights_only=True\) refuses it"):
        read_file(file)
    torch.save({"scale": torch.ones(1)}, file, _use_new_zipfile_serialization=kind == "zip")
    assert read_file(file) == {"scale": torch.ones(1)}


def test_without_torch_only_its_files_cannot_be_read(tmp_path, monkeypatch):
    """JSON and safetensors are read with the standard library and NumPy."""
    for suffix in (".json", ".safetensors", ".pt"):
        write_file(tmp_path / f"scaler{suffix}", STATE)
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "ampscale.checkpoints.files.torch", raising=False)
    assert read_file(tmp_path / "scaler.json") == STATE
    assert read_file(tmp_path / "scaler.safetensors") == STATE
    with pytest.raises(ImportError):
        read_file(tmp_path / "scaler.pt")


def whole_files():
    """A good file of each kind."""
    buffer = io.BytesIO()
    torch.save(STATE, buffer)
    tensors = {"scale": ENTRY, "w": {"dtype": "F32", "shape": [2, 2], "data_offsets": [4, 20]}}
    return {".json": json.dumps(STATE).encode(), ".safetensors": safetensors(tensors, bytes(20)), ".pt": buffer.getvalue()}


GOOD = whole_files()


@st.composite
def damaged(draw):
    """A good file that was cut, or some of whose bytes are others, are gone or came in."""
    suffix = draw(st.sampled_from(sorted(GOOD)))
    data = bytearray(GOOD[suffix])
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, len(data)))
        change = draw(st.sampled_from(["cut", "set", "remove", "insert"]))
        if change == "cut":
            del data[place:]
        else:
            data[place : place + (change != "insert")] = b"" if change == "remove" else bytes([draw(st.integers(0, 255))])
    return suffix, bytes(data)


@settings(max_examples=200)
@given(damaged() | st.tuples(st.sampled_from(sorted(GOOD)), st.binary(max_size=60)))
def test_whatever_is_in_a_file_it_is_read_or_refused(tmp_path_factory, case):
    """Nothing but a mapping or a ValueError comes of it, and nothing but a checkpoint or a ValueError of the mapping."""
    suffix, data = case
    file = tmp_path_factory.getbasetemp() / f"fuzzed{suffix}"
    file.write_bytes(data)
    try:
        mapping = read_file(file)
    except ValueError:
        return
    for name in checkpoints.FORMATS:
        try:
            checkpoints.load(name, mapping)
        except ValueError:
            continue


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=3)
    | st.sampled_from([np.ones(3), np.array("a"), torch.ones(0)]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text("ab.", max_size=3), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=150)
@given(st.data(), st.sampled_from(list(checkpoints.FORMATS)))
def test_whatever_is_in_a_mapping_it_is_read_or_refused(data, name):
    """Good entries with some others in their places, at the top or somewhere inside."""
    saved = checkpoints.convert(STATE, "torch", name)
    mapping = {**saved.mapping, **saved.report.settings}
    for key in data.draw(st.sets(st.sampled_from(sorted(mapping)), max_size=2)):
        mapping[key] = data.draw(values)
    if data.draw(st.booleans()):
        mapping = data.draw(values.map(lambda value: {"inner": mapping, "other": value}))
    try:
        found = checkpoints.load(name, mapping)
    except ValueError:
        return
    assert checkpoints.save(name, found).report.lossless
