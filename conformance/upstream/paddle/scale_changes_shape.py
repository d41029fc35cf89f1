"""Scale losses of shape []."""

from types import SimpleNamespace
from unittest import mock

import paddle
from paddle.amp import grad_scaler

# On the CPU the constructor disables the scaler, so the mock reports a GPU to it. All other code uses the CPU kernels.
gpu = SimpleNamespace(_expected_place=SimpleNamespace(is_gpu_place=lambda: True))
with paddle.amp.auto_cast(), mock.patch.object(grad_scaler, "_dygraph_tracer", return_value=gpu):
    scaler = paddle.amp.GradScaler(init_loss_scaling=1024.0)

for dtype in ("float32", "float64"):
    loss = paddle.mean(paddle.ones([2, 3], dtype))
    scaled = scaler.scale(loss)
    print(f"loss: {loss.shape} {loss.dtype}, scaled: {scaled.shape} {scaled.dtype}")
