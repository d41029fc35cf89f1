"""Pools of real processes, shared by the tests of a session."""

import pytest
from distributed.pool import Pool

MODULES = ("ampscale.torch", "torch._dynamo", "torch.distributed.fsdp", "torch.distributed.tensor")


@pytest.fixture(scope="session")
def pools(tmp_path_factory):
    """Return a function that returns the pool of an engine."""
    started = {}

    def pool(engine):
        if engine not in started:
            started[engine] = Pool(engine, tmp_path_factory.mktemp(engine), modules=MODULES)
        return started[engine]

    yield pool
    for ranks in started.values():
        ranks.close()


@pytest.fixture
def gloo(pools):
    """Return four ranks of torch.distributed."""
    pytest.importorskip("torch")
    return pools("gloo")


@pytest.fixture
def mpi(pools):
    """Return four ranks of MPI."""
    pytest.importorskip("mpi4py")
    return pools("mpi")


@pytest.fixture(params=["mpi", "gloo"])
def ranks(request):
    """Return four ranks of MPI, and in a second run of the test four of torch.distributed."""
    return request.getfixturevalue(request.param)
