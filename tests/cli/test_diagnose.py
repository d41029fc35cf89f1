"""`ampscale diagnose`: gradients of .npz and .safetensors files, a verdict on them, and the scales that suit them."""

import io
import json
import zipfile

import ml_dtypes
import numpy as np
import pytest
from cli.runner import Runner
from safetensors.numpy import save_file

import ampscale
from ampscale.cli.diagnose import diagnose

RUNNER = Runner(diagnose)
SMALL = np.float32([2.0**-30, 2.0**-10, 0, 1])


def saved(path, **arrays):
    """Write arrays to a file, and return its path."""
    if path.suffix == ".safetensors":
        save_file(arrays, path)
    else:
        np.savez_compressed(path, **arrays)
    return path


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_statistics_are_those_of_measure(tmp_path, suffix):
    """All floating-point dtypes are read, in both formats; other arrays are ignored."""
    values = np.random.default_rng(0).normal(size=(3, 4)) * 2.0**-12
    arrays = {name: values.astype(name) for name in ("float16", "float32", "float64")} | {"int32": np.arange(3, dtype="i4")}
    if suffix == ".safetensors":
        arrays["bfloat16"] = values.astype(ml_dtypes.bfloat16)
    else:
        arrays |= {"complex64": values.astype("c8"), "fortran": np.asfortranarray(values), "big-endian": values.astype(">f4")}
    tensors = {row["name"]: row for row in RUNNER.report(saved(tmp_path / f"g{suffix}", **arrays))["tensors"]}
    assert set(tensors) == set(arrays) - {"int32"}
    for name, row in tensors.items():
        array = arrays[name] if name != "big-endian" else arrays[name].astype("f4")
        assert [row[column] for column in ampscale.diagnostics.TensorStatistics._fields] == ampscale.measure([array])[0].tolist()
        assert row["shape"] == [3, 4]
        assert row["dtype"] == {"fortran": "float64", "big-endian": "float32"}.get(name, name)


@pytest.mark.parametrize(
    ("values", "arguments", "verdict", "message"),
    [
        ([1] * 9 + [2.0**-20], [], "healthy", "float16 loses 0 % of them, and represents 10 % with fewer digits."),
        ([1, 2.0**-20], [], "underflow", "float16 represents 50 % of the values with fewer digits, most in w."),
        ([1, 2, 3], [], "healthy", "Healthy at scale 2^0: all values are finite. float16 loses 0 % of them."),
        ([1, np.nan, np.inf], [], "nan", "Not finite at scale 2^0: 1 NaN in w; if all values are finite without scaling, the"),
        ([1, np.inf, -np.inf], ["--scale", "2**16"], "overflow", "Not finite at scale 2^16: 2 infinities in w; if all values"),
        ([1, 1e6], [], "overflow", "Overflow at scale 2^0: w has values beyond the range of float16."),
        ([1, 1e-9], [], "underflow", "Underflow at scale 2^0: float16 loses 50 % of the values, most in w."),
        ([1, 1e-9], ["--share", "0.5"], "healthy", "float16 loses 50 % of them"),
        ([0, 0], [], "zero", "All values are zero at scale 2^0"),
        ([], [], "zero", "All values are zero"),
    ],
    ids=str,
)
def test_verdict_is_a_sentence(tmp_path, values, arguments, verdict, message):
    """The JSON also contains the verdict as one word, and a suggestion unless there is no non-zero value."""
    path = saved(tmp_path / "g.npz", w=np.array(values, "f4"))
    document = RUNNER.report(path, *arguments)
    assert document["verdict"] == verdict
    assert message in document["message"]
    assert document["message"][:60] in " ".join(RUNNER.printed(path, *arguments))
    assert (document["suggestion"] is None) == (verdict == "zero")


def test_suggested_scales_neither_overflow_nor_lose_values(tmp_path):
    """--scale is the factor by which the values in the file are already multiplied."""
    path = saved(tmp_path / "g.safetensors", w=SMALL, b=SMALL * 4)
    suggestion = RUNNER.report(path, "--share", "0", "--scale", "2**4")["suggestion"]
    low, high, recommended = (suggestion[name] / 16 for name in ("low", "high", "recommended"))
    assert (low, high) == (2.0**6, 2.0**12)
    for scale in (low, high, recommended):
        scaled = np.float16(np.concatenate([SMALL, SMALL * 4]) * scale)
        assert np.isfinite(scaled).all()
        assert np.count_nonzero(scaled) == 6
    lines = " ".join(RUNNER.printed(path, "--share", "0", "--scale", "2**4"))
    assert "Scales from 2^10 to 2^16 neither overflow nor lose more than 0 % of the values." in lines


