"""Resume twice from one state: with the growth_interval of the saved run, and with a smaller one."""

import torch
from megatron.core.optimizer.grad_scaler import DynamicGradScaler


class OnTheCPU(torch.overrides.TorchFunctionMode):
    """Create tensors on the CPU instead of cuda, so that the script needs no GPU."""

    def __torch_function__(self, function, _types, args=(), kwargs=None):
        if function is torch.Tensor.cuda:
            return args[0]
        options = dict(kwargs or {})
        if options.get("device") == "cuda":
            options["device"] = "cpu"
        return function(*args, **options)


def scaler_with(growth_interval):
    return DynamicGradScaler(1024.0, 1.0, 2.0, 0.5, growth_interval, hysteresis=2)


torch.cuda.current_device = lambda: 0  # load_state_dict calls it
with OnTheCPU():
    saved = scaler_with(1000)
    for _ in range(800):
        saved.update(found_inf=False)
    for interval in (1000, 500):
        scaler = scaler_with(interval)
        scaler.load_state_dict(saved.state_dict())
        for _ in range(2500):
            scaler.update(found_inf=False)
        print(f"growth_interval {interval}: scale {scaler.scale.item()}, growth_tracker {scaler.state_dict()['growth_tracker']}")
