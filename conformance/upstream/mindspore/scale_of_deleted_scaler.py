"""Unscale lists of one and of two tensors by new scalers, after many with another scale were deleted."""

from mindspore import Tensor, amp

gradient = Tensor([1024.0])


def unscaled(scale):
    """Return the first quotient of lists with one and two tensors."""
    scaler = amp.DynamicLossScaler(scale, 2, 1000)
    return [float(scaler.unscale([gradient] * length)[0].asnumpy()[0]) for length in (1, 2)]


print("scale 2:", unscaled(2.0))
for _ in range(100):
    unscaled(2.0)
results = [unscaled(8.0) for _ in range(300)]
print("scale 8, in order of size:", *sorted({quotient for result in results for quotient in result}))
