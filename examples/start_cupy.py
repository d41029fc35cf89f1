"""
A float16 training loop on CuPy, or on NumPy if CuPy is not installed: `python examples/start_cupy.py`.

CuPy has no automatic differentiation, so the network brings its backward pass. The first scale is too large on purpose: the
first steps overflow and are skipped. Requires ampscale[cupy] or ampscale.
"""

from importlib.util import find_spec

import numpy as np

import ampscale

with ampscale.use_backend("cupy" if find_spec("cupy") else "numpy") as xp:  # NumPy runs the same code
    x = xp.astype(xp.reshape(xp.arange(256), (64, 4)) ** 2 % 17 / 8 - 1, xp.float16)
    y = xp.astype(xp.sum(x, axis=1), xp.float32)


def vjp(w, x, y):
    """Return the loss, and the function that computes the gradients of the scaled loss."""
    error = xp.astype(x @ xp.astype(w, xp.float16), xp.float32) - y  # forward pass in float16

    def pullback(scale):  # an array of the loss's shape
        cotangent = scale * 2 * error / len(y)  # gradient of the scaled loss with respect to x @ w
        return xp.astype(x.T @ xp.astype(cotangent, xp.float16), xp.float32)  # backward pass in float16

    return xp.mean(error**2), pullback


network = ampscale.Network(lambda *inputs: vjp(*inputs)[0], xp.zeros(4, dtype=xp.float32), vjp=vjp)
optimizer = ampscale.optimizers.SGD(network, learning_rate=0.1)
rule = ampscale.LossScaleRule(init_scale=2.0**20, growth_interval=100)  # too large on purpose
state = ampscale.init_train_state(network.params, optimizer, rule)
with np.errstate(over="ignore", invalid="ignore"):  # NumPy warns of an overflow, which the step handles
    for _ in range(50):
        state, report = ampscale.train_step(network, optimizer, rule, state, x, y)  # nothing is copied to the host

applied = int(state.applied)
print(f"{applied} applied, {50 - applied} skipped, largest error {float(xp.max(xp.abs(state.params - 1))):.4f}")
