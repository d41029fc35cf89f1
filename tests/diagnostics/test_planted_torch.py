"""Real float16 trainings with torch's `GradScaler` and a planted fault: the verdict names the fault."""

import math

import pytest

from ampscale.diagnostics import Limits, Monitor, Verdict

torch = pytest.importorskip("torch")

CLIPPED, TWICE = Verdict.CLIPPED_BEFORE_UNSCALING, Verdict.UNSCALED_TWICE
FORGOTTEN = Verdict.FORGOTTEN_ZERO_GRAD
USUAL = {Verdict.HEALTHY, Verdict.SEARCHING, Verdict.OCCASIONAL}  # verdicts of every run with a dynamic scale


def train(
    steps=40,
    *,
    init_scale=2.0**16,
    growth_interval=2000,
    zero=lambda _: True,
    clip=None,
    inputs=None,
    gradients=None,
    unscaled=None,
    loss_factor=1.0,
    **options,
):
    """
    Train a network under autocast, and return the number of steps with each verdict.

    ``inputs(step, x)``, ``gradients(step, params, scaler)`` and, after `unscale_`, ``unscaled(step, params, scaler)`` plant a
    fault: they change the inputs or the gradients in place. A step calls `zero_grad` if ``zero(step)`` returns True.
    """
    from ampscale.torch import GradScaler

    torch.set_num_threads(1)
    torch.manual_seed(0)
    layers = [torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1)]
    model = torch.nn.Sequential(*layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    monitor = Monitor(model.named_parameters(), on_stall=lambda _: None, **options)
    scaler = GradScaler("cpu", init_scale=init_scale, growth_interval=growth_interval, monitor=monitor)
    for step in range(steps):
        x = torch.randn(32, 16)
        if inputs is not None:
            inputs(step, x)
        if zero(step):
            optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            outputs = model(x)
        loss = (outputs.float() - x.sum(1, keepdim=True)).square().mean() * loss_factor
        scaler.scale(loss).backward()
        if gradients is not None:
            gradients(step, list(model.parameters()), scaler)
        if unscaled is not None:
            scaler.unscale_(optimizer)
            unscaled(step, list(model.parameters()), scaler)
        if clip is not None:
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        scaler.step(optimizer)
        scaler.update()
    return monitor.verdicts


def put(value, every, *indices):
    """Return a function that writes *value* into an element of the gradients at *indices*, or of all, in each *every*-th step."""

    def write(step, params, _scaler):
        if step % every == every - 1:
            for index in indices or range(len(params)):
                params[index].grad.flatten()[0] = value

    return write


def put_nan(step, x):
    if step % 5 == 4:
        x[0, 0] = math.nan


def divide(divisor):
    """Return a function that divides all gradients by ``divisor(step, scaler)``."""
    return lambda step, params, scaler: [param.grad.div_(divisor(step, scaler)) for param in params]


divide_by_scale = divide(lambda _step, scaler: scaler.get_scale())
average_over_8_ranks = divide(lambda _step, _scaler: 8)
divide_by_tokens = divide(lambda step, _scaler: 1000 + 370 * step % 3100)


def clip_and_divide_sometimes(step, params, scaler):
    torch.nn.utils.clip_grad_norm_(params, 1000.0)  # writes the gradients, which are smaller
    if step % 2:
        divide_by_scale(step, params, scaler)


def clip_to_scaled_limit(_step, params, scaler):
    torch.nn.utils.clip_grad_value_(params, 0.001 * scaler.get_scale())


def clip_to_scaled_norm(norm_type, limit):
    return lambda _step, params, scaler: torch.nn.utils.clip_grad_norm_(params, limit * scaler.get_scale(), norm_type=norm_type)


def clip_scaled(norm_type, limit=1.0):
    return lambda _step, params, _scaler: torch.nn.utils.clip_grad_norm_(params, limit, norm_type=norm_type)


def clip_scaled_values(_step, params, _scaler):
    torch.nn.utils.clip_grad_value_(params, 0.5)


def clip_scaled_values_without_counting(_step, params, _scaler):
    for param in params:
        param.grad.data.clamp_(-0.5, 0.5)


def fill_with_nan(step, params, _scaler):
    for param in params if step % 5 == 4 else ():
        param.grad.data.fill_(math.nan)  # not counted as a change by the loop


HEALTHY = {
    "default": {},
    "growing": {"growth_interval": 10, "steps": 150},
    "clipping": {"clip": 1.0},
    "searching": {"init_scale": 2.0**40},
    "measured": {"measure_every": 1},
    "scale 1": {"init_scale": 1.0, "measure_every": 1},
    "averaged": {"gradients": average_over_8_ranks},
    "averaged over 8 ranks at scale 8": {"gradients": average_over_8_ranks, "init_scale": 8.0},
    "divided by tokens": {"gradients": divide_by_tokens, "loss_factor": 300.0, "init_scale": 64.0},
    "clipped to a scaled limit": {"gradients": clip_to_scaled_limit, "init_scale": 2.0**12},
    "clipped to a scaled norm": {"gradients": clip_to_scaled_norm(2, 0.037)},
    "clipped to a scaled maximum": {"gradients": clip_to_scaled_norm(math.inf, 0.01), "init_scale": 2.0**12},
    "averaged over as many tokens as the scale": {
        "gradients": lambda _, params, __: params[0].grad.div_(1024),
        "init_scale": 2.0**9,
        "growth_interval": 6,
    },
}


@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_trainings_raise_no_alarm(name):
    """Some loops average, divide or clip the gradients themselves, before they are unscaled."""
    assert set(train(**HEALTHY[name])) <= USUAL


def test_sparse_gradients_are_measured_with_paddles_scaler():
    """The scaler passes sparse tensors to the monitor as they are, and torch has no maximum of a sparse tensor."""
    from ampscale.paddle import GradScaler

    table = torch.nn.Embedding(8, 4, sparse=True)
    optimizer, monitor = torch.optim.SGD(table.parameters(), lr=0.01), Monitor(measure_every=1)
    scaler = GradScaler(init_loss_scaling=8.0, monitor=monitor)
    scaler.scale(table(torch.tensor([1, 1, 2])).sum()).backward()
    scaler.minimize(optimizer, None)
    assert monitor.verdicts == {Verdict.HEALTHY: 1}


# For each fault: how to plant it, its verdict, and the smallest number of steps with this verdict.
FAULTS = {
    "nan-input": ({"inputs": put_nan}, Verdict.FORWARD, 8),
    "large-loss": ({"loss_factor": 1e38, "init_scale": 1.0}, Verdict.FORWARD, 40),
    "nan": ({"gradients": put(math.nan, 5, 2)}, Verdict.NO_SCALE_HELPS, 6),
    "nan-at-all-scales": ({"gradients": put(math.nan, 5, 2), "init_scale": 2.0**12, "steps": 150}, Verdict.NO_SCALE_HELPS, 30),
    "all-nan": ({"gradients": fill_with_nan, "init_scale": 2.0**12}, Verdict.NO_SCALE_HELPS, 6),
    "infinities": ({"gradients": put(math.inf, 1)}, Verdict.NO_SCALE_HELPS, 30),
    "one-tensor": ({"gradients": put(math.inf, 5, 2)}, Verdict.ONE_TENSOR, 4),
    "zero_grad": ({"zero": lambda _: False, "init_scale": 2.0**24}, FORGOTTEN, 36),
    "zero_grad-sometimes": ({"zero": lambda step: step % 10 == 0, "growth_interval": 4, "steps": 100}, FORGOTTEN, 8),
    "zero_grad-without-overflow": ({"zero": lambda _: False, "init_scale": 2.0**10}, FORGOTTEN, 37),
    "zero_grad-every-other": ({"zero": lambda step: step % 2 == 1, "growth_interval": 4, "steps": 100}, FORGOTTEN, 4),
    "divided": ({"gradients": divide_by_scale}, TWICE, 36),
    "divided-in-the-last": ({"gradients": lambda step, params, scaler: divide_by_scale(step, params[-1:], scaler)}, TWICE, 36),
    "divided-sometimes-after-clipping": ({"unscaled": clip_and_divide_sometimes}, TWICE, 15),
    "divided-after-unscaling": ({"unscaled": divide_by_scale}, TWICE, 36),
    "divided-without-overflow": ({"unscaled": divide_by_scale, "init_scale": 2.0**10}, TWICE, 38),
    "clipped": ({"gradients": clip_scaled(2)}, CLIPPED, 35),
    "clipped-tightly": ({"gradients": clip_scaled(2, 1e-3), "init_scale": 2.0**12, "measure_every": 1}, CLIPPED, 35),
    "clipped-L1": ({"gradients": clip_scaled(1)}, CLIPPED, 35),
    "clipped-L3": ({"gradients": clip_scaled(3)}, CLIPPED, 35),
    "clipped-maximum": ({"gradients": clip_scaled(math.inf)}, CLIPPED, 35),
    "clipped-values": ({"gradients": clip_scaled_values}, CLIPPED, 35),
    "clipped-values-uncounted": ({"gradients": clip_scaled_values_without_counting, "measure_every": 1}, CLIPPED, 35),
    "underflow": ({"init_scale": 2.0**-10, "loss_factor": 1e-4, "measure_every": 1}, Verdict.UNDERFLOW, 40),
    "stalled": ({"loss_factor": 1e3, "clip": 1.0, "limits": Limits(stall_after=3)}, Verdict.STALLED, 5),
}


@pytest.mark.parametrize("name", FAULTS)
def test_planted_faults_are_named(name):
    """The other verdicts are those of every run with a dynamic scale."""
    options, verdict, min_count = FAULTS[name]
    verdicts = train(**options)
    assert verdicts[verdict] >= min_count
    assert set(verdicts) <= USUAL | {verdict}
