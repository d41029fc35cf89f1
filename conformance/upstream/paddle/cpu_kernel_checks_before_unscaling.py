"""Apply a gradient that becomes infinite when it is divided by a scale below 1."""

from types import SimpleNamespace
from unittest import mock

import paddle
from paddle.amp import grad_scaler

# On the CPU the constructor disables the scaler, so the mock reports a GPU to it. All other code uses the CPU kernels.
gpu = SimpleNamespace(_expected_place=SimpleNamespace(is_gpu_place=lambda: True))
with paddle.amp.auto_cast(), mock.patch.object(grad_scaler, "_dygraph_tracer", return_value=gpu):
    scaler = paddle.amp.GradScaler(init_loss_scaling=0.25)

weight = paddle.create_parameter([1], "float32")
optimizer = paddle.optimizer.SGD(1.0, parameters=[weight])
weight.grad = paddle.to_tensor([3e38])
scaler.unscale_(optimizer)
print("unscaled gradient:", float(weight.grad))
scaler.step(optimizer)
scaler.update()
print("weight after the step:", float(weight), "scale:", scaler.state_dict()["scale"][0])
