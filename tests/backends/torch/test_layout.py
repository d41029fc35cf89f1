"""Errors for tensors that cannot be written in place."""

import numpy as np
import pytest

import ampscale

torch = pytest.importorskip("torch", reason="needs torch")

LEAF = {"requires_grad": True}
with torch.inference_mode():
    INFERENCE = torch.ones(2)
EMPTY = torch.from_numpy(np.zeros((0, 3), np.float32))  # NumPy gives it strides of zero, like those of an expanded tensor
WRONG = {
    "expanded": (lambda: torch.ones(1).expand(4), ValueError, "memory for each value .* got an expanded tensor"),
    "leaf": (lambda: torch.ones(2, **LEAF), ValueError, "must be detached"),
    "view of a leaf": (lambda: torch.ones(2, **LEAF)[:1], ValueError, "must be detached"),
    "one of several views": (lambda: torch.ones(2, 2, **LEAF).clone().unbind()[0], ValueError, "must be detached"),
    "inference": (lambda: INFERENCE, ValueError, "must not be an inference tensor, which .* in torch.inference_mode"),
    "csr": (lambda: torch.eye(3).to_sparse_csr(), TypeError, "must be strided or torch.sparse_coo .* got torch.sparse_csr"),
}


@pytest.mark.clause("OVERFLOW-in-place-checked")
@pytest.mark.parametrize("function", [ampscale.unscale_and_check, ampscale.unscale_check_and_norm])
@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
def test_a_tensor_that_cannot_be_written_raises_before_any_is_written(wrong, function):
    """Torch itself would already have divided the first tensor."""
    make, error, message = WRONG[wrong]
    first, other = torch.full((3,), 8.0), make()
    for out in ([first, other], [first.clone(), other]):
        with pytest.raises(error, match=rf"^out\[1\] .*{message}"):
            function([first, other], 2.0, out=out)
        assert out[0].tolist() == [8.0, 8.0, 8.0]


@pytest.mark.clause("OVERFLOW-in-place-checked")
@pytest.mark.parametrize("function", [ampscale.unscale_and_check, ampscale.unscale_check_and_norm])
def test_a_zero_tensor_in_another_out_raises_before_any_is_written(function):
    """It has no memory. Torch itself would already have filled the first tensor."""
    first, other = torch.full((3,), 8.0), torch._efficientzerotensor((3,))
    with pytest.raises(ValueError, match=r"^out\[1\] must have memory for each value .* got a zero tensor"):
        function([torch.ones(3), torch.ones(3)], 2.0, out=[first, other])
    assert first.tolist() == [8.0, 8.0, 8.0]


def test_an_empty_tensor_can_be_written():
    assert ampscale.unscale_and_check([EMPTY, torch.ones(2)], 2.0, out=[EMPTY, torch.empty(2)])[1]


@pytest.mark.parametrize("function", [ampscale.unscale_and_check, ampscale.unscale_check_and_norm])
def test_an_inference_tensor_can_be_written_in_inference_mode(function):
    """A write to another tensor still increments its version, by which autograd detects writes."""
    other = torch.full((3,), 6.0)
    with torch.inference_mode():
        tree = [torch.full((2,), 6.0), other]
        _, finite, *_ = function(tree, 3.0, out=tree)
    assert finite
    assert [array.tolist() for array in tree] == [[2.0] * 2, [2.0] * 3]
    assert other._version == 1
