"""Communicators with arrays on a CUDA device: MPI with CuPy arrays, and NCCL with torch tensors. Each has one rank."""

import numpy as np
import pytest
from backends.platforms import device
from linear import network
from strategies import same

import ampscale

pytestmark = pytest.mark.device
RULE = ampscale.LossScaleRule(2.0**4, growth_interval=2)


@pytest.mark.clause("REPLICAS-mean", "REPLICAS-one-flag")
def test_mpi_reduces_cupy_arrays_and_decides_as_a_single_replica():
    """The run has an overflow, and clips by the norm."""
    pytest.importorskip("mpi4py.MPI", reason="needs mpi4py and an MPI library")
    platform, states = device(), []
    for communicator in (ampscale.SingleReplica(), ampscale.distributed.MPI(timeout=20)):
        params = platform.put([np.ones(3, np.float32), np.ones((), np.float16)])
        model = network(params)
        optimizer = ampscale.optimizers.SGD(model, 0.5)
        state = ampscale.init_train_state(params, optimizer, RULE)
        for value in (1.0, np.inf, 2.0, 3.0):
            inputs = platform.put([np.full(3, value, np.float32), np.full((), value, np.float16)])
            state, _ = ampscale.train_step(model, optimizer, RULE, state, inputs, max_norm=1.0, communicator=communicator)
        states.append(platform.to_numpy(state))
    assert same(states[1], states[0])
    assert int(states[0].applied) == 3


@pytest.mark.clause("REPLICAS-mean", "REPLICAS-one-flag", "TORCH-step")
def test_nccl_reduces_cuda_tensors_and_dtensors(tmp_path):
    """A scaler steps a model of FSDP2, and the functions return a flag and a norm of DTensors."""
    torch = pytest.importorskip("torch", reason="needs torch")
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    import torch.distributed as dist
    from torch.distributed.fsdp import fully_shard

    dist.init_process_group(
        "nccl", init_method=f"file://{tmp_path}/store", rank=0, world_size=1, device_id=torch.device("cuda", 0)
    )
    try:
        communicator = ampscale.distributed.TorchDistributed(timeout=20)
        gradients = [torch.full((4,), 3.0, device="cuda"), torch.ones((), device="cuda")]
        assert [gradient.tolist() for gradient in communicator.mean(gradients)] == [[3.0] * 4, 1.0]
        model = fully_shard(torch.nn.Linear(4, 2, device="cuda"))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        scaler = ampscale.torch.GradScaler(init_scale=2.0**4)
        applied = []
        for value in (1.0, np.inf, 2.0):
            optimizer.zero_grad()
            scaler.scale(model(torch.full((3, 4), value, device="cuda")).sum()).backward()
            gradients = [parameter.grad for parameter in model.parameters()]
            norm = ampscale.global_norm(gradients)
            assert bool(ampscale.all_finite(gradients)) == bool(torch.isfinite(norm)) == (value < np.inf)
            applied.append(bool(scaler.step(optimizer)))
            scaler.update()
        assert applied == [True, False, True]
        assert scaler.get_scale() == 8.0
    finally:
        dist.destroy_process_group()
