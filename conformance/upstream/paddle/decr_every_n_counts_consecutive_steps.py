"""Run three steps with an infinite gradient, and one with a finite gradient after each."""

from types import SimpleNamespace
from unittest import mock

import paddle
from paddle.amp import grad_scaler

# On the CPU the constructor disables the scaler, so the mock reports a GPU to it. All other code uses the CPU kernels.
gpu = SimpleNamespace(_expected_place=SimpleNamespace(is_gpu_place=lambda: True))
with paddle.amp.auto_cast(), mock.patch.object(grad_scaler, "_dygraph_tracer", return_value=gpu):
    scaler = paddle.amp.GradScaler(init_loss_scaling=1024.0, decr_every_n_nan_or_inf=2)

weight = paddle.create_parameter([1], "float32")
optimizer = paddle.optimizer.SGD(1.0, parameters=[weight])
for gradient in (float("inf"), 1.0, float("inf"), 1.0, float("inf"), 1.0):
    weight.grad = paddle.to_tensor([gradient])
    scaler.step(optimizer)
    scaler.update()
    state = scaler.state_dict()
    print(f"gradient {gradient}: scale {state['scale'][0]}, decr_count {state['decr_count']}")
