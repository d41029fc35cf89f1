"""Tests of checkpoint files: damaged files are rejected, and no code from a file is run."""

import json
import pickle
import struct
import sys
import warnings
from zipfile import ZIP_DEFLATED, ZipFile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ampscale import checkpoints
from ampscale.checkpoints import read_file, write_file
from ampscale.checkpoints.files.safetensors import Unread

torch = pytest.importorskip("torch", reason="needs torch")

STATE = {"scale": 65536.0, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 2000, "_growth_tracker": 7}
ENTRY = {"dtype": "F32", "shape": [], "data_offsets": [0, 4]}


def safetensors(header, data=b"\0\0\0\0"):
    """Return the bytes of a safetensors file."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


class RunsCode:
    """Object whose pickle runs code when it is loaded."""

    def __reduce__(self):
        return (sys.exit, ("a pickle was run",))


@pytest.mark.parametrize("target", [name for name in checkpoints.FORMATS if name != "ampscale"])
def test_files_round_trip(tmp_path, target):
    """The converted state is loaded again from every type of file."""
    saved = checkpoints.convert(STATE, "torch", target)
    for suffix in (".json", ".safetensors", ".pt", ".pth", ".bin", ".JSON"):
        file = tmp_path / f"scaler{suffix}"
        write_file(file, saved.mapping)
        checkpoint = checkpoints.load(target, read_file(file), settings=saved.report.settings)
        assert (checkpoint.rule, checkpoint.state) == (saved.report.target.rule, saved.report.target.state)


def test_ampscale_format_requires_json(tmp_path):
    """Nested mappings and strings cannot be stored as tensors."""
    saved = checkpoints.convert(STATE, "torch", "ampscale")
    write_file(tmp_path / "scaler.json", saved.mapping)
    assert read_file(tmp_path / "scaler.json") == saved.mapping
    assert (tmp_path / "scaler.json").read_text() == json.dumps(saved.mapping, indent=2) + "\n"
    with pytest.raises(ValueError, match=r"a number or an array of numbers, got other types for \['format', 'rule', 'sta"):
        write_file(tmp_path / "scaler.safetensors", saved.mapping)


def test_safetensors_package_reads_and_writes_the_same_files(tmp_path):
    package = pytest.importorskip("safetensors.numpy")
    arrays = {"a": np.float32([3]), "b": np.int32(4), "c": np.ones((2, 3), np.float16), "d": np.array(True), "e": 2.5, "f": 7}
    write_file(tmp_path / "ours.safetensors", arrays)
    loaded = package.load_file(tmp_path / "ours.safetensors")
    assert {key: value.tolist() for key, value in loaded.items()} == {
        key: np.asarray(value).tolist() for key, value in arrays.items()
    }
    package.save_file({"w": np.ones((4, 4)), "scale": np.float64([8.0])}, tmp_path / "theirs.safetensors", metadata={"by": "it"})
    assert read_file(tmp_path / "theirs.safetensors") == {"w": Unread("F64", (4, 4)), "scale": np.array([8.0])}


def test_tensors_of_a_model_are_not_read(tmp_path):
    """An unread tensor is rejected as the value of a scale. Tensors of dtypes that NumPy lacks are unread, too."""
    header = {"w": {"dtype": "BF16", "shape": [1], "data_offsets": [4, 6]}, "scale": ENTRY}
    header["q"] = {"dtype": "F8_E4M3", "shape": [2], "data_offsets": [6, 8]}
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
    "list.json": (b"[1, 2]", "must contain a mapping, got list"),
    "number.json": (b"3", "must contain a mapping, got int"),
    "nan.json": (b'{"scale": NaN}', "each number must be finite, got NaN"),
    "large.json": (b'{"scale": 1e999}', "each number must be in the range of float64, got 1e999"),
    "latin.json": (b'{"a": "\xe9"}', "utf-8"),
    "utf16.json": ('{"a": 1}'.encode("utf-16"), "utf-8"),
    "empty.safetensors": (b"", "the file must have at least 8 bytes, got 0"),
    "short.safetensors": (b"\1\0\0", "the file must have at least 8 bytes, got 3"),
    "huge.safetensors": (struct.pack("<Q", 2**63) + b"{}", "into the 2 bytes after the length field .* got 9223372036854775808"),
    "early_end.safetensors": (struct.pack("<Q", 6) + b"{}", "into the 2 bytes after the length field .* got 6"),
    "cut.safetensors": (safetensors({"a": ENTRY})[:-2], "must fill the 2 bytes"),
    "no_json.safetensors": (safetensors(b"scale=1"), "Expecting value"),
    "a_list.safetensors": (safetensors([]), "the header must be a JSON object, got list"),
    "twice.safetensors": (safetensors(b'{"a": 1, "a": 2}'), "duplicate key in JSON object: 'a'"),
    "entry.safetensors": (safetensors({"a": [1]}), "a must have dtype, shape and data_offsets"),
    "more.safetensors": (safetensors({"a": {**ENTRY, "x": 1}}), "a must have dtype, shape and data_offsets"),
    "shape.safetensors": (safetensors({"a": {**ENTRY, "shape": [-1]}}), "lists of at most 32 ints"),
    "size_of_axis.safetensors": (safetensors({"a": {**ENTRY, "shape": [2**63]}}), "lists of at most 32 ints"),
    "axes.safetensors": (safetensors({"a": {**ENTRY, "shape": [1] * 33}}), "lists of at most 32 ints"),
    "bool.safetensors": (safetensors({"a": {**ENTRY, "shape": [True]}}), "lists of at most 32 ints"),
    "dtype.safetensors": (safetensors({"a": {**ENTRY, "dtype": 3}}), "a must have a str as dtype, and lists of at most 32 ints"),
    "offsets.safetensors": (safetensors({"a": {**ENTRY, "data_offsets": [0]}}), "a must have two data_offsets"),
    "size.safetensors": (safetensors({"a": {**ENTRY, "dtype": "F64"}}), "a must have as many bytes as its shape"),
    "beyond.safetensors": (safetensors({"a": {**ENTRY, "data_offsets": [4, 8]}}), "must fill the 4 bytes of data"),
    "gap.safetensors": (safetensors({"a": ENTRY}, b"\0" * 8), "must fill the 8 bytes of data"),
    "shared.safetensors": (safetensors({"a": ENTRY, "b": ENTRY}), "must fill the 4 bytes of data"),
    "backwards.safetensors": (safetensors({"a": {**ENTRY, "shape": [0], "data_offsets": [4, 0]}}), "got data_offsets 4 and 0"),
    "empty.pt": (b"", "torch.load"),
    "noise.pt": (bytes(range(256)), "torch.load"),
    "code.pt": (pickle.dumps({"scale": RunsCode()}), "torch.load"),
    "code.bin": (pickle.dumps(RunsCode()), "torch.load"),
    "bytes.bin": (pickle.dumps(bytearray(8), protocol=2), "must not contain a bytearray"),
}


def test_damaged_file_raises_a_value_error(tmp_path):
    """The error contains the path and the reason. A missing file raises a FileNotFoundError."""
    for name, (data, message) in DAMAGED.items():
        (tmp_path / name).write_bytes(data)
        with pytest.raises(ValueError, match=message) as error:
            read_file(tmp_path / name)
        assert str(tmp_path / name) in str(error.value)
    for suffix in (".json", ".safetensors", ".pt"):
        with pytest.raises(FileNotFoundError):
            read_file(tmp_path / f"none{suffix}")


@pytest.mark.parametrize(
    ("names", "advice"),
    [
        (["scaler.h5", "scaler.keras"], "save the scaler's entries as JSON"),
        (["scaler.pkl", "scaler.pickle"], "a pickle can run code"),
        (["scaler.npy", "scaler.npz"], "such a file can contain a pickle"),
        (["scaler.pdparams", "scaler.msgpack", "scaler.txt", "scaler"], "load the file with its own library"),
    ],
)
def test_other_suffixes_raise_an_error_with_a_remedy(tmp_path, names, advice):
    """Files with such a suffix are neither read nor written."""
    for name in names:
        (tmp_path / name).write_bytes(pickle.dumps(RunsCode()))
        with pytest.raises(ValueError, match=f"must end in one of .*{advice}"):
            read_file(tmp_path / name)
        with pytest.raises(ValueError, match=r"must end in one of .*'\.bin'\]$"):
            write_file(tmp_path / name, STATE)
        assert (tmp_path / name).read_bytes() == pickle.dumps(RunsCode())


def test_device_is_not_read(tmp_path):
    """Reading a device such as /dev/zero may never end."""
    (tmp_path / "device.pt").symlink_to("/dev/zero")
    with pytest.raises(ValueError, match=r"device.pt must be a file or a pipe, got a device$"):
        read_file(tmp_path / "device.pt")


def test_ckpt_is_read_as_a_torch_file(tmp_path):
    """Lightning saves with torch. A file of MindSpore raises an error with a remedy, and no .ckpt file is written."""
    file = tmp_path / "epoch=1-step=9.ckpt"
    torch.save({"MixedPrecision": STATE}, file)
    assert read_file(file) == {"MixedPrecision": STATE}
    with pytest.raises(ValueError, match=r"write \.pt instead"):
        write_file(file, STATE)
    file.write_bytes(b"\n\x12\n\x05scale\x12\t\x12\x07Float32")
    message = r"must be a valid \.ckpt file: .*; save files of MindSpore with mindspore.save_checkpoint"
    with pytest.raises(ValueError, match=message):
        read_file(file)


@pytest.mark.parametrize("zipped", [True, False])
def test_code_in_a_torch_file_is_not_run(tmp_path, zipped):
    """
    The file is rejected as a whole, in the zip format and in the format of torch before 1.6.

    torch warns about a newer pickle protocol before its error, which suffices.
    """
    file = tmp_path / "scaler.pt"
    torch.save({"scale": torch.ones(1), "more": RunsCode()}, file, _use_new_zipfile_serialization=zipped)
    with pytest.raises(ValueError, match=r"torch.load\(weights_only=True\) fails: Trying to load unsupported GLOBAL"):
        read_file(file)
    torch.save({"model": torch.nn.Linear(1, 1)}, file, _use_new_zipfile_serialization=zipped)
    with pytest.raises(ValueError, match=r"it contains a pickled torch\.nn\S+\.Linear, which is not loaded: load the file with"):
        read_file(file)
    torch.save({"scale": torch.ones(1)}, file, pickle_protocol=4, _use_new_zipfile_serialization=zipped)
    with warnings.catch_warnings(record=True, action="always") as caught, pytest.raises(ValueError, match="fails: Unsupported"):
        read_file(file)
    assert not caught
    torch.save({"scale": torch.ones(1)}, file, _use_new_zipfile_serialization=zipped)
    assert read_file(file) == {"scale": torch.ones(1)}


def test_only_torch_files_require_torch(tmp_path, monkeypatch):
    """
    JSON and safetensors are read with the standard library and NumPy.

    A .ckpt file can be torch's or MindSpore's, so its error has a remedy for both.
    """
    for suffix in (".json", ".safetensors", ".pt"):
        write_file(tmp_path / f"scaler{suffix}", STATE)
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "ampscale.checkpoints.files.torch", raising=False)
    assert read_file(tmp_path / "scaler.json") == STATE
    assert read_file(tmp_path / "scaler.safetensors") == STATE
    with pytest.raises(ImportError, match=r'ckpt file requires torch: pip install "ampscale\[torch\]"; save files of MindSpore'):
        read_file((tmp_path / "scaler.pt").rename(tmp_path / "scaler.ckpt"))


@pytest.mark.parametrize(
    ("suffix", "limit", "unit"),
    [("safetensors", "MOST_ENTRIES", "tensors"), ("pt", "MOST_ENTRIES", "entries"), ("pt", "LONGEST_PICKLE", "bytes")],
)
def test_file_beyond_a_limit_is_rejected(tmp_path, monkeypatch, suffix, limit, unit):
    """The limits apply to the tensors of a safetensors file, and to the entries and the pickles of a torch archive."""
    write_file(tmp_path / f"x.{suffix}", {"a": 1.0, "b": torch.ones(())})
    monkeypatch.setattr(f"ampscale.checkpoints.files.{suffix.replace('pt', 'torch')}.{limit}", 1)
    with pytest.raises(ValueError, match=rf"must .* at most 1 {unit}, got"):
        read_file(tmp_path / f"x.{suffix}")


def test_compressed_torch_file_is_rejected(tmp_path):
    """The size of a compressed file does not bound the memory that its entries take."""
    write_file(tmp_path / "x.pt", STATE)
    with ZipFile(tmp_path / "x.pt") as stored, ZipFile(tmp_path / "small.pt", "w", ZIP_DEFLATED) as compressed:
        for entry in stored.infolist():
            compressed.writestr(entry.filename, stored.read(entry))
    with pytest.raises(ValueError, match=r"each entry of the archive must be stored without compression, got 'archive/data.pkl'"):
        read_file(tmp_path / "small.pt")


def test_damaged_archive_is_rejected(tmp_path):
    """The mark at the start of each entry is wrong."""
    write_file(tmp_path / "x.pt", STATE)
    (tmp_path / "x.pt").write_bytes((tmp_path / "x.pt").read_bytes().replace(b"PK\3\4", b"PK\3\5"))
    with pytest.raises(ValueError, match="the archive must be an undamaged, unencrypted zip file: Bad magic number"):
        read_file(tmp_path / "x.pt")


arrays = st.sampled_from([np.ones(3), np.array("a"), torch.ones(0)])
values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3), arrays),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text("ab.", max_size=3), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=150)
@given(st.data(), st.sampled_from(list(checkpoints.FORMATS)))
def test_any_mapping_is_loaded_or_raises_a_value_error(data, name):
    """Some values of a valid mapping are replaced, at the top level or one level below. What is loaded can be saved again."""
    saved = checkpoints.convert(STATE, "torch", name)
    mapping = {**saved.mapping, **saved.report.settings}
    for key in data.draw(st.sets(st.sampled_from(sorted(mapping)), max_size=2)):
        mapping[key] = data.draw(values)
    if data.draw(st.booleans()):
        mapping = data.draw(values.map(lambda value: {"inner": mapping, "other": value}))
    try:
        checkpoint = checkpoints.load(name, mapping)
    except ValueError:
        return
    assert checkpoints.save(name, checkpoint).report.lossless
