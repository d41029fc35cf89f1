"""torch on a GPU: ampscale on its tensors, the scaler that everybody uses, and the kernel and the norms below it."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from gpu_rows import NORM, UNSCALE, Bench, Row, Run, lengths
from shapes import Shape

import ampscale

WAY, KERNEL, AMP = "ampscale", "torch foreach", "torch.amp"
Tensors = list[torch.Tensor]


def device() -> str | None:
    """The device's name."""
    return torch.cuda.get_device_name(0) if torch.cuda.is_available() else None


def memory() -> int:
    """How many bytes are free there."""
    return torch.cuda.mem_get_info()[0]


def rows(bench: Bench) -> Iterator[Row]:
    """All of them."""
    if bench.place == "cuda":
        bench.wait = torch.cuda.synchronize
    yield from bench.each(lambda shape, dtype: measured(bench, shape, dtype))


def measured(bench: Bench, shape: Shape, dtype: str) -> Iterator[Row]:
    """The three ways, in place, by a scale of 1, which leaves the numbers as they are."""
    tree = [torch.empty(length, dtype=getattr(torch, dtype), device=bench.place).normal_() for length in lengths(shape)]
    size = sum(array.nbytes for array in tree)
    copy = bench.ms(copying(size, bench.place))
    yield bench.row(shape, dtype, "copy", "device to device", copy, copy["ms"], bytes=size)
    one = torch.ones((), device=bench.place)
    for verb in (UNSCALE, NORM):
        for way, run in {WAY: ours(verb, tree, one), KERNEL: foreach(verb, tree, one)}.items():
            replayed = bench.replayed(graph, run) if bench.place == "cuda" else {}
            counted = operations(bench, run, dtype)
            yield bench.row(shape, dtype, verb, way, bench.ms(run), copy["ms"], **replayed, operations=counted)
        if dtype != "float16":  # whose gradients it refuses
            run = amp(verb, tree, bench.place)
            yield bench.row(shape, dtype, verb, AMP, bench.ms(run), copy["ms"], operations=operations(bench, run, dtype))


def copying(size: int, place: str) -> Run:
    """A copy of as many bytes in one piece."""
    source, target = (torch.empty(size, dtype=torch.uint8, device=place) for _ in range(2))
    return lambda: target.copy_(source)


def ours(verb: str, tree: Tensors, one: torch.Tensor) -> Run:
    """The verb, in place."""
    return lambda: getattr(ampscale, verb)(tree, one, out=tree)


def foreach(verb: str, tree: Tensors, one: torch.Tensor) -> Run:
    """The kernel below `unscale_`, and the norms below `clip_grad_norm_`."""
    flag = torch.zeros((), device=one.device)

    def run() -> object:
        flag.zero_()
        torch._amp_foreach_non_finite_check_and_unscale_(tree, flag, one)
        return torch.linalg.vector_norm(torch.stack(torch._foreach_norm(tree))) if verb == NORM else None

    return run


def amp(verb: str, tree: Tensors, place: str) -> Run:
    """The scaler's `unscale_`, forgetting that it has been called, as its `update` would; and torch's norm of gradients."""
    params = [torch.nn.Parameter(gradient) for gradient in tree]
    for param, gradient in zip(params, tree, strict=True):
        param.grad = gradient.detach()
    optimizer, scaler = torch.optim.SGD(params), torch.amp.GradScaler(place, init_scale=1.0, growth_interval=2**31 - 1)
    scaler.scale(torch.ones((), device=place))

    def run() -> object:
        scaler._per_optimizer_states.clear()
        scaler.unscale_(optimizer)
        return torch.nn.utils.get_total_norm([param.grad for param in params]) if verb == NORM else None

    return run


def operations(bench: Bench, run: Run, dtype: str) -> int | None:
    """How many kernels, copies and fills a call gives to the device, as torch's profiler sees them; it is slow: in one dtype."""
    if bench.place != "cuda" or dtype != "float32":
        return None
    run()
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        run()
        torch.cuda.synchronize()
    return sum(event.device_type == torch.autograd.DeviceType.CUDA for event in profile.events()) or None


def graph(run: Run) -> Callable[[], Any]:
    """What replays a call."""
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
