"""
A float16 training loop on NumPy that computes its own gradients: `python examples/start_numpy.py`.

The loop fits y = x · w by least squares, with float32 parameters. The first scale is too large on purpose: the first steps
overflow and are skipped. Requires ampscale only.
"""

import numpy as np

import ampscale

rng = np.random.default_rng(0)
x = rng.standard_normal((64, 4)).astype(np.float16)
y = x.sum(1, dtype=np.float32)
w = np.zeros(4, np.float32)
rule = ampscale.LossScaleRule(init_scale=2.0**20, growth_interval=100)  # too large on purpose
state = rule.init()
skipped = 0

for _ in range(50):
    error = (x @ w.astype(np.float16)).astype(np.float32) - y  # forward pass in float16
    cotangent = ampscale.scale(2 * error / len(y), state.scale)  # gradient of the scaled loss with respect to x @ w
    with np.errstate(over="ignore", invalid="ignore"):  # an overflow is expected, and handled below
        scaled = x.T @ cotangent.astype(np.float16)  # backward pass in float16: gradient with respect to w
    gradient, finite = ampscale.unscale_and_check(scaled, state.scale, dtype="float32")
    if finite:  # no infinity or NaN in the gradient
        w -= 0.1 * gradient
    else:  # an overflow: skip this step
        skipped += 1
    state = rule.update(state, finite)  # a new state: halves the scale after an overflow

print(f"{50 - skipped} applied, {skipped} skipped, largest error {np.abs(w - 1).max():.4f}")
