"""Statistics that a compiled step and a step with DTensors report, without a host synchronization."""

from functools import partial

import numpy as np
import pytest
from libraries import on
from linear import network as linear_network

import ampscale

GRADIENTS = np.float32([[1.0, 2.0**-30, 0.0, np.inf], [2.0**-100, -3.0, np.nan, 0.5]])
STATISTICS = [[4, 1, 1, 0, 1, 0, -20, 10], [4, 0, 1, 1, 0, 1, -90, 11]]  # of the gradients times 2**10


def step_of(network):
    """Return a training step that reports statistics, and its first state."""
    optimizer = ampscale.optimizers.SGD(network, 0.5)
    rule = ampscale.LossScaleRule(init_scale=2.0**10)
    state = ampscale.init_train_state(network.params, optimizer, rule)
    return lambda *inputs: ampscale.train_step(network, optimizer, rule, *inputs, measure=True), state


@pytest.mark.clause("STATISTICS-step", "STATISTICS-no-host-sync")
@pytest.mark.filterwarnings("ignore:Dynamo detected a call to a `functools.lru_cache`")
@on(pytest.param("torch", marks=pytest.mark.slow), "jax")
def test_a_compiled_step_reports_statistics_without_reading_them(library):
    """With torch, the compiled step is one graph, which cannot contain a read; reads are counted without compilation."""
    module = pytest.importorskip(library.name)
    compiled = module.jit if library.name == "jax" else partial(module.compile, fullgraph=True, backend="aot_eager")
    step, state = step_of(linear_network([library.array(np.ones(4)) for _ in GRADIENTS]))
    inputs = [library.array(values) for values in GRADIENTS]
    traced = compiled(step)
    assert traced(state, inputs)[1].statistics.tolist() == STATISTICS
    with library.count_reads() as reads:
        (traced if library.name == "jax" else step)(state, inputs)
    assert reads == []


@pytest.mark.clause("STATISTICS-step", "STATISTICS-shards")
def test_a_step_with_dtensors_measures_the_shard_of_this_rank():
    """The collectives of the process group do nothing, since the second rank does not exist."""
    torch = pytest.importorskip("torch")
    tensors = pytest.importorskip("torch.distributed.tensor")
    from torch.testing._internal.distributed.fake_pg import FakeStore

    torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    try:
        mesh = torch.distributed.init_device_mesh("cpu", (2,))

        def sharded(values):
            return tensors.DTensor.from_local(values, mesh, [tensors.Shard(0)])

        local = [torch.from_numpy(values) for values in GRADIENTS]
        network = ampscale.Network(
            lambda *_: None,
            [sharded(torch.ones(4)) for _ in local],
            vjp=lambda *_: (torch.tensor(1.0), lambda seed: [sharded(values * seed) for values in local]),
        )
        step, state = step_of(network)
        assert step(state)[1].statistics.tolist() == STATISTICS
    finally:
        torch.distributed.destroy_process_group()
