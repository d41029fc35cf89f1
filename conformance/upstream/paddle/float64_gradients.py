"""Train a float64 parameter with a finite gradient and with an infinite one."""

from types import SimpleNamespace
from unittest import mock

import paddle
from paddle.amp import grad_scaler

# On the CPU the constructor disables the scaler, so the mock reports a GPU to it. All other code uses the CPU kernels.
gpu = SimpleNamespace(_expected_place=SimpleNamespace(is_gpu_place=lambda: True))
with paddle.amp.auto_cast(), mock.patch.object(grad_scaler, "_dygraph_tracer", return_value=gpu):
    scaler = paddle.amp.GradScaler(init_loss_scaling=1024.0)

for dtype in ("float64", "float32"):
    for factor in (3.0, float("inf")):
        weight = paddle.create_parameter([1], dtype, default_initializer=paddle.nn.initializer.Constant(1.0))
        optimizer = paddle.optimizer.SGD(1.0, parameters=[weight])
        scaler.scale((weight * paddle.to_tensor([factor], dtype)).sum()).backward()
        scaler.unscale_(optimizer)
        gradient = float(weight.grad)
        scaler.step(optimizer)
        scaler.update()
        print(f"{dtype}: gradient {factor}, unscaled {gradient}, weight after step {float(weight)}")
