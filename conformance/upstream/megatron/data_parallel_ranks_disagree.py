"""Step two data-parallel ranks, of which one has a NaN in a gradient after the reduction."""

import tempfile

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.optimizer.grad_scaler import DynamicGradScaler
from megatron.core.optimizer.optimizer import Float16OptimizerWithFloat16Params
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


def train(rank, folder):
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    parallel_state.initialize_model_parallel()
    config = OptimizerConfig(optimizer="sgd", lr=1.0, fp16=True, clip_grad=0.0)
    with OnTheCPU():
        weight = torch.nn.Parameter(torch.zeros(1).half())
        scaler = DynamicGradScaler(4.0, 1.0, 2.0, 0.5, 1000, hysteresis=1)
        optimizer = Float16OptimizerWithFloat16Params(torch.optim.SGD([weight], lr=1.0), config, scaler, lambda *_: None)
        optimizer.grad_stats_parallel_group = parallel_state.get_model_parallel_group()
        weight.main_grad = torch.tensor([1.0 if rank == 0 else float("nan")]) * scaler.scale
        optimizer.step()
    results = [None, None]
    dist.all_gather_object(results, (weight.item(), scaler.scale.item()))
    if rank == 0:
        print(f"weight and scale of rank 0: {results[0]}, of rank 1: {results[1]}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(train, (folder,), nprocs=2)
