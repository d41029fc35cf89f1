"""Agreement of all ranks on the step of an optimizer."""

import sys

import pytest
import torch
from frameworks.steps import RecordingMonitor

from ampscale.backends.torch.dtensor import DTENSORS
from ampscale.core.replicas import Agreement, SingleReplica
from ampscale.distributed.communicator import HostAgreement
from ampscale.frameworks.torch import GradScaler


@pytest.mark.clause("TORCH-communicator", "REPLICAS-same-decision")
@pytest.mark.parametrize(
    ("finite", "has_gradients", "parameter_after", "scale"), [(True, True, -1, 16), (False, True, 0, 4), (True, False, 0, 8)]
)
def test_the_ranks_decide_on_the_step_together(finite, has_gradients, parameter_after, scale):
    """A step in which no rank has gradients does not count."""

    class Ranks(SingleReplica):
        def agree(self, *_, **__):
            return Agreement(torch.tensor(finite), has_gradients)

    parameter = torch.zeros((), requires_grad=True)
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    scaler = GradScaler("cpu", init_scale=8.0, growth_interval=1, communicator=Ranks())
    scaler.scale(parameter.clone()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert (parameter.item(), scaler.get_scale()) == (parameter_after, scale)


@pytest.mark.clause("TORCH-communicator", "TORCH-monitor")
@pytest.mark.parametrize("finite", [True, False])
def test_a_flag_that_the_communicator_has_read_is_returned_and_reported_as_a_bool(finite):
    """Without a communicator, `step` returns a tensor for a fused optimizer, which skips on the device."""

    class Ranks(SingleReplica):
        def agree(self, *_, **__):
            agreement = HostAgreement(torch.tensor(finite), has_gradients=True)
            agreement.is_finite = finite
            return agreement

    parameter, monitor = torch.ones((), requires_grad=True), RecordingMonitor()
    optimizer = torch.optim.SGD([parameter], fused=True)
    scaler = GradScaler("cpu", communicator=Ranks(), monitor=monitor)
    scaler.scale(parameter.clone()).backward()
    assert scaler.step(optimizer) is finite
    scaler.update()
    assert monitor.ends[0].finite is finite


@pytest.mark.clause("TORCH-communicator", "REPLICAS-mean-before-check")
def test_gradients_are_averaged_before_they_are_unscaled():
    """A parameter without a gradient still has none."""

    class Ranks(SingleReplica):
        def mean(self, tree):
            return [None if leaf is None else (leaf + 6) / 2 for leaf in tree]

    params = [torch.zeros(1, requires_grad=True) for _ in range(3)]
    params[0].grad, params[2].grad = torch.tensor([2.0]), torch.tensor([4.0])
    scaler = GradScaler("cpu", init_scale=2.0, communicator=Ranks())
    scaler.scale(torch.ones(()))
    scaler.unscale_(torch.optim.SGD(params))
    assert [param.grad for param in params] == [2, None, 2.5]


@pytest.mark.clause("TORCH-step")
def test_a_step_works_if_no_dtensors_have_been_imported(monkeypatch):
    """Without their module there can be no DTensors, so the ranks need not agree."""
    monkeypatch.delitem(sys.modules, DTENSORS, raising=False)
    parameter = torch.ones((), requires_grad=True)
    optimizer = torch.optim.SGD([parameter], lr=0.5)
    scaler = GradScaler("cpu", init_scale=8.0)
    scaler.scale(parameter.clone()).backward()
    assert scaler.step(optimizer) is True
    assert parameter.item() == 0.5


@pytest.fixture
def mesh():
    """Return a device mesh of four ranks whose collectives do nothing, since the other three do not exist."""
    pytest.importorskip("torch.distributed.tensor")  # in this fixture, since the import takes a second
    from torch.testing._internal.distributed.fake_pg import FakeStore

    torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=4)
    yield torch.distributed.init_device_mesh("cpu", (2, 2), mesh_dim_names=("stages", "shards"))
    torch.distributed.destroy_process_group()


def unscale_zeros(scaler, *params):
    """Unscale an optimizer over *params*, whose gradients are zeros."""
    for param in params:
        param.requires_grad_().grad = torch.zeros_like(param)
    scaler.scale(torch.ones(()))
    scaler.unscale_(torch.optim.SGD(params))


@pytest.mark.clause("TORCH-dtensor-ranks", "REPLICAS-settings-compared")
def test_ranks_compare_the_parameters_on_a_mesh_of_all_ranks(mesh):
    """The first collective compares them. Those that are plain, or on a slice of the mesh, can differ, and are not compared."""
    from torch.distributed.tensor import DTensor, Shard

    compared = []

    class Recorder(SingleReplica):
        ranks = range(4)

        def check_same(self, **settings):
            compared.append(settings["parameters"])

    whole = DTensor.from_local(torch.zeros(3), mesh, [Shard(0)] * 2)
    part = DTensor.from_local(torch.zeros(3), mesh["shards"], [Shard(0)])
    unscale_zeros(GradScaler("cpu", communicator=Recorder()), whole, part, torch.zeros(3))
    assert compared == [["float32 (12,)"], []]


@pytest.mark.clause("TORCH-dtensor-ranks", "REPLICAS-empty-ranks")
def test_a_rank_without_a_plain_gradient_takes_part_in_the_mean(mesh):
    """Other ranks can have a gradient of the plain parameter. DTensors are not averaged, and alone need no mean."""
    from torch.distributed.tensor import DTensor, Shard

    averaged = []

    class Recorder(SingleReplica):
        def mean(self, tree):
            averaged.append(tree)
            return tree

    whole = DTensor.from_local(torch.zeros(3), mesh, [Shard(0)] * 2).requires_grad_()
    plain = torch.zeros(3, requires_grad=True)
    whole.grad = torch.zeros_like(whole)
    for params in ([whole, plain], [whole]):
        scaler = GradScaler("cpu", communicator=Recorder())
        scaler.scale(torch.ones(()))
        scaler.unscale_(torch.optim.SGD(params))
    assert averaged == [[None, None]]


@pytest.mark.clause("TORCH-dtensor-ranks")
def test_ranks_that_share_dtensors_need_no_communicator(mesh):
    """The scaler creates a communicator for the process group of the mesh. Without DTensors, nothing is exchanged."""
    from torch.distributed.tensor import DTensor, Shard
    from torch.distributed.tensor.debug import CommDebugMode

    for param, exchanged in ((DTensor.from_local(torch.zeros(3), mesh, [Shard(0)] * 2), True), (torch.zeros(3), False)):
        with CommDebugMode() as collectives:
            unscale_zeros(GradScaler("cpu"), param)
        assert (collectives.get_total_counts() > 0) == exchanged
