"""Scale float16 zeros by 2**17, and unscale a float16 gradient that was scaled by 2**25."""

import mindspore
from mindspore import Tensor, amp


def scaler_with(scale):
    return amp.DynamicLossScaler(scale_value=scale, scale_factor=2, scale_window=2000)


zeros = Tensor([0.0, 0.0], mindspore.float16)
for scale in (2**15, 2**16, 2**17):
    print(f"float16 zeros scaled by {scale}:", scaler_with(scale).scale(zeros).asnumpy())

gradient = Tensor([32768.0], mindspore.float16)
for scale in (2**24, 2**25):
    print(f"float16 32768 unscaled by {scale}:", scaler_with(scale).unscale(gradient).asnumpy(), "expected", 32768 / scale)
