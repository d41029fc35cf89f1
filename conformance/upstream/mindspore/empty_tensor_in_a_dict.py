"""Scale a tensor without elements, in a list and in a dict."""

import numpy as np
from mindspore import Tensor, amp

scaler = amp.DynamicLossScaler(1024.0, 2, 1000)
empty = Tensor(np.zeros((0, 3), np.float32))
for name, tree in (("list", [empty]), ("dict", {"weight": empty})):
    try:
        scaled = scaler.scale(tree)
        print(f"{name}: shape {scaled['weight' if name == 'dict' else 0].shape}")
    except RuntimeError as error:
        print(f"{name}: RuntimeError: {next(line for line in str(error).splitlines() if 'memcpy' in line)}")
