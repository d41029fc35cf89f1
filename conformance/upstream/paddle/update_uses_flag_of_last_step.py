"""Call update() after unscale_() without step(), and again without either."""

from types import SimpleNamespace
from unittest import mock

import paddle
from paddle.amp import grad_scaler

# On the CPU the constructor disables the scaler, so the mock reports a GPU to it. All other code uses the CPU kernels.
gpu = SimpleNamespace(_expected_place=SimpleNamespace(is_gpu_place=lambda: True))
weight = paddle.create_parameter([1], "float32")
optimizer = paddle.optimizer.SGD(1.0, parameters=[weight])


def new_scaler():
    with paddle.amp.auto_cast(), mock.patch.object(grad_scaler, "_dygraph_tracer", return_value=gpu):
        return paddle.amp.GradScaler(init_loss_scaling=1024.0, incr_every_n_steps=1)


def unscale(scaler, gradient):
    weight.grad = paddle.to_tensor([gradient])
    scaler.unscale_(optimizer)


scaler = new_scaler()
unscale(scaler, float("inf"))
scaler.update()
print("scale after unscale_() of an infinite gradient and update():", scaler.state_dict()["scale"][0])

scaler = new_scaler()
unscale(scaler, float("inf"))
scaler.step(optimizer)
for _ in range(3):
    scaler.update()
print("scale after an overflow, step() and three calls of update():", scaler.state_dict()["scale"][0])
