"""
FSDP2 with float16 and ampscale's scaler, in the manner of torchtitan: `torchrun --nproc-per-node 2 examples/fsdp2_loop.py`.

Parameters, their average and the moments of the optimizer are float32 and sharded; FSDP2 casts parameters to float16. All ranks
skip the same steps. The distributed checkpoint stores all shards, and the scaler's state once. The first scale is too large on
purpose. Requires ampscale[torch].
"""

import tempfile
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_optimizer_state_dict, set_optimizer_state_dict
from torch.distributed.checkpoint.stateful import Stateful
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.functional import mse_loss
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from ampscale.torch import GradScaler

STEPS, BATCHES = 12, 2  # optimizer steps, and batches of each step
DATA = torch.randn(STEPS, BATCHES, 16, 8, generator=torch.Generator().manual_seed(0))
POLICY = MixedPrecisionPolicy(param_dtype=torch.float16, reduce_dtype=torch.float32, output_dtype=torch.float32)
FLAT = StateDictOptions(flatten_optimizer_state_dict=True)


class Run(Stateful):
    """Everything that a run needs to continue, saved and loaded together."""

    def __init__(self):
        torch.manual_seed(0)
        self.model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
        self.average = AveragedModel(self.model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
        for module in (*self.model, self.model, self.average.module):
            fully_shard(module, mp_policy=POLICY)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, T_max=STEPS)
        self.scaler = GradScaler("cpu", init_scale=2.0**17, growth_interval=4)  # recognizes the shards and their ranks

    def state_dict(self):
        """Return the state dict of each part; sharded arrays are DTensors."""
        states = {name: getattr(self, name).state_dict() for name in ("model", "average", "schedule", "scaler")}
        return {**states, "optimizer": get_optimizer_state_dict(self.model, self.optimizer, options=FLAT)}

    def load_state_dict(self, states):
        """Load the result of `state_dict`."""
        for name in ("model", "average", "schedule", "scaler"):
            getattr(self, name).load_state_dict(states[name])
        set_optimizer_state_dict(self.model, self.optimizer, states["optimizer"], options=FLAT)


def train(run, start, stop):
    """Run the steps from *start* to *stop*, and print each on rank 0."""
    model, optimizer, scaler = run.model, run.optimizer, run.scaler
    for step in range(start, stop):
        for index, batch in enumerate(DATA[step]):
            inputs = batch.chunk(dist.get_world_size())[dist.get_rank()]
            model.set_requires_gradient_sync(index == BATCHES - 1)
            loss = mse_loss(model(inputs), inputs.sum(1, keepdim=True))
            scaler.scale(loss / BATCHES).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
        is_applied = scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        if is_applied:  # on all ranks or on none
            run.schedule.step()
            run.average.update_parameters(model)
        outcome, rate = "applied" if is_applied else "skipped", run.schedule.get_last_lr()[0]
        if dist.get_rank() == 0:
            print(f"step {step:2}  {outcome}, next scale {scaler.get_scale():.0f}, learning rate {rate:.5f}")


def main():
    """Train with a checkpoint after half of the steps, resume from it, and compare the final states of the two runs."""
    dist.init_process_group("gloo")
    run, resumed = Run(), Run()
    with tempfile.TemporaryDirectory() as folder:
        folders = [folder]
        dist.broadcast_object_list(folders)  # all ranks use the folder of rank 0
        train(run, 0, STEPS // 2)
        dcp.save({"run": run}, checkpoint_id=folders[0])
        train(run, STEPS // 2, STEPS)
        dcp.load({"run": resumed}, checkpoint_id=folders[0])
        train(resumed, STEPS // 2, STEPS)
    torch.testing.assert_close(resumed.state_dict(), run.state_dict(), rtol=0, atol=0)
    if dist.get_rank() == 0:
        print("The resumed run has ended with the same state.")
    # Before Python 3.14, a thread of gloo that still releases tensors aborts a process that is ending.
    time.sleep(0.5)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
