"""
Paddle: the kernel that its `GradScaler` calls. The scaler itself turns itself off where there is no accelerator.

Its tensors are copies of the same gradients, and are filled anew by Paddle.
"""

from collections.abc import Callable

import numpy as np
import paddle

Call = Callable[[], object]


def kernel(arrays: list[np.ndarray], scale: float) -> tuple[Call, Call]:
    """`check_finite_and_unscale_` on these gradients, and what puts them back."""
    gradients = [paddle.to_tensor(array) for array in arrays]
    kept = [gradient.clone() for gradient in gradients]
    number = paddle.to_tensor([scale], dtype="float32")

    def refill() -> None:
        for gradient, old in zip(gradients, kept, strict=True):
            gradient.copy_(old, True)

    return lambda: paddle._C_ops.check_finite_and_unscale_(gradients, number), refill
