"""Megatron-core: `DynamicGradScaler` and the optimizers that use it, with their tensors on the CPU instead of `cuda`."""

from collections.abc import Sequence
from typing import Any
from unittest import mock

from ..model.adapter import ImplementationInfo, Unsupported
from . import version_of
from .base import Library, StateDict, reject_factors_of_1, torch, unavailable
from .ranks import on_ranks
from .torch_ranks import initialize

parallel_state: Any = Library("megatron.core.parallel_state")
grad_scaler: Any = Library("megatron.core.optimizer.grad_scaler")
megatron: Any = Library("megatron.core.optimizer.optimizer")
optimizer_config: Any = Library("megatron.core.optimizer.optimizer_config")


class Megatron(StateDict):
    """Scaler that only updates a scale; Megatron's optimizers scale, unscale and check, which is tested on ranks."""

    info = ImplementationInfo(
        name="Megatron DynamicGradScaler",
        version=version_of("megatron-core"),
        url="https://github.com/NVIDIA/Megatron-LM/blob/main/megatron/core/optimizer/grad_scaler.py",
        level=5,
        capabilities=("resume", "rounding", "ranks", "sharded", "mixed-placements", "distinct"),
        preset="megatron",
        arrays="torch",
    )
    scale = unscale = all_finite = add_optimizer = update_scale = create_cell = unavailable(
        "the optimizer scales, unscales and checks"
    )

    def create(self, rule: Any) -> Any:
        reject_factors_of_1(rule, "Megatron")
        with on_the_cpu():
            return grad_scaler.DynamicGradScaler(*constants_of(rule))

    def update(self, scaler: Any, finite: bool) -> None:
        scaler.update(not finite)

    def read_scale(self, scaler: Any) -> float:
        return scaler.scale.item()  # type: ignore[no-any-return]

    def load(self, rule: Any, saved: Any) -> Any:
        with on_the_cpu(), mock.patch.object(torch.cuda, "current_device", return_value=0):
            return super().load(rule, saved)

    def train_on_ranks(self, rule: Any, placements: Sequence[str], steps: Sequence[Any], optimizers: int) -> Any:
        """Train with the 16-bit optimizer: data parallel, tensor parallel if there are shards, or a pipeline."""
        if [] in steps:  # a step without ranks saves the state and loads it
            raise Unsupported("the chain of optimizers cannot save and load a scaler alone")
        reject_factors_of_1(rule, "Megatron")
        return on_ranks(train_on_rank, len(steps[0]), constants_of(rule), placements, steps, optimizers)


def constants_of(rule: Any) -> list[Any]:
    return [rule.init_scale, rule.min_scale, rule.growth_factor, rule.backoff_factor, rule.growth_interval, rule.hysteresis]


def on_the_cpu() -> Any:
    """Return a context in which torch creates tensors on the CPU instead of `cuda`, and names their types as if on `cuda`."""

    class OnTheCPU(torch.overrides.TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(self, function: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if function is torch.Tensor.cuda:
                return args[0]
            options = dict(kwargs or {})
            if options.get("device") == "cuda":
                options["device"] = "cpu"
            result = function(*args, **options)
            is_type_name = function is torch.Tensor.type and isinstance(result, str)
            return result.replace("torch.", "torch.cuda.") if is_type_name else result

    return OnTheCPU()


def train_on_rank(
    rank: int, size: int, constants: Sequence[Any], placements: Sequence[str], steps: Sequence[Any], optimizers: int
) -> list[Any]:
    initialize()
    parallel_state.destroy_model_parallel()
    parallel_state.initialize_model_parallel(
        tensor_model_parallel_size=size if "sharded" in placements else 1,
        pipeline_model_parallel_size=size if "distinct" in placements else 1,
    )
    with on_the_cpu():
        parameters = [torch.nn.Parameter(torch.ones(1).half()) for _ in placements]
        chain = chained(parameters, optimizers, constants, frozen=steps[0][rank] == [None])
        results = []
        for step in steps:
            for parameter, placement, value in zip(parameters, placements, step[rank], strict=True):
                gradient = torch.full((1,), 0.0 if value is None else value) * chain.get_loss_scale()
                if placement == "replicated":  # as Megatron's DDP does
                    torch.distributed.all_reduce(gradient)
                    gradient /= size
                parameter.main_grad = gradient
            applied, _, _ = chain.step()
            results.append([float(chain.get_loss_scale()), bool(applied)])
    return results


def chained(parameters: Sequence[Any], optimizers: int, constants: Sequence[Any], frozen: bool) -> Any:
    """Return Megatron's chain of optimizers, each of which has a scaler; without parameters if they are frozen."""
    config = optimizer_config.OptimizerConfig(optimizer="sgd", lr=1.0, fp16=True, clip_grad=0.0)
    chain = []
    for first in range(optimizers):
        inner = None if frozen else torch.optim.SGD(parameters[first::optimizers], lr=1.0)
        scaler = grad_scaler.DynamicGradScaler(*constants)
        optimizer = megatron.Float16OptimizerWithFloat16Params(inner, config, scaler, lambda *_: None)
        optimizer.grad_stats_parallel_group = parallel_state.get_model_parallel_group()
        chain.append(optimizer)
    return megatron.ChainedOptimizer(chain)
