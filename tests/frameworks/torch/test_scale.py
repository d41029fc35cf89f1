"""`GradScaler.scale`: valid arguments, results, and the gradients that flow through it."""

from collections import OrderedDict, namedtuple

import numpy as np
import pytest
import torch
from frameworks.torch.loops import INF, bits, run_step

from ampscale.frameworks.torch import GradScaler

Outputs = namedtuple("Outputs", ["loss", "logits"])
KEPT = [torch.float32, torch.float64, torch.complex64, torch.complex128]


@pytest.mark.clause("TORCH-scale", "TORCH-scale-dtype")
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, *KEPT], ids=str)
def test_scale_returns_a_new_tensor_of_the_same_shape(dtype):
    """16-bit values become float32, since the product can exceed float16; the argument is unchanged, and gradients flow."""
    for shape in ((), (1,), (2, 3), (0,)):
        outputs = torch.full(shape, 100, dtype=dtype, requires_grad=True)
        result = GradScaler(init_scale=1024.0).scale(outputs)
        assert bits(result) == bits(torch.full(shape, 102400, dtype=dtype if dtype in KEPT else torch.float32))
        assert bits(outputs) == bits(torch.full(shape, 100, dtype=dtype))
        result.backward(torch.ones_like(result))
        assert bits(outputs.grad) == bits(torch.full(shape, 1024.0, dtype=dtype))


@pytest.mark.clause("TORCH-scale", "TORCH-arithmetic")
def test_the_product_equals_that_of_torch():
    """Products are equal bit for bit, even for scales that are not powers of two."""
    for dtype in KEPT:
        outputs = torch.linspace(-3, 3, 17, dtype=dtype)
        for scale in (2.0**16, 3.0, 0.1):
            assert bits(GradScaler(init_scale=scale).scale(outputs)) == bits(torch.amp.GradScaler("cpu", scale).scale(outputs))


@pytest.mark.clause("TORCH-scale-containers")
def test_containers_keep_their_types():
    """Containers may be nested. An iterator becomes a list."""
    one, two, eight, sixteen = (torch.tensor(value) for value in (1.0, 2.0, 8.0, 16.0))
    pairs = [
        ([one, torch.ones(2)], [eight, torch.full((2,), 8.0)]),
        ((one,), (eight,)),
        (Outputs(one, [two]), Outputs(eight, [sixteen])),
        ({"loss": one, "parts": (two,)}, {"loss": eight, "parts": (sixteen,)}),
        (OrderedDict(loss=one), OrderedDict(loss=eight)),
        ([], []),
        (iter((one, two)), [eight, sixteen]),
    ]
    for outputs, scaled in pairs:
        result = GradScaler(init_scale=8.0).scale(outputs)
        assert type(result) is type(scaled)
        assert bits(result) == bits(scaled)


@pytest.mark.clause("TORCH-scale-argument")
@pytest.mark.parametrize(
    ("outputs", "path", "actual"),
    [
        (None, "outputs", "None"),
        (1.0, "outputs", "float"),
        ("loss", "outputs", "str"),
        (np.ones(()), "outputs", "ndarray"),
        ({torch.ones(())}, "outputs", "set"),
        ([torch.ones(()), 1], r"outputs\[1\]", "int"),
        ({"loss": [torch.ones(2, dtype=torch.int64)]}, r"outputs\['loss'\]\[0\]", "torch.int64"),
        (torch.ones((), dtype=torch.bool), "outputs", "torch.bool"),
    ],
)
def test_only_floating_point_tensors_are_scaled(outputs, path, actual):
    """Anything else raises a TypeError with path and type, and does not count as the first scaled tensor."""
    scaler = GradScaler()
    with pytest.raises(TypeError, match=rf"^{path} must be .*{actual}"):
        scaler.scale(outputs)
    with pytest.raises(RuntimeError, match=r"must be called after scale\(\)"):
        scaler.update(2.0)


@pytest.mark.clause("TORCH-scale-live")
@pytest.mark.parametrize("outputs", [lambda loss: loss, lambda loss: [loss]], ids=["tensor", "list"])
@pytest.mark.parametrize(
    "update",
    [
        lambda scaler: run_step(scaler, INF),
        lambda scaler: scaler.update(4.0),
        lambda scaler: scaler.load_state_dict(scaler.state_dict()),
    ],
    ids=["overflow", "new scale", "load_state_dict"],
)
def test_a_backward_pass_after_an_update_of_the_scale_raises(outputs, update):
    """The gradients would be divided by a different scale from the one that multiplied the loss."""
    scaler = GradScaler(init_scale=8.0)
    parameter = torch.ones(1, requires_grad=True)
    scaled = scaler.scale(outputs((parameter * parameter).sum()))
    update(scaler)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        (scaled[0] if isinstance(scaled, list) else scaled).backward()
