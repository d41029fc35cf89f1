"""Scale float16 values by 65536 and more, and unscale a float16 gradient by 2**25."""

import mindspore
from mindspore import Tensor, amp


def scaler_with(scale):
    return amp.DynamicLossScaler(scale_value=scale, scale_factor=2, scale_window=2000)


values = Tensor([0.0, 0.0009765625], mindspore.float16)
for scale in (2**15, 2**16, 2**17):
    print(f"float16 [0, 2**-10] scaled by {scale}:", scaler_with(scale).scale(values).asnumpy(), "expected", [0, scale / 1024])

gradient = Tensor([32768.0], mindspore.float16)
for scale in (2**24, 2**25):
    print(f"float16 32768 unscaled by {scale}:", scaler_with(scale).unscale(gradient).asnumpy(), "expected", 32768 / scale)