def test_values_without_a_suitable_scale_are_reported(tmp_path):
    """The largest scale that does not overflow loses too many values."""
    path = saved(tmp_path / "g.npz", w=np.float64([2.0**-60, 2.0**10]))
    assert "No scale both avoids overflows (at most 2^4) and loses at most 1 % of the values" in " ".join(RUNNER.printed(path))


def test_table_fits_80_columns(tmp_path):
    """Long names and shapes are wrapped."""
    lines = RUNNER.printed(saved(tmp_path / "g.npz", **{"layers.0.attention.query.weight" * 3: np.zeros([1, 2] * 5, "f4")}))
    assert max(map(len, lines)) <= 80


def npz_of(header, data=b"", version=b"\x01\x00"):
    """Return the bytes of an .npz file with one array that has this header."""
    text, archive = header.encode(), io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("w.npy", b"\x93NUMPY" + version + len(text).to_bytes(2, "little") + text + data)
    return archive.getvalue()


def safetensors_of(dtype, size):
    """Return the bytes of a safetensors file whose only array has *size* elements by its header, and four bytes of data."""
    text = json.dumps({"w": {"dtype": dtype, "shape": [size], "data_offsets": [0, 4]}}).encode()
    return len(text).to_bytes(8, "little") + text + b"1234"


NO_FLOATS = "must contain an array of floating-point numbers, got none"
FLOATS = "{'descr': '<f4', 'fortran_order': False, 'shape': (%s,)}\n"


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("g.json", b"{}", "must end in .npz or .safetensors, got '.json'"),
        ("g.npz", b"no archive", "cannot be read: File is not a zip file"),
        ("g.npz", npz_of("x"), "w.npy must be an array in NumPy's format 1.0 or 2.0"),
        ("g.npz", npz_of(FLOATS % 10**15), "w.npy must have 4000000000000000 bytes for its shape (1000000000000000,), got fewer"),
        ("g.npz", npz_of(FLOATS % 3, b"12345678901"), "w.npy must have 12 bytes for its shape (3,), got fewer"),
        ("g.npz", npz_of(FLOATS % 3, b"1234567890123"), "w.npy must have 12 bytes for its shape (3,), got more"),
        ("g.npz", npz_of(FLOATS % -3), "w.npy must have a shape without negative lengths, got (-3,)"),
        ("g.npz", npz_of("x", version=b"\x03\x00"), "w.npy must be an array in NumPy's format 1.0 or 2.0: got format 3.0"),
        ("g.npz", npz_of(FLOATS.replace("<f4", "O") % 3, b"\x80\x04."), NO_FLOATS),
        ("g.safetensors", b"", "the file must have at least 8 bytes, got 0"),
        ("g.safetensors", safetensors_of("BF16", 3), "as many bytes as its shape (3,) requires, got data_offsets 0 and 4"),
        ("g.safetensors", safetensors_of("I32", 1), NO_FLOATS),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_damaged_file_has_a_message(tmp_path, name, data, message):
    """Nothing is unpickled, and no more memory is allocated than the file has bytes."""
    path = tmp_path / name
    path.write_bytes(data)
    assert message in RUNNER.error(path)


@pytest.mark.skipif(np.dtype(np.longdouble) == np.float64, reason="NumPy's long double is float64 on this machine")
def test_arrays_of_long_double_are_ignored(tmp_path):
    """NumPy calls them floating-point, but `measure` does not support them. The suffix can be in upper case."""
    path = tmp_path / "G.NPZ"
    path.write_bytes(saved(tmp_path / "g.npz", w=SMALL, long=SMALL.astype(np.longdouble)).read_bytes())
    assert [row["name"] for row in RUNNER.report(path)["tensors"]] == ["w"]


def test_array_above_the_size_limit_is_rejected(tmp_path, monkeypatch):
    """A compressed entry can be a thousand times smaller than its array."""
    monkeypatch.setattr("ampscale.cli.gradient_files.LARGEST_ARRAY", 1000)
    for suffix in (".npz", ".safetensors"):
        path = saved(tmp_path / f"g{suffix}", w=np.zeros(1000, "f4"))
        assert "must have at most 1000 bytes, got 4" in RUNNER.error(path)


@pytest.mark.parametrize("scale", ["0", "-1", "2**-2000"])
def test_scale_must_be_positive(tmp_path, scale):
    """--scale is the factor by which the gradients in the file are multiplied."""
    path = saved(tmp_path / "g.npz", w=SMALL)
    assert "--scale must be a positive, finite number" in RUNNER.error(path, "--scale", scale)


def test_share_must_not_be_nan(tmp_path):
    path = saved(tmp_path / "g.npz", w=SMALL)
    assert "share must be a number from 0 to 1, got nan" in RUNNER.error(path, "--share", "nan")
