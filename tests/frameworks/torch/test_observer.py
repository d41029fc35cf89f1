"""Monitors of torch's `GradScaler`: what they receive, and the detection of stale and modified gradients."""

import copy
import gc
import pickle
import weakref

import pytest
import torch
from frameworks.steps import RecordingMonitor
from frameworks.torch.loops import bits

from ampscale.frameworks.torch import GradScaler

INF = float("inf")


class Loop:
    """Training loop with a monitor. `zero` resets gradients to None ("none") or zero ("zeros"), or does nothing ("forgotten")."""

    def __init__(self, make=lambda params: torch.optim.SGD(params, lr=0.25), zeroing="none", **settings):
        self.params = [torch.ones(2, requires_grad=True), torch.ones((), requires_grad=True)]
        self.monitor, self.zeroing, self.optimizer = RecordingMonitor(), zeroing, make(self.params)
        self.scaler = GradScaler("cpu", **{"init_scale": 8.0, "growth_interval": 2, **settings}, monitor=self.monitor)

    def loss(self):
        """Return a loss in which the first parameter is used twice."""
        return (self.params[0] * 3 + self.params[0]).sum() + 2 * self.params[1]

    def zero(self):
        if self.zeroing != "forgotten":
            self.optimizer.zero_grad(set_to_none=self.zeroing == "none")

    def finish(self):
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.zero()

    def flags(self, iteration):
        """Run *iteration* four times, and return the flags `stale` and `modified` of each iteration."""
        for _ in range(4):
            iteration(self)
        return [(begin.stale, begin.modified) for begin in self.monitor.begins]


def numbers(record):
    """Return the values of a record, tensors as Python numbers."""
    return [value.item() if isinstance(value, torch.Tensor) else value for value in record]


@pytest.mark.clause("TORCH-monitor")
@pytest.mark.parametrize("factor", [1.0, INF])
@pytest.mark.parametrize("fused", [False, True])
def test_a_monitor_receives_each_step(factor, fused):
    """`begin` receives scaled gradients, and `end` unscaled ones. Values that are on the device stay there."""
    loop = Loop(lambda params: torch.optim.SGD(params, lr=0.25, fused=fused))
    for value in (1.0, factor):
        loop.scaler.scale(loop.loss() * value).backward()
        loop.finish()
    finite = factor == 1.0
    begin, end = loop.monitor.begins[1], loop.monitor.ends[1]
    scaled = [[32.0, 32.0], 16.0] if finite else [[INF, INF], INF]
    assert numbers(begin) == [scaled, 8.0, loop.optimizer, False, False, None]
    unscaled = [[4.0, 4.0], 2.0] if finite else [[INF, INF], INF]
    assert numbers(end) == [8.0, 16.0 if finite else 4.0, finite, finite, unscaled, loop.optimizer]
    assert isinstance(end.finite, torch.Tensor) == isinstance(end.applied, torch.Tensor) == fused
    assert (loop.monitor.losses[0].item(), loop.monitor.losses[0].requires_grad) == (10.0, False)


@pytest.mark.clause("TORCH-monitor")
def test_a_monitor_changes_no_number_and_adds_no_host_synchronization(monkeypatch):
    """The run with a monitor equals the run without one, bit for bit."""

    def run(monitor):
        reads.clear()
        weight = torch.nn.Parameter(torch.tensor([1.0, 2.0]))
        optimizer = torch.optim.AdamW([weight], lr=0.1)
        scaler = GradScaler("cpu", growth_interval=2, monitor=monitor)
        for factor in (1.0, INF, 1.0, 1.0, 1e36, 1.0):
            scaler.scale((weight * weight).sum() * factor).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
        return len(reads), bits(weight), scaler.state_dict()

    def recorded_bool(tensor):
        reads.append(tensor)
        return original_bool(tensor)

    reads, original_bool = [], torch.Tensor.__bool__
    monkeypatch.setattr(torch.Tensor, "__bool__", recorded_bool)
    assert run(RecordingMonitor()) == run(None)


