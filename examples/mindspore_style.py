"""
MindFormers' training cell on NumPy, with float16 parameters: `python examples/mindspore_style.py`.

The cell averages two micro-batches per step, clips the mean, and updates a moving average of the parameters. The first scale is
too large on purpose: the first steps overflow and are skipped, which changes neither parameters nor moments, schedule or average.
Requires ampscale[numpy].
"""

from copy import deepcopy

import autograd.numpy as anp
import numpy as np

import ampscale

MICRO_BATCHES = 2


def loss_fn(params, x, y):
    """Return the loss, in float32, of a model that computes in float16."""
    hidden = anp.tanh(anp.dot(x.astype(np.float16), params["inner"]) + params["bias"])
    return anp.mean((anp.dot(hidden, params["outer"]).astype(np.float32) - y) ** 2)


def make_cell(seed):
    """Return a training cell before its first step."""
    random = np.random.default_rng(seed)
    params = {"inner": random.normal(size=(2, 32)), "bias": np.zeros(32), "outer": random.normal(size=32) / 8}
    network = ampscale.Network(loss_fn, {name: array.astype(np.float16) for name, array in params.items()})
    rates = [0.05 * 0.95**step for step in range(48)]  # one for each applied step
    return ampscale.MFTrainOneStepCell(
        network,
        ampscale.optimizers.AdamW(network, learning_rate=rates),  # stores float32 master weights
        use_clip_grad=True,
        max_grad_norm=1.0,
        gradient_accumulation_steps=MICRO_BATCHES,
        ema_decay=0.95,
        scale_sense=ampscale.DynamicLossScaleUpdateCell(loss_scale_value=2**24, scale_factor=2, scale_window=8),
    )


def run_state(cell):
    """Return everything that a run needs to continue: dicts and tuples of arrays and numbers, for any file format."""
    return {"params": cell.network.params, "optimizer": cell.optimizer.state, "cell": cell.state_dict()}


def load(cell, state):
    """Restore *cell*, its network and its optimizer from the result of `run_state`."""
    cell.network.params, cell.optimizer.state = state["params"], state["optimizer"]
    cell.load_state_dict(state["cell"])


def main():
    """Train for 48 steps, with a checkpoint between two micro-batches, and compare with a run that is resumed from it."""
    x = np.random.default_rng(1).normal(size=(48 * MICRO_BATCHES, 64, 2)).astype(np.float32)
    batches = list(zip(x, x[..., 0] * x[..., 1], strict=True))

    cell, steps = make_cell(seed=0), []
    for index, batch in enumerate(batches):
        if index == 41:
            checkpoint = deepcopy(run_state(cell))
        loss, overflow, _, learning_rate, _ = cell(*batch)
        if index % MICRO_BATCHES == MICRO_BATCHES - 1:
            steps.append((bool(overflow), float(loss), float(learning_rate)))

    resumed = make_cell(seed=2)
    load(resumed, checkpoint)
    for batch in batches[41:]:
        resumed(*batch)
    np.testing.assert_equal(run_state(resumed), run_state(cell))

    applied = [(loss, rate) for overflow, loss, rate in steps if not overflow]
    assert [rate for _, rate in applied] == [np.float32(0.05 * 0.95**step) for step in range(len(applied))]
    print(
        f"{len(applied)} applied, {len(steps) - len(applied)} skipped, "
        f"loss {applied[0][0]:.3f} to {applied[-1][0]:.3f}, resumed bit for bit"
    )


if __name__ == "__main__":
    main()
