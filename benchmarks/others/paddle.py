"""
Paddle's kernel that `GradScaler` calls. It replaces `GradScaler`, which disables itself without an accelerator.

The kernel works on copies of the gradients in Paddle's tensors, which Paddle restores.
"""

from collections.abc import Callable

import numpy as np
import paddle

Call = Callable[[], object]


def kernel(arrays: list[np.ndarray], scale: float) -> tuple[Call, Call]:
    """Return a function that calls `check_finite_and_unscale_` on the gradients, and a function that restores the gradients."""
    gradients = [paddle.to_tensor(array) for array in arrays]
    originals = [gradient.clone() for gradient in gradients]
    number = paddle.to_tensor([scale], dtype="float32")

    def restore() -> None:
        for gradient, original in zip(gradients, originals, strict=True):
            gradient.copy_(original, True)

    return lambda: paddle._C_ops.check_finite_and_unscale_(gradients, number), restore
