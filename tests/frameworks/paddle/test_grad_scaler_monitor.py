"""Monitors of Paddle's `GradScaler`, and copies of scalers within a step."""

import copy
import pickle

import numpy as np
import pytest
from frameworks.steps import GradientDescent, RecordingMonitor, scaler_at

INF = np.inf


@pytest.mark.clause("PADDLE-monitor")
@pytest.mark.parametrize("finite", [True, False])
@pytest.mark.parametrize("call", ["step", "minimize"])
@pytest.mark.parametrize("dynamic", [True, False])
def test_a_monitor_receives_each_step(call, finite, dynamic):
    """`begin` receives scaled gradients, and `end` unscaled ones; with a fixed scale, `step` itself calls `end`."""
    monitor = RecordingMonitor()
    optimizer = GradientDescent(np.float32([8 if finite else INF]), None)
    scaler = scaler_at(8.0, use_dynamic_loss_scaling=dynamic, monitor=monitor)
    loss = np.float32(2)
    scaler.scale(loss)
    getattr(scaler, call)(optimizer)
    if dynamic and call == "step":
        assert monitor.ends == []
        scaler.update()
    next_scale = (16.0 if finite else 4.0) if dynamic else 8.0
    assert monitor.losses == [loss]
    assert monitor.begins == [([[8.0 if finite else INF]], 8.0, optimizer, False, False, None)]
    assert monitor.ends == [(8.0, next_scale, finite, finite, [[1.0 if finite else INF]], optimizer)]
    assert monitor.changes == [None]  # arrays of NumPy have no version counters


@pytest.mark.clause("PADDLE-monitor")
@pytest.mark.parametrize("changes", [True, False])
def test_end_receives_whether_unscaled_gradients_were_changed(changes):
    """Tensors of torch have version counters."""
    torch, monitor = pytest.importorskip("torch"), RecordingMonitor()
    weight = torch.ones(1, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.5)
    scaler = scaler_at(8.0, monitor=monitor)
    scaler.scale(weight.sum()).backward()
    scaler.unscale_(optimizer)
    if changes:
        weight.grad.mul_(0.5)
    scaler.step(optimizer)
    scaler.update()
    assert monitor.changes == [changes]


@pytest.mark.clause("PADDLE-monitor")
def test_losses_without_a_graph_are_not_reported():
    """A function that an evaluation shares with the training can scale its loss. The reported losses are detached."""
    torch, monitor = pytest.importorskip("torch"), RecordingMonitor()
    scaler = scaler_at(8.0, monitor=monitor)
    scaler.scale(torch.ones(()))
    assert monitor.losses == []
    scaler.scale(torch.ones((), requires_grad=True))
    assert [loss.requires_grad for loss in monitor.losses] == [False]


@pytest.mark.clause("PADDLE-monitor", "PADDLE-abandon")
def test_end_is_called_for_optimizers_that_were_only_unscaled_but_not_for_abandoned_ones():
    """The update counts the flag of the first optimizer, which did not step."""
    monitor = RecordingMonitor()
    optimizers = [GradientDescent(np.float32([8])) for _ in range(2)]
    scaler = scaler_at(8.0, monitor=monitor)
    for optimizer in optimizers:
        scaler.unscale_(optimizer)
    scaler.abandon(optimizers[1])
    scaler.update()
    assert monitor.ends == [(8.0, 16.0, True, False, [[1.0]], optimizers[0])]


@pytest.mark.clause("PADDLE-monitor")
def test_an_error_in_begin_changes_nothing():
    """The step can be repeated."""
    monitor, optimizer = RecordingMonitor(), GradientDescent(np.float32([8]))
    scaler = scaler_at(8.0, monitor=monitor)
    monitor.begin = None
    with pytest.raises(TypeError, match="not callable"):
        scaler.step(optimizer)
    del monitor.begin
    assert scaler.step(optimizer)
    assert optimizer.gradients == [1.0]


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))], ids=["copy", "deepcopy", "pickle"]
)
def test_scalers_can_be_copied_within_a_step(copied):
    """A copy has the scale, the counts and the progress of the step, but no monitor. It is not abandoned with its original."""
    optimizer = GradientDescent(np.float32([8]))
    scaler = scaler_at(8.0, monitor=RecordingMonitor())
    scaler.step(optimizer)
    scaler.update()
    scaler.unscale_(optimizer)
    if copied is copy.copy:  # a shallow copy has the same optimizers
        duplicate, its_optimizer = copy.copy(scaler), optimizer
    else:
        duplicate, its_optimizer = copied((scaler, optimizer))
    assert repr(duplicate.state_dict()) == repr(scaler.state_dict())
    assert duplicate._monitor is None
    with pytest.raises(RuntimeError, match=r"^unscale_\(\) was already called( at .*\.py:[0-9]+)? since"):
        duplicate.unscale_(its_optimizer)
    scaler.abandon()
    duplicate.update()
