"""Step two chained optimizers, of which only the second one has an infinite gradient in the first step."""

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.optimizer.grad_scaler import DynamicGradScaler
from megatron.core.optimizer.optimizer import ChainedOptimizer, Float16OptimizerWithFloat16Params
from megatron.core.optimizer.optimizer_config import OptimizerConfig


class OnTheCPU(torch.overrides.TorchFunctionMode):
    """Create tensors on the CPU instead of cuda, and name their types as on cuda, so that the script needs no GPU."""

    def __torch_function__(self, function, _types, args=(), kwargs=None):
        if function is torch.Tensor.cuda:
            return args[0]
        options = dict(kwargs or {})
        if options.get("device") == "cuda":
            options["device"] = "cpu"
        result = function(*args, **options)
        is_type_name = function is torch.Tensor.type and isinstance(result, str)
        return result.replace("torch.", "torch.cuda.") if is_type_name else result


def optimizer_over(parameter):
    config = OptimizerConfig(optimizer="sgd", lr=1.0, fp16=True, clip_grad=0.0)
    scaler = DynamicGradScaler(4.0, 1.0, 2.0, 0.5, 1000, hysteresis=1)  # one per optimizer, as get_megatron_optimizer creates
    optimizer = Float16OptimizerWithFloat16Params(torch.optim.SGD([parameter], lr=1.0), config, scaler, lambda *_: None)
    optimizer.grad_stats_parallel_group = parallel_state.get_model_parallel_group()
    return optimizer


dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
parallel_state.initialize_model_parallel()
with OnTheCPU():
    weights = [torch.nn.Parameter(torch.zeros(1).half()) for _ in range(2)]
    chain = ChainedOptimizer([optimizer_over(weight) for weight in weights])
    for gradients in ((1.0, float("inf")), (1.0, 1.0)):
        scale = chain.get_loss_scale()
        for weight, gradient in zip(weights, gradients, strict=True):
            weight.main_grad = gradient * scale.detach().clone()
        applied, _, _ = chain.step()
        scales = [optimizer.get_loss_scale().item() for optimizer in chain.chained_optimizers]
        print(f"loss times {scale.item()}, applied: {applied}, weights: {[w.item() for w in weights]}, scales after: {scales}")
dist.destroy_process_group()
