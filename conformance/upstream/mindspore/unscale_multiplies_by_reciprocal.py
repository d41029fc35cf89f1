"""Unscale 5 by 3 in three dtypes."""

import mindspore
import numpy as np
from mindspore import Tensor, amp

scaler = amp.StaticLossScaler(scale_value=3)
for name in ("float16", "float32", "float64"):
    quotient = scaler.unscale(Tensor([5.0], getattr(mindspore, name))).asnumpy()[0]
    print(f"{name}: 5 unscaled by 3 is {quotient!s}, and 5 / 3 is {np.dtype(name).type(5.0) / np.dtype(name).type(3.0)!s}")