@pytest.mark.clause("TORCH-monitor")
def test_losses_without_a_graph_are_not_reported():
    """A function that an evaluation shares with the training can scale its loss."""
    loop = Loop()
    with torch.no_grad():
        loop.scaler.scale(loop.loss())
    assert not loop.monitor.losses


@pytest.mark.clause("TORCH-monitor")
def test_stored_scales_do_not_change_later():
    """A monitor may read the scales of many steps at once."""
    loop = Loop(growth_interval=1)
    for _ in range(3):
        loop.scaler.scale(loop.loss()).backward()
        loop.finish()
    assert [begin.scale.item() for begin in loop.monitor.begins] == [8.0, 16.0, 32.0]
    assert [(end.scale.item(), end.next_scale.item()) for end in loop.monitor.ends] == [(8.0, 16.0), (16.0, 32.0), (32.0, 64.0)]


@pytest.mark.clause("TORCH-monitor", "TORCH-no-gradients")
def test_end_is_not_called_for_optimizers_without_gradients_or_abandoned_ones():
    """`begin` is called for all four optimizers, and `end` for the two others, even if they did not step."""
    loop = Loop()
    others = [torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=0.1) for _ in range(3)]
    unscaled, abandoned, without_gradients = others
    loop.scaler.scale(loop.loss()).backward()
    for optimizer in (unscaled, abandoned):
        optimizer.param_groups[0]["params"][0].grad = torch.ones(1)
    for optimizer in others:
        loop.scaler.unscale_(optimizer)
    loop.scaler.abandon(abandoned)
    loop.finish()
    assert [begin.owner for begin in loop.monitor.begins] == [unscaled, abandoned, without_gradients, loop.optimizer]
    ends = [(end.owner, end.applied, numbers(end)[2]) for end in loop.monitor.ends]
    assert ends == [(unscaled, False, True), (loop.optimizer, True, True)]


