"""
One training run, written once: `python examples/any_backend.py torch` (numpy, torch, jax, cupy).

It fits three weights in float32 and prints each step: overflows, scales and losses are the same on every library.
"""

import sys

import ampscale


def loss_fn(w, x, y):
    """Return the mean squared error, by operators that all libraries have."""
    return (((x * w).sum(1) - y) ** 2).mean()


def train(backend, steps=12):
    """Return the loss, `applied` and the scale of each step, as Python values."""
    with ampscale.use_backend(backend) as xp:
        x = xp.asarray([[1.0, 0.0, 0.5], [0.0, 1.0, 0.5], [1.0, 1.0, 0.0], [0.5, 0.5, 1.0]], dtype=xp.float32)
        y = xp.asarray([1.0, 2.0, 3.0, 4.0], dtype=xp.float32)
        network = ampscale.Network(loss_fn, xp.zeros(3, dtype=xp.float32))
        optimizer = ampscale.optimizers.Momentum(network, learning_rate=0.125, momentum=0.5)
        rule = ampscale.LossScaleRule(init_scale=2.0**127, growth_interval=4)  # too large on purpose
        state = ampscale.init_train_state(network.params, optimizer, rule)
        reports = []
        for _ in range(steps):
            state, report = ampscale.train_step(network, optimizer, rule, state, x, y)
            reports.append((float(report.loss), bool(report.applied), float(report.scale)))
    return reports


if __name__ == "__main__":
    for loss, applied, scale in train(sys.argv[1] if len(sys.argv) > 1 else "numpy"):
        print(f"loss {loss:.6f}  {'applied' if applied else 'skipped'}  scale {scale:g}")
