"""torch on several ranks: a hand-written loop with DDP, FSDP2 and DTensors, on the CPU."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from .base import Library, torch

fsdp: Any = Library("torch.distributed.fsdp")
dtensors: Any = Library("torch.distributed.tensor")


def initialize() -> None:
    """Initialize torch.distributed on the CPU, once."""
    if not torch.distributed.is_initialized():
        torch.set_num_threads(1)
        torch.distributed.init_process_group("gloo")


def train(
    make_scaler: Callable[[], Any],
    rank: int,
    placements: Sequence[str],
    steps: Sequence[Any],
    optimizers: int,
    make_array: Callable[..., Any] | None = None,
    before_last: Callable[[Any], None] = lambda _: None,
    ignored: Any = (),
) -> list[Any]:
    """
    Run the documented loop on one rank, and return for each step the scale after it, and True if an optimizer stepped.

    *make_array*, by default `array_of`, returns a parameter and its backward pass, a function of the scaler and the values of all
    ranks. *before_last* is called with the scaler before the last step. *ignored* are the types of errors of a step after which
    the run continues and the scale of the step is returned.
    """
    make = make_array or array_of
    scaler = make_scaler()
    with_shards = bool({"sharded", "half", "grid"} & set(placements))
    columns = zip(*steps[0], strict=True)  # of each array, the values on all ranks in the first step
    arrays = [make(placement, values, rank, with_shards) for placement, values in zip(placements, columns, strict=True)]
    sgds = [torch.optim.SGD([parameter for parameter, _ in arrays[start::optimizers]]) for start in range(optimizers)]
    stepped, results = list[bool](), []
    for sgd in sgds:
        sgd.register_step_post_hook(lambda *_: stepped.append(True))
    for index, step in enumerate(steps, start=1):
        stepped.clear()
        if index == len(steps):
            before_last(scaler)
        if step:
            run_step(scaler, arrays, sgds, step, ignored)
        else:
            saved, scaler = scaler.state_dict(), make_scaler()
            scaler.load_state_dict(saved)
        results.append([scaler.get_scale(), bool(stepped)])
    return results


def run_step(scaler: Any, arrays: Sequence[Any], sgds: Sequence[Any], step: Sequence[Any], ignored: Any) -> None:
    """Run the backward passes, step the optimizers, and update the scale."""
    scaler.scale(torch.zeros(()))  # creates the tensors of a new scaler
    for position, (parameter, backward) in enumerate(arrays):
        parameter.grad = None
        backward(scaler, [values[position] for values in step])
    with suppress(ignored):
        for sgd in sgds:
            scaler.step(sgd)
        scaler.update()


def array_of(placement: str, first: Sequence[Any], rank: int, with_shards: bool) -> tuple[Any, Callable[..., None]]:
    """
    Return a parameter and its backward pass. A "reduced" parameter is a DTensor if other arrays are sharded.

    Each rank has one element, except that ranks whose value in the first step is None have none of a sharded parameter.
    """
    if placement in ("half", "grid") or (placement == "reduced" and with_shards):
        return dtensor(placement, rank)
    return fully_sharded(len(first) - first.count(None)) if placement == "sharded" else data_parallel(placement, rank)


def data_parallel(
    placement: str, rank: int, size: int = 1, wrap: Callable[[Any], Any] | None = None
) -> tuple[Any, Callable[..., None]]:
    """Return the parameter of a module, which *wrap* or DDP wraps unless the arrays are distinct, and its backward pass."""
    module = column(size)
    model = module if placement == "distinct" else (wrap or torch.nn.parallel.DistributedDataParallel)(module)

    def backward(scaler: Any, values: Sequence[Any]) -> None:
        if values[rank] is None:
            return
        value = 1.0 if placement == "reduced" else values[rank]
        scaler.scale((model(torch.ones(1)) * value).sum()).backward()
        if placement == "reduced":
            module.weight.grad.mul_(values[rank])  # a fault after the gradients were averaged

    return module.weight, backward


def fully_sharded(size: int, shard: Callable[[Any], Any] | None = None) -> tuple[Any, Callable[..., None]]:
    """
    Return a parameter that *shard* or FSDP2 shards over all ranks, and its backward pass.

    Only the first *size* ranks have an element.
    """
    module = column(size)
    model = (shard or fsdp.fully_shard)(module)

    def backward(scaler: Any, values: Sequence[Any]) -> None:
        scaler.scale((model(torch.ones(1)) * torch.tensor(values[:size])).sum()).backward()

    return module.weight, backward


def dtensor(placement: str, rank: int) -> tuple[Any, Callable[..., None]]:
    """Return a DTensor, replicated on all ranks or sharded over dimensions of a 2-by-2 mesh, and its backward pass."""
    size = torch.distributed.get_world_size()
    if placement == "reduced":
        mesh = torch.distributed.init_device_mesh("cpu", (size,))
        placements = list[Any]([dtensors.Replicate()])
    else:
        grid = torch.distributed.init_device_mesh("cpu", (2, 2), mesh_dim_names=("rows", "columns"))
        shards = [dtensors.Shard(0), dtensors.Shard(1)]
        mesh, placements = (grid, shards) if placement == "grid" else (grid["rows"], shards[:1])
    parameter = torch.nn.Parameter(dtensors.DTensor.from_local(torch.ones(1, 1), mesh, placements, run_check=False))

    def backward(scaler: Any, values: Sequence[Any]) -> None:
        gradient = torch.full((1, 1), values[rank]) * scaler.get_scale()
        parameter.grad = dtensors.DTensor.from_local(gradient, mesh, placements, run_check=False)

    return parameter, backward


def column(size: int) -> Any:
    """Return a module that returns its weights, so that the gradient of (weights * data).sum() is the data."""
    return torch.nn.Linear(1, size, bias=False)
