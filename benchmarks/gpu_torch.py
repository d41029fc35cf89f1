"""Rows of torch on a GPU: ampscale's functions and scaler, `torch.amp.GradScaler`, and torch's foreach kernel and norms."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from gpu_rows import FINITE, GLOBAL, LARGEST, NORM, UNSCALE, Bench, Row, Run, lengths
from shapes import Shape

import ampscale
from ampscale.backends.cpu.fused import KernelChoice
from ampscale.backends.torch import cuda_launches

OURS, PLAIN, SCALER, KERNEL, AMP = "ampscale", "ampscale, no CuPy", "ampscale, GradScaler", "torch foreach", "torch.amp"
Tensors = list[torch.Tensor]


def device() -> str | None:
    """Return the name of the GPU; None if there is none."""
    return torch.cuda.get_device_name(0) if torch.cuda.is_available() else None


def memory() -> int:
    """Return the number of free bytes on the device."""
    return torch.cuda.mem_get_info()[0]


def rows(bench: Bench) -> Iterator[Row]:
    """Yield all rows."""
    if bench.device == "cuda":
        bench.wait = torch.cuda.synchronize
    yield from bench.each(lambda shape, dtype: measured(bench, shape, dtype))


def measured(bench: Bench, shape: Shape, dtype: str) -> Iterator[Row]:
    """
    Yield the rows of a copy, and of all implementations in place, with a scale of 1, which leaves the values unchanged.

    For the shape `LARGEST`, also yield the rows of ampscale with and without its kernels.
    """
    tree = [torch.empty(length, dtype=getattr(torch, dtype), device=bench.device).normal_() for length in lengths(shape)]
    size = sum(array.nbytes for array in tree)
    copy = bench.ms(copying(size, bench.device))
    yield bench.row(shape, dtype, "copy", "device to device", copy, copy["ms"], bytes=size)
    one = torch.ones((), device=bench.device)

    def row(operation: str, implementation: str, run: Run, **more: Any) -> Row:
        more["operations"] = operations(bench, run, dtype)
        return bench.row(shape, dtype, operation, implementation, bench.ms(run), copy["ms"], **more)

    for operation in (UNSCALE, NORM):
        runs = {OURS: ours(operation, tree, one)}
        if dtype != "bfloat16":  # torch's kernel rejects it on CUDA
            runs[KERNEL] = foreach(operation, tree, one)
        for implementation, run in runs.items():
            replayed = bench.replayed(graph, run) if bench.device == "cuda" else {}
            yield row(operation, implementation, run, **replayed)
        if dtype == "float32":  # torch.amp rejects float16 gradients, and on CUDA bfloat16 ones
            for implementation, run in scalers(operation, tree, bench.device).items():
                yield row(operation, implementation, run)
    if shape.name == LARGEST:
        for operation, run in kernel_runs(tree, one).items():
            yield row(operation, OURS, run)
            yield row(operation, PLAIN, without_kernels(run))


def copying(size: int, device: str) -> Run:
    """Return a function that copies *size* bytes."""
    source, target = (torch.empty(size, dtype=torch.uint8, device=device) for _ in range(2))
    return lambda: target.copy_(source)


def ours(operation: str, tree: Tensors, one: torch.Tensor) -> Run:
    """Return a function that calls ampscale's function of this name in place."""
    return lambda: getattr(ampscale, operation)(tree, one, out=tree)


def kernel_runs(tree: Tensors, one: torch.Tensor) -> dict[str, Run]:
    """Return functions that are compared with and without cuda/kernels.cu. A scale of 3 has no exact reciprocal."""
    elsewhere = [torch.empty_like(array) for array in tree]
    three = torch.full_like(one, 3)
    return {
        FINITE: lambda: ampscale.all_finite(tree),
        GLOBAL: lambda: ampscale.global_norm(tree),
        f"{UNSCALE}, by 3, elsewhere": lambda: ampscale.unscale_and_check(tree, three, out=elsewhere),
        f"{NORM}, by 3, elsewhere": lambda: ampscale.unscale_check_and_norm(tree, three, out=elsewhere),
    }


def without_kernels(run: Run) -> Run:
    """Return a function that calls *run* with torch's own operations instead of cuda/kernels.cu."""

    def plain() -> object:
        choice = cuda_launches.kernel_choice_host
        cuda_launches.kernel_choice_host = lambda: KernelChoice(None, "")
        try:
            return run()
        finally:
            cuda_launches.kernel_choice_host = choice

    return plain


def foreach(operation: str, tree: Tensors, one: torch.Tensor) -> Run:
    """Return a function that calls the kernel of torch's `unscale_` and, for `NORM`, the norms of torch's `clip_grad_norm_`."""
    flag = torch.zeros((), device=one.device)

    def run() -> object:
        flag.zero_()
        torch._amp_foreach_non_finite_check_and_unscale_(tree, flag, one)
        return torch.linalg.vector_norm(torch.stack(torch._foreach_norm(tree))) if operation == NORM else None

    return run


def scalers(operation: str, tree: Tensors, device: str) -> dict[str, Run]:
    """Return functions that call `unscale_` of both scalers and, for `NORM`, torch's norm, after they have reset the scaler."""
    params = [torch.nn.Parameter(gradient) for gradient in tree]
    for param, gradient in zip(params, tree, strict=True):
        param.grad = gradient.detach()
    optimizer = torch.optim.SGD(params)
    runs: dict[str, Run] = {}
    for name, make in {SCALER: ampscale.torch.GradScaler, AMP: torch.amp.GradScaler}.items():
        scaler = make(device, init_scale=1.0, growth_interval=2**31 - 1)
        scaler.scale(torch.ones((), device=device))
        reset = scaler.abandon if name == SCALER else scaler._per_optimizer_states.clear
        runs[name] = partial(unscaled, operation, scaler, reset, optimizer)
    return runs


def unscaled(operation: str, scaler: Any, reset: Run, optimizer: torch.optim.Optimizer) -> object:
    """Reset the scaler, unscale the gradients, and return torch's norm of them for `NORM`."""
    reset()
    scaler.unscale_(optimizer)
    params = optimizer.param_groups[0]["params"]
    return torch.nn.utils.get_total_norm([param.grad for param in params]) if operation == NORM else None


def operations(bench: Bench, run: Run, dtype: str) -> int | None:
    """Return the number of kernels, copies and fills of a call; None except for float32, since torch's profiler is slow."""
    if bench.device != "cuda" or dtype != "float32":
        return None
    run()
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        run()
        torch.cuda.synchronize()
    return sum(event.device_type == torch.autograd.DeviceType.CUDA for event in profile.events()) or None


def graph(run: Run) -> Callable[[], Any]:
    """Capture a call, and return a function that replays it."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            run()
    torch.cuda.current_stream().wait_stream(side)
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        run()
    return captured.replay
