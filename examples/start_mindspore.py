"""
A float16 training loop on NumPy with MindSpore's training cell: `python examples/start_mindspore.py`.

The first scale is too large on purpose: the first steps overflow and are skipped. Requires ampscale[numpy].
"""

import autograd.numpy as anp
import numpy as np

import ampscale
from ampscale.mindspore import DynamicLossScaleUpdateCell, TrainOneStepWithLossScaleCell


def loss_fn(w, x, y):
    predictions = anp.dot(x, w.astype(np.float16))  # compute in float16
    return anp.mean((predictions.astype(np.float32) - y) ** 2)  # the loss is float32


network = ampscale.Network(loss_fn, np.zeros(4, np.float32))  # the parameters are float32
optimizer = ampscale.optimizers.SGD(network, learning_rate=0.1)
update_cell = DynamicLossScaleUpdateCell(loss_scale_value=2**20, scale_factor=2, scale_window=2000)  # too large on purpose
cell = TrainOneStepWithLossScaleCell(network, optimizer, scale_sense=update_cell)
x = np.random.default_rng(0).standard_normal((64, 4)).astype(np.float16)
y, skipped = x.sum(1, dtype=np.float32), 0

with np.errstate(over="ignore", invalid="ignore"):  # NumPy warns of an overflow, which the cell handles
    for _ in range(50):
        loss, overflow, loss_scale = cell(x, y)
        skipped += bool(overflow)

print(f"{50 - skipped} applied, {skipped} skipped, loss {loss:.4f}, scale {loss_scale}")
