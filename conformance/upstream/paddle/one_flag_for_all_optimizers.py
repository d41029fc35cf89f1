"""Unscale the gradients of two optimizers, of which only the first one has an infinite gradient, and step both."""

from types import SimpleNamespace
from unittest import mock

import paddle
from paddle.amp import grad_scaler

# On the CPU the constructor disables the scaler, so the mock reports a GPU to it. All other code uses the CPU kernels.
gpu = SimpleNamespace(_expected_place=SimpleNamespace(is_gpu_place=lambda: True))
with paddle.amp.auto_cast(), mock.patch.object(grad_scaler, "_dygraph_tracer", return_value=gpu):
    scaler = paddle.amp.GradScaler(init_loss_scaling=1024.0)

weights = [paddle.create_parameter([2], "float32", default_initializer=paddle.nn.initializer.Constant(1.0)) for _ in range(2)]
optimizers = [paddle.optimizer.SGD(1.0, parameters=[weight]) for weight in weights]
weights[0].grad = paddle.to_tensor([float("inf"), 1.0])
weights[1].grad = paddle.to_tensor([1024.0, 1024.0])
for optimizer in optimizers:
    scaler.unscale_(optimizer)
for optimizer in optimizers:
    scaler.step(optimizer)
scaler.update()
print("weights of the optimizer with the infinite gradient:", weights[0].tolist())
print("weights of the other optimizer:", weights[1].tolist())
print("scale:", scaler.state_dict()["scale"][0])
