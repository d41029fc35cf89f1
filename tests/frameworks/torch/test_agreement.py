"""The agreement of all ranks on an optimizer."""

import pytest
import torch

from ampscale.core.replicas import Agreement, SingleReplica
from ampscale.frameworks.torch import GradScaler


@pytest.mark.clause("TORCH-communicator", "REPLICAS-same-decision")
@pytest.mark.parametrize(
    ("finite", "has_gradients", "value", "scale"), [(True, True, -1, 16), (False, True, 0, 4), (True, False, 0, 8)]
)
def test_the_ranks_decide_on_the_step_together(finite, has_gradients, value, scale):
    """A step without gradients on any rank does not count."""

    class Ranks(SingleReplica):
        def agree(self, *_, **__):
            return Agreement(torch.tensor(finite), has_gradients)

    parameter = torch.zeros((), requires_grad=True)
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    scaler = GradScaler("cpu", init_scale=8.0, growth_interval=1, communicator=Ranks())
    scaler.scale(parameter.clone()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert (parameter.item(), scaler.get_scale()) == (value, scale)


@pytest.mark.clause("TORCH-dtensor-ranks", "REPLICAS-settings-compared")
@pytest.mark.skipif(not torch.distributed.is_available(), reason="this build of torch has no process groups")
def test_ranks_compare_the_parameters_on_a_mesh_of_all_ranks():
    """Other ranks can have other parameters on a slice of the mesh, such as stages of a pipeline, and other plain parameters."""
    from torch.distributed.tensor import DTensor, Shard  # here, since it takes a second
    from torch.testing._internal.distributed.fake_pg import FakeStore

    compared = []

    class Recorder(SingleReplica):
        ranks = range(4)

        def check_same(self, **settings):
            compared.append(settings["parameters"])

    torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=4)
    try:
        mesh = torch.distributed.init_device_mesh("cpu", (2, 2), mesh_dim_names=("stages", "shards"))
        whole = DTensor.from_local(torch.zeros(3), mesh, [Shard(0)] * 2)
        part = DTensor.from_local(torch.zeros(3), mesh["shards"], [Shard(0)])
        params = [each.requires_grad_() for each in (whole, part, torch.zeros(3))]
        for param in params:
            param.grad = torch.zeros_like(param)
        scaler = GradScaler("cpu", communicator=Recorder())
        scaler.scale(torch.ones(()))
        scaler.unscale_(torch.optim.SGD(params))
    finally:
        torch.distributed.destroy_process_group()
    assert compared == [["float32 (12,)"]]
