"""
Training of the demo's digits in float16 on several ranks: `torchrun --nproc-per-node 4 examples/ranks_torch.py [--fsdp]`.

Each batch of 256 images consists of four micro-batches, which 1, 2 or 4 ranks share. The number of ranks and the kind of
parallelism, DDP or FSDP2, therefore change neither the scales nor the applied steps, and a saved run can be resumed on another
number of ranks. Requires ampscale[demo,torch].
"""

import argparse
import os
import time
from itertools import islice

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, set_model_state_dict
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import ampscale
from ampscale.cli.demo.digits import batches_of, load
from ampscale.distributed import TorchDistributed

MICRO_BATCHES, SEED = 4, 0
WHOLE = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)


def main():
    """Train, and print every tenth step and each skipped one on rank 0."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--fsdp", action="store_true", help="shard the parameters with FSDP2 instead of replicating them")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--save", help="write the state after the last step to this file")
    parser.add_argument("--resume", help="continue from a file that --save wrote")
    options = parser.parse_args()
    for name, value in {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}.items():
        os.environ.setdefault(name, value)  # without torchrun, there is one rank
    dist.init_process_group("gloo")
    if MICRO_BATCHES % dist.get_world_size():
        parser.error(f"1, 2 or 4 ranks are required, got {dist.get_world_size()}")
    train(options)
    # Before Python 3.14, a thread of gloo that still releases tensors aborts a process that is ending.
    time.sleep(0.5)
    dist.destroy_process_group()


def train(options):
    """Train on this rank."""
    torch.manual_seed(SEED)
    layers = [layer for _ in range(3) for layer in (torch.nn.LazyLinear(32), torch.nn.LayerNorm(32), torch.nn.Tanh())]
    module = torch.nn.Sequential(*layers, torch.nn.LazyLinear(10))
    module(torch.zeros(1, 64))  # sets the shapes of the lazy layers
    if options.fsdp:
        model, communicator = fully_shard(module), None  # the scaler recognizes DTensors and their ranks
    else:
        model, communicator = DistributedDataParallel(module), TorchDistributed(mean=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    scaler = ampscale.torch.GradScaler("cpu", init_scale=2.0**24, growth_interval=1000, communicator=communicator)
    start = restore(options.resume, module, scaler) if options.resume else 0

    data, applied = load(SEED), 0
    for step, batch in islice(enumerate(batches_of(data, start + options.steps, SEED)), start, None):
        scale = scaler.get_scale()
        loss = backward(model, scaler, batch)
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        is_applied = scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        applied += is_applied
        if dist.get_rank() == 0 and (not is_applied or step % 10 == 9):
            outcome = "applied" if is_applied else "skipped"
            print(f"step {step:3}  loss {loss:.4f}  {outcome}, scale {scale:.0f}")
    if dist.get_rank() == 0:
        print(f"{applied} of {options.steps} steps applied, next scale {scaler.get_scale():.0f}")
    if options.save:
        saved = {
            "model": get_model_state_dict(module, options=WHOLE),
            "scaler": scaler.state_dict(),
            "step": start + options.steps,
        }
        if dist.get_rank() == 0:
            torch.save(saved, options.save)


def backward(model, scaler, batch):
    """Compute the scaled gradients, averaged over the micro-batches of all ranks, and return the mean loss."""
    ranks, total = dist.get_world_size(), torch.zeros(())
    own_count = MICRO_BATCHES // ranks
    images, answers = (torch.from_numpy(array).chunk(ranks)[dist.get_rank()].chunk(own_count) for array in batch)
    for index, (inputs, targets) in enumerate(zip(images, answers, strict=True)):
        synchronize(model, index == own_count - 1)
        with torch.autocast("cpu", dtype=torch.float16):
            outputs = model(inputs)
        loss = torch.nn.functional.binary_cross_entropy_with_logits(outputs.float(), targets)
        scaler.scale(loss).backward()
        total += loss.detach() / MICRO_BATCHES
    # Divide the gradients, not the loss: the scales at which a divided loss overflows depend on the number of ranks.
    for parameter in model.parameters():
        parameter.grad /= own_count
    dist.all_reduce(total)
    return float(total)


def synchronize(model, is_last):
    """Make the next backward pass average the gradients over the ranks if *is_last* is True."""
    if isinstance(model, DistributedDataParallel):
        model.require_backward_grad_sync = is_last
    else:
        model.set_requires_gradient_sync(is_last)


def restore(path, module, scaler):
    """Load a saved state, and return the number of steps before it was saved."""
    saved = torch.load(path)
    set_model_state_dict(module, saved["model"], options=WHOLE)
    scaler.load_state_dict(saved["scaler"])
    return saved["step"]


if __name__ == "__main__":
    main()
