"""`GradScaler.unscale_`: the division, the check, sparse gradients, and float16 gradients."""

import warnings

import pytest
import torch
from frameworks.torch.loops import INF, NAN, bits, optimizer_with, parameters_of, scaler_at

from ampscale.frameworks.torch import GradScaler


def sparse(indices, values, rows=4):
    """Return the sparse gradient of an embedding with rows of two columns."""
    return torch.sparse_coo_tensor([indices], torch.tensor([[value, 0.0] for value in values]), (rows, 2), check_invariants=True)


@pytest.mark.clause("TORCH-unscale", "SCALING-unscale-divides")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_gradients_are_divided_in_place(dtype):
    """Tensors, dtypes and layouts are unchanged in every group; a parameter without a gradient is skipped."""
    for layout in (torch.clone, lambda grad: grad.repeat(2)[::2], lambda grad: grad[:, None].clone()):
        gradient = layout(torch.tensor([5, 7], dtype=dtype))
        other = torch.tensor([5.0])
        expected = (gradient / torch.tensor(3.0)).clone()
        optimizer = optimizer_with(gradient, None, other)
        assert scaler_at(3.0).unscale_(optimizer) is None
        assert [parameter.grad for parameter in parameters_of(optimizer)][1] is None
        assert parameters_of(optimizer)[0].grad is gradient
        assert bits([gradient, other]) == bits([expected, torch.tensor([5.0]) / 3])


@pytest.mark.clause("TORCH-unscale")
def test_real_and_imaginary_parts_are_divided_separately():
    """The quotient of torch's complex division differs in the last bit."""
    gradient = torch.tensor([5 + 7j])
    scaler_at(3.0).unscale_(optimizer_with(gradient))
    assert bits(torch.view_as_real(gradient)) == bits(torch.tensor([[5.0, 7.0]]) / 3)


@pytest.mark.clause("TORCH-unscale")
def test_gradients_of_a_gradient_penalty_are_unscaled():
    """The division is not recorded by autograd."""
    parameter = torch.ones(1, requires_grad=True)
    scaler, optimizer = GradScaler(init_scale=8.0), torch.optim.SGD([parameter])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of create_graph once in a process
        scaler.scale((parameter**3).sum()).backward(create_graph=True)
    grad_fn = parameter.grad.grad_fn
    scaler.unscale_(optimizer)
    assert grad_fn is not None
    assert (parameter.grad.item(), parameter.grad.grad_fn) == (3.0, grad_fn)


@pytest.mark.clause("TORCH-unscale", "OVERFLOW-both-sides")
def test_overflows_are_detected_before_and_after_the_division():
    """The other gradients of the optimizer are finite. No parameter changes."""
    overflows = [
        (torch.tensor([1.0, NAN]), 8.0),
        (torch.tensor([-INF], dtype=torch.float64), 8.0),
        (torch.tensor([INF], dtype=torch.bfloat16), 8.0),
        (torch.tensor([3e38]), 0.25),
        (torch.tensor([8.0]), 2.0**-126),
    ]
    for gradient, scale in overflows:
        optimizer = optimizer_with(torch.tensor([1e-30]), gradient, None, torch.tensor([1e-30], dtype=torch.float64))
        assert scaler_at(scale).step(optimizer) is False
        assert all((parameter == 0).all() for parameter in parameters_of(optimizer))


@pytest.mark.clause("TORCH-float16")
@pytest.mark.parametrize(
    ("call", "make"), [("unscale_", torch.Tensor.half), ("step", lambda grad: grad.half().to_sparse())], ids=["dense", "sparse"]
)
def test_float16_gradients_raise_before_any_change(call, make):
    """No gradient is divided, and none counts as unscaled."""
    gradients = [torch.tensor([8.0]), sparse([0, 0], [8.0, 8.0]), make(torch.tensor([8.0]))]
    optimizer, scaler = optimizer_with(*gradients), scaler_at(8.0)
    with pytest.raises(ValueError, match=r"must not be float16, got one of shape \(1,\).*autocast"):
        getattr(scaler, call)(optimizer)
    assert (gradients[0].item(), parameters_of(optimizer)[1].grad) == (8.0, gradients[1])
    assert not gradients[1].is_coalesced()
    parameters_of(optimizer)[2].grad = None
    getattr(scaler, call)(optimizer)
    assert gradients[0].item() == 1.0


@pytest.mark.clause("TORCH-float16")
def test_an_expanded_gradient_raises_before_any_is_divided():
    """No gradient counts as unscaled."""
    optimizer = optimizer_with(torch.tensor([8.0]), torch.ones(2))
    scaler = scaler_at(8.0)
    first, second = parameters_of(optimizer)
    second.grad = torch.ones(1).expand(2)
    for _ in range(2):
        with pytest.raises(ValueError, match="got an expanded tensor"):
            scaler.unscale_(optimizer)
    assert first.grad.item() == 8.0


@pytest.mark.clause("TORCH-sparse")
def test_sparse_gradients_are_coalesced_and_unscaled():
    """A coalesced gradient replaces one with duplicates; a gradient that is coalesced stays the same tensor."""
    with_duplicates = sparse([1, 3, 1], [8.0, 16.0, 24.0])
    coalesced = sparse([0, 2], [8.0, 16.0]).coalesce()
    optimizer = optimizer_with(with_duplicates, coalesced)
    scaler_at(8.0).unscale_(optimizer)
    first, second = (parameter.grad for parameter in parameters_of(optimizer))
    assert first.is_coalesced()
    assert bits([first.indices(), first.values()]) == bits([torch.tensor([[1, 3]]), torch.tensor([[4.0, 0.0], [2.0, 0.0]])])
    assert second is coalesced
    assert bits(second.values()) == bits(torch.tensor([[1.0, 0.0], [2.0, 0.0]]))


@pytest.mark.clause("TORCH-sparse", "OVERFLOW-both-sides")
def test_an_overflow_of_summed_duplicates_is_detected():
    """Each duplicate is finite."""
    for scale in (1.0, 8.0, 0.5):
        optimizer = optimizer_with(sparse([1, 1], [3e38, 3e38]))
        assert scaler_at(scale).step(optimizer) is False
        assert (parameters_of(optimizer)[0] == 0).all()
