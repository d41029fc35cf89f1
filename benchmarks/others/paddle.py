"""
Paddle's kernel below `GradScaler`, which disables itself without an accelerator.

Paddle's tensors are copies of the same gradients, and Paddle restores them.
"""

from collections.abc import Callable

import numpy as np
import paddle

Call = Callable[[], object]


def kernel(arrays: list[np.ndarray], scale: float) -> tuple[Call, Call]:
    """Return functions that call `check_finite_and_unscale_` on the gradients, and that restore them."""
    gradients = [paddle.to_tensor(array) for array in arrays]
    originals = [gradient.clone() for gradient in gradients]
    number = paddle.to_tensor([scale], dtype="float32")

    def refill() -> None:
        for gradient, original in zip(gradients, originals, strict=True):
            gradient.copy_(original, True)

    return lambda: paddle._C_ops.check_finite_and_unscale_(gradients, number), refill
