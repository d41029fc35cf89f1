"""Training steps of modules whose parameters are DTensors."""

import pytest

import ampscale
from ampscale.backends import network_of

torch = pytest.importorskip("torch")
pytest.importorskip("torch.distributed")

from distributed.dtensors import INF, full, line  # noqa: E402
from distributed.training import message_of  # noqa: E402
from torch.distributed.fsdp import fully_shard  # noqa: E402
from torch.distributed.tensor import DTensor, Partial, Replicate  # noqa: E402
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module  # noqa: E402

from ampscale.core.norms import unlifted  # noqa: E402
from ampscale.distributed import TorchDistributed  # noqa: E402


class Regression(torch.nn.Module):
    """Network of two layers that returns its loss; tests divide the first layer by columns, and the second by rows."""

    def __init__(self):
        super().__init__()
        generator = torch.Generator().manual_seed(11)
        self.first, self.second = torch.nn.Linear(3, 8), torch.nn.Linear(8, 2)
        with torch.no_grad():
            for param in self.parameters():
                param.copy_(torch.randn(param.shape, generator=generator) / 2)

    def forward(self, values, targets):
        """Return the mean squared error."""
        return torch.nn.functional.mse_loss(self.second(self.first(values).tanh()), targets)


def steps(module, optimizer_name, max_norm, **options):
    """Return reports and parameters of six training steps, of which the third overflows."""
    optimizer = getattr(ampscale.optimizers, optimizer_name)(network_of(module), 0.05)
    rule = ampscale.LossScaleRule(init_scale=2.0**8, growth_interval=2)
    state = ampscale.init_train_state(network_of(module).params, optimizer, rule)
    reports = []
    generator = torch.Generator().manual_seed(1)
    for number in range(6):
        values, targets = torch.randn(4, 3, generator=generator), torch.randn(4, 2, generator=generator)
        values[0, 0] = INF if number == 2 else 1.0
        state, report = ampscale.train_step(module, optimizer, rule, state, values, targets, max_norm=max_norm, **options)
        norm = None if report.global_norm is None else float(report.global_norm)
        reports.append([bool(report.applied), float(report.next_scale), repr(norm)])
    return reports, [full(param).flatten().tolist() for param in state.params.values()]


def divided():
    return parallelize_module(Regression(), line(), {"first": ColwiseParallel(), "second": RowwiseParallel()})


def tensor_parallel(_, optimizer, max_norm):
    return steps(divided(), optimizer, max_norm)


@pytest.mark.clause("TORCH-dtensor-train-step")
@pytest.mark.parametrize(("optimizer", "max_norm"), [("SGD", None), ("AdamW", 0.5)])
def test_a_tensor_parallel_module_trains_like_a_whole_one(gloo, optimizer, max_norm):
    """Decisions and scales are equal, norms and parameters up to rounding."""
    results = gloo.run(tensor_parallel, optimizer, max_norm)
    assert results == 4 * [results[0]]
    reports, params = results[0]
    expected_reports, expected_params = steps(Regression(), optimizer, max_norm)
    assert [report[:2] for report in reports] == [report[:2] for report in expected_reports]
    assert [report[0] for report in reports] == [True, True, False, True, True, True]
    for values, expected in zip(params, expected_params, strict=True):
        assert values == pytest.approx(expected, rel=1e-4, abs=1e-6)


def with_communicator(rank, gradients):
    """Return the results of steps without and with a communicator, and the error of another `max_norm` on rank 2."""
    communicator = TorchDistributed(gradients=gradients)
    results = [steps(divided(), "AdamW", 0.5, **options) for options in ({}, {"communicator": communicator})]
    limit = 0.25 if rank == 2 else 0.5
    return *results, message_of(steps, divided(), "AdamW", limit, communicator=communicator)


@pytest.mark.clause(
    "TORCH-dtensor-train-step", "REPLICAS-sharded-norm", "REPLICAS-copies-counted-once", "REPLICAS-settings-compared"
)
def test_a_communicator_adds_up_the_norm_of_shards_and_compares_the_settings(gloo):
    """The replicated bias counts once. With "sharded", the results equal those without a communicator, bit for bit."""
    for without, with_, error in gloo.run(with_communicator, "sharded"):
        assert with_ == without
        assert error == "max_norm differs: 0.25 on rank 2; 0.5 on ranks 0, 1, 3"


def test_a_communicator_of_distinct_gradients_adds_up_the_norm_of_shards(gloo):
    """Each rank rounds the sum of the squares of its shards, so the last bits of the norm can differ."""
    for (reports, _), (distinct, _), _ in gloo.run(with_communicator, "distinct"):
        norms = [[float(norm) for *_, norm in steps] for steps in (distinct, reports)]
        assert norms[0] == pytest.approx(norms[1], rel=2**-22, nan_ok=True)


def norm_of_partial_sum(rank):
    """Return the norm of a DTensor that is a sum of the values 0 to 3 of the ranks, beside a replicated one."""
    arrays = [
        DTensor.from_local(torch.tensor([value]), line(), [kind]) for value, kind in ((1.0 * rank, Partial()), (8.0, Replicate()))
    ]
    communicator = TorchDistributed(gradients="sharded")
    return float(unlifted(communicator.agree(torch.tensor(True), 1.0, arrays, norm=True).norm))


def test_the_norm_of_a_partial_placement_is_that_of_the_sum(gloo):
    assert gloo.run(norm_of_partial_sum) == 4 * [10.0]


def fully_sharded(_):
    return message_of(steps, fully_shard(Regression(), mesh=line()), "SGD", None, error=TypeError)


@pytest.mark.clause("TORCH-dtensor-train-step")
def test_a_fully_sharded_module_is_rejected_with_the_remedy(gloo):
    """The hooks of FSDP2 do not support functional calls."""
    assert all("ampscale.torch.GradScaler" in message for message in gloo.run(fully_sharded))