@pytest.mark.clause("TORCH-monitor")
def test_sparse_gradients_are_reported_as_their_values():
    """Values with the same index are added first, as the scaler does. They are neither stale nor modified."""
    table = torch.nn.Embedding(4, 1, sparse=True)
    monitor = RecordingMonitor()
    optimizer = torch.optim.SGD(table.parameters(), lr=0.1)
    scaler = GradScaler("cpu", init_scale=8.0, monitor=monitor)
    for _ in range(2):
        scaler.scale(table(torch.tensor([1, 1, 2])).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
    assert monitor.begins[0].gradients == [[[16.0], [8.0]]]
    assert monitor.ends[0].gradients == [[[2.0], [1.0]]]
    assert not any(begin.stale or begin.modified for begin in monitor.begins)


@pytest.mark.clause("TORCH-monitor")
def test_an_error_in_begin_changes_nothing():
    """The step can be repeated, and its gradients are unscaled once."""
    loop = Loop()
    loop.scaler.scale(loop.loss()).backward()
    loop.monitor.begin = None
    with pytest.raises(TypeError, match="not callable"):
        loop.scaler.step(loop.optimizer)
    del loop.monitor.begin
    loop.finish()
    assert loop.monitor.ends[0].gradients == [[4.0, 4.0], 2.0]


def plain(loop):
    loop.scaler.scale(loop.loss()).backward()
    loop.finish()


def accumulated(loop):
    for _ in range(3):
        loop.scaler.scale(loop.loss() / 3).backward()
    loop.finish()


def summed(loop):
    """Scale two losses, and run one backward pass for both."""
    (loop.scaler.scale(loop.loss()) + loop.scaler.scale(loop.loss())).backward()
    loop.finish()


def other_loss(loop):
    """Scale another loss, which does not depend on the parameters."""
    loop.scaler.scale(torch.ones(1, requires_grad=True).sum()).backward()
    plain(loop)


def clipped(loop):
    """Clip after `unscale_`, as documented."""
    loop.scaler.scale(loop.loss()).backward()
    loop.scaler.unscale_(loop.optimizer)
    torch.nn.utils.clip_grad_norm_(loop.params, 0.5)
    loop.finish()


def zeroed_first(loop):
    """Reset the gradients before the backward pass, and not after the update."""
    zeroing = loop.zeroing
    loop.zeroing = "forgotten"
    loop.optimizer.zero_grad(set_to_none=zeroing == "none")
    plain(loop)
    loop.zeroing = zeroing


def zeroed_after_another_loss(loop):
    """Reset the gradients before the backward pass, after another, unscaled loss has written into them."""
    loop.loss().backward()
    zeroed_first(loop)


def zeroed_before_update(loop):
    """Reset the gradients between step and update."""
    loop.scaler.scale(loop.loss()).backward()
    loop.scaler.step(loop.optimizer)
    loop.zero()
    loop.scaler.update()


def checkpointed(loop):
    """Recompute the loss in a nested backward pass."""
    loss = torch.utils.checkpoint.checkpoint(lambda x: loop.loss() * x, torch.ones((), requires_grad=True), use_reentrant=True)
    loop.scaler.scale(loss + loop.params[1]).backward()
    loop.finish()


def reset_by_hand(loop):
    plain(loop)
    for param in loop.params:
        param.grad = None


def dropped(loop):
    """Reset the gradients after unscaling, so the step has none."""
    loop.scaler.scale(loop.loss()).backward()
    loop.scaler.unscale_(loop.optimizer)
    loop.optimizer.zero_grad()
    loop.finish()


def replaced(loop):
    """Assign the gradients that `torch.autograd.grad` returns, which are not accumulated."""
    gradients = torch.autograd.grad(loop.scaler.scale(loop.loss()), loop.params)
    for param, gradient in zip(loop.params, gradients, strict=True):
        param.grad = gradient
    loop.finish()


def graph_kept(loop):
    """Create the graph of the gradients, so that they are accumulated out of place."""
    loop.scaler.scale(loop.loss()).backward(create_graph=True)
    loop.finish()


STALE_IF_FORGOTTEN = [plain, accumulated, summed, other_loss, clipped, checkpointed]
OTHERS = [zeroed_first, zeroed_after_another_loss, zeroed_before_update, reset_by_hand, dropped, graph_kept, replaced]


@pytest.mark.clause("TORCH-monitor")
@pytest.mark.filterwarnings("ignore:Using backward")
@pytest.mark.parametrize("zeroing", ["none", "zeros"])
@pytest.mark.parametrize("iteration", [*STALE_IF_FORGOTTEN, *OTHERS])
def test_correct_loops_are_neither_stale_nor_modified(iteration, zeroing):
    """The loops include those of torch's documentation, and several ways to reset the gradients."""
    assert Loop(zeroing=zeroing).flags(iteration) == 4 * [(False, False)]


@pytest.mark.clause("TORCH-monitor")
@pytest.mark.parametrize("iteration", STALE_IF_FORGOTTEN)
def test_forgotten_zero_grad_is_reported(iteration):
    """`stale` is set from the second iteration on."""
    assert Loop(zeroing="forgotten").flags(iteration) == [(False, False), *3 * [(True, False)]]


@pytest.mark.clause("TORCH-monitor")
@pytest.mark.parametrize("iteration", [plain, accumulated, clipped])
def test_gradients_set_to_zero_without_counting_are_reported_at_most_once(iteration):
    """A write through `Tensor.data` increments no version counter; from the third iteration on, values are checked as well."""

    def iteration_and_zero(loop):
        iteration(loop)
        for param in loop.params:
            param.grad.data.zero_()

    loop = Loop(lambda params: torch.optim.SGD([{"params": [param]} for param in params], lr=0.25), zeroing="forgotten")
    assert loop.flags(iteration_and_zero) == [(False, False), (True, False), *2 * [(False, False)]]
    loop.monitor.begins.clear()
    assert loop.flags(iteration) == [(False, False), *3 * [(True, False)]]


@pytest.mark.clause("TORCH-monitor")
def test_gradients_overwritten_without_counting_are_reported_at_most_once():
    """A loop copies gradients of a 16-bit model into those of float32 parameters, through `Tensor.data`."""
    factors = iter([1.0, 2.0, 3.0, 4.0])

    def iteration(loop):
        loop.scaler.scale(loop.loss())
        factor = next(factors)
        for param in loop.params:
            param.grad.data.fill_(factor)
        loop.finish()

    loop = Loop(zeroing="forgotten")
    for param in loop.params:
        param.grad = torch.zeros_like(param)
    assert loop.flags(iteration) == [(False, False), (True, False), *2 * [(False, False)]]


@pytest.mark.clause("TORCH-monitor")
def test_an_optimizer_can_be_deleted_during_a_backward_pass():
    """Torch has already read the list of hooks, and still calls the hook of the deleted optimizer."""
    parameter, monitor = torch.ones((), requires_grad=True), RecordingMonitor()
    optimizers = [torch.optim.SGD([parameter], lr=0.5)]
    scaler = GradScaler("cpu", init_scale=8.0, monitor=monitor)

    def delete(_):
        optimizers.clear()
        gc.collect()

    scaler.scale(2 * parameter).backward()
    handle = parameter.register_post_accumulate_grad_hook(delete)
    deleted = weakref.ref(optimizers[0])
    scaler.step(optimizers[0])  # registers the hook of the monitor
    scaler.update()
    monitor.begins.clear()  # the records of the monitor refer to the optimizer
    monitor.ends.clear()
    scaler.scale(2 * parameter).backward()
    handle.remove()
    assert deleted() is None
    assert parameter.grad == 2 + 16


@pytest.mark.clause("TORCH-monitor")
def test_a_skipped_step_does_not_hide_a_forgotten_zero_grad():
    """The second step overflows."""
    loop, factors = Loop(zeroing="forgotten"), iter([1.0, INF, 1.0, 1.0])

    def iteration(loop):
        loop.scaler.scale(loop.loss() * next(factors)).backward()
        loop.finish()

    assert [stale for stale, _ in loop.flags(iteration)] == [False, True, True, True]


@pytest.mark.clause("TORCH-monitor")
def test_a_second_step_without_a_backward_pass_is_stale():
    loop = Loop(zeroing="forgotten")
    plain(loop)
    loop.finish()
    assert [begin.stale for begin in loop.monitor.begins] == [False, True]


@pytest.mark.clause("TORCH-monitor")
def test_abandoned_gradients_that_are_not_reset_are_reported():
    """The gradients of the first abandoned step are reset. Those of the second are not, and the last step adds to them."""
    loop = Loop(zeroing="forgotten")
    plain(loop)
    for _ in range(2):
        loop.optimizer.zero_grad()
        loop.scaler.scale(loop.loss()).backward()
        loop.scaler.unscale_(loop.optimizer)
        loop.scaler.abandon()
    plain(loop)
    assert [begin.stale for begin in loop.monitor.begins] == [False, False, False, True]


CHANGES = {
    "clipped norm": lambda params: torch.nn.utils.clip_grad_norm_(params, 1e9),
    "clipped values": lambda params: torch.nn.utils.clip_grad_value_(params, 1.0),
    "multiplied": lambda params: [param.grad.mul_(0.5) for param in params],
}


@pytest.mark.clause("TORCH-monitor")
@pytest.mark.parametrize("zeroing", ["none", "zeros"])
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("unscales", [False, True])
def test_changes_before_unscaling_are_reported(change, zeroing, unscales):
    """`modified` is set from the second iteration on, since the first one installs the hook that reads the version counter."""

    def iteration(loop):
        loop.scaler.scale(loop.loss()).backward()
        CHANGES[change](loop.params)
        if unscales:
            loop.scaler.unscale_(loop.optimizer)
        loop.finish()

    assert Loop(zeroing=zeroing).flags(iteration) == [(False, False), *3 * [(False, True)]]


@pytest.mark.clause("TORCH-monitor", "TORCH-no-gradients")
def test_a_first_step_without_gradients_does_not_prevent_later_reports():
    """The second step is the first one with gradients, so it installs the hook; changes are detected from the third on."""
    loop = Loop()
    loop.scaler.scale(torch.ones(()))
    loop.finish()

    def iteration(loop):
        loop.scaler.scale(loop.loss()).backward()
        CHANGES["multiplied"](loop.params)
        loop.finish()

    assert loop.flags(iteration) == [(False, False), (False, False), *3 * [(False, True)]]


@pytest.mark.clause("TORCH-monitor")
@pytest.mark.parametrize("init_scale", [8.0, 0.5, 3.0])
@pytest.mark.parametrize("change", CHANGES)
def test_changes_after_unscaling_are_reported(change, init_scale):
    """The division by the scale is no change, although it writes twice at some scales. The first gradient is unchanged."""
    loop = Loop(init_scale=init_scale)
    for changes in (False, True):
        loop.scaler.scale(loop.loss()).backward()
        loop.scaler.unscale_(loop.optimizer)
        if changes:
            CHANGES[change](loop.params[1:])
        loop.finish()
    assert loop.monitor.changes == [False, True]


@pytest.fixture
def _process_group(tmp_path):
    store = torch.distributed.FileStore(str(tmp_path / "store"), 1)
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.clause("TORCH-monitor")
@pytest.mark.usefixtures("_process_group")
@pytest.mark.parametrize("zeroing", ["none", "zeros", "forgotten"])
@pytest.mark.parametrize("clips", [False, True])
@pytest.mark.parametrize("parallelism", ["fsdp2", "ddp views", "ddp copies"])
def test_writes_of_ddp_and_fsdp2_are_not_reported(zeroing, clips, parallelism):
    """Clipped and forgotten gradients are reported with DDP only, since version counters do not show all writes of FSDP2."""
    network = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
    if parallelism != "fsdp2":
        model = torch.nn.parallel.DistributedDataParallel(network, gradient_as_bucket_view=parallelism == "ddp views")
    else:
        model = torch.distributed.fsdp.fully_shard(network, mesh=torch.distributed.init_device_mesh("cpu", (1,)))
    loop = Loop(lambda _: torch.optim.SGD(model.parameters(), lr=0.01), zeroing=zeroing)

    def iteration(loop):
        loop.scaler.scale(model(torch.ones(2, 3)).sum()).backward()
        if clips:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        loop.finish()

    first, *others = loop.flags(iteration)
    stale, modified = zeroing == "forgotten" and parallelism != "fsdp2", clips and parallelism != "fsdp2"
    second = stale and parallelism == "ddp copies", modified  # in the second step, DDP replaces its buckets, and so the views
    assert (first, others) == ((False, False), [second, *2 * [(stale, modified)]])


@pytest.mark.clause("TORCH-monitor")
def test_each_parameter_group_has_its_own_hook():
    """Only the second group is clipped. The first change is unknown, since norms are recorded only after a modification."""
    loop = Loop(lambda params: torch.optim.SGD([{"params": [param]} for param in params], lr=0.25))

    def iteration(loop):
        loop.scaler.scale(loop.loss()).backward()
        torch.nn.utils.clip_grad_norm_(loop.params[1:], 1.0)
        loop.finish()

    assert [modified for _, modified in loop.flags(iteration)] == [False, True, True, True]
    assert [begin.change for begin in loop.monitor.begins] == [None, None, pytest.approx(1 / 32), pytest.approx(1 / 32)]


@pytest.mark.clause("TORCH-copies")
def test_copies_have_no_monitor_and_hooks_end_with_their_scaler():
    """The parameters outlive the scaler, whose hooks must therefore be removed from them."""
    loop = Loop()
    plain(loop)
    for duplicate in (copy.copy(loop.scaler), copy.deepcopy(loop.scaler), pickle.loads(pickle.dumps(loop.scaler))):
        assert duplicate._observer is None
    assert len(loop.params[0]._post_accumulate_grad_hooks) == 1
    del loop.scaler, duplicate
    gc.collect()
    assert len(loop.params[0]._post_accumulate_grad_hooks) == 0
