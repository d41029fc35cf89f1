"""Tests of shapes and gradients."""

from itertools import pairwise

import numpy as np
import pytest
import shapes
from gradients import ALIGNMENT, PERIOD, Gradients, baselines


@pytest.mark.parametrize(
    ("shape", "arrays", "values", "first", "last"),
    [(shapes.RESNET, 161, 25_557_032, (64, 3, 7, 7), (1000,)), (shapes.GPT2, 148, 124_439_808, (50257, 768), (768,))],
    ids=["resnet50", "gpt2"],
)
def test_models_have_the_published_parameters(shape, arrays, values, first, last):
    """The numbers of arrays and values, and the first and the last shape, are those of the models."""
    assert (len(shape.arrays), shape.values) == (arrays, values)
    assert (shape.arrays[0], shape.arrays[-1]) == (first, last)


def test_names_describe_shapes():
    """A name like "100x1M" has the numbers of arrays and values."""
    for shape in shapes.SHAPES:
        if "x" in shape.name:
            count, size = (int(part.replace("M", "000000")) for part in shape.name.split("x"))
            assert shape.arrays == ((size,),) * count
            assert shape.description.replace(",", "").replace(" ", "") == shape.name


DTYPES = ("float32", "float16", "bfloat16", "float64", "complex64")
SOME = shapes.Shape("some", "some", ((3, 5), (64,), (1000, 3), ()))


@pytest.mark.parametrize("dtype", DTYPES)
def test_gradients_are_aligned_and_do_not_overlap(dtype):
    """The arrays have the shapes and the dtype of the row. The torch tensors share their memory."""
    torch = pytest.importorskip("torch")
    gradients = Gradients(SOME, dtype)
    assert [array.shape for array in gradients.arrays] == list(SOME.arrays)
    assert {array.dtype.name for array in gradients.arrays} == {dtype}
    assert all(array.ctypes.data % ALIGNMENT == 0 for array in gradients.arrays)
    ends = [(array.ctypes.data, array.ctypes.data + array.nbytes) for array in gradients.arrays]
    assert all(end <= start for (_, end), (start, _) in pairwise(ends))
    assert [tensor.data_ptr() for tensor in gradients.as_torch()] == [array.ctypes.data for array in gradients.arrays]
    assert {tensor.dtype for tensor in gradients.as_torch()} == {getattr(torch, dtype)}


@pytest.mark.parametrize("dtype", DTYPES)
def test_gradients_are_finite_and_varied(dtype):
    """Values are not zero and differ in size, and fewer than one in a hundred is subnormal after unscaling."""
    ml_dtypes = pytest.importorskip("ml_dtypes")
    (array,) = Gradients(shapes.equal("", "", 1, PERIOD), dtype).arrays
    values = np.abs(array).astype(np.float64)
    assert np.isfinite(values).all()
    assert len(np.unique(values)) > 3_000
    assert values.min() > 0
    sizes = values[: PERIOD // 1000 * 1000].reshape(-1, 1000).mean(axis=1)  # the deviation changes every thousand values
    assert sizes.max() / sizes.min() > 40
    tiny = float(ml_dtypes.finfo(array.dtype).tiny)
    assert (values / 2**16 < tiny).mean() < (0.01 if dtype == "float16" else 1e-9)


def test_refill_restores_the_gradients():
    """All values are restored, even in arrays that are longer than one period of the values. Arrays have different values."""
    gradients = Gradients(shapes.Shape("", "", ((PERIOD,), (PERIOD + 7,), (5,))), "float32")
    before = [array.copy() for array in gradients.arrays]
    for array in gradients.arrays:
        array /= 65536
    gradients.refill()
    assert all(np.array_equal(array, old) for array, old in zip(gradients.arrays, before, strict=True))
    assert not np.array_equal(before[0][:1000], before[1][:1000])


@pytest.mark.parametrize("dtype", DTYPES)
def test_baselines_leave_the_gradients_unchanged(dtype):
    """Baselines process all bytes and change no value, so no refill is required after them."""
    gradients = Gradients(shapes.equal("", "", 3, 1000), dtype)
    before = [array.tobytes() for array in gradients.arrays]
    writing, reading = baselines(gradients, writes=True), baselines(gradients, writes=False)
    assert (set(writing), set(reading)) == ({"multiply"}, {"max", "dot"})
    with np.errstate(all="ignore"):
        for run in (*writing.values(), *reading.values()):
            run()
    assert [array.tobytes() for array in gradients.arrays] == before
    assert sum(array.nbytes for array in gradients.flat()) == sum(array.nbytes for array in gradients.arrays)
