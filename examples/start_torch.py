"""
A float16 training loop in torch with the drop-in replacement of torch's scaler: `python examples/start_torch.py`.

The first scale is too large on purpose: the first steps overflow and are skipped. Requires ampscale[torch].
"""

import torch

from ampscale.torch import GradScaler  # instead of: from torch.amp import GradScaler

device = "cpu"  # or "cuda"
torch.manual_seed(0)
model = torch.nn.Linear(8, 1).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=100)
scaler = GradScaler(device, init_scale=2.0**24)  # too large on purpose: the first steps overflow
inputs, skipped = torch.randn(32, 8, device=device), 0

for _ in range(20):
    optimizer.zero_grad()
    with torch.autocast(device, dtype=torch.float16):
        outputs = model(inputs)
    loss = torch.nn.functional.mse_loss(outputs.float(), inputs.sum(1, keepdim=True))
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)  # only needed because the gradients are clipped
    torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
    if scaler.step(optimizer):  # True if the optimizer stepped
        schedule.step()
    else:
        skipped += 1
    scaler.update()

print(f"{20 - skipped} applied, {skipped} skipped, loss {loss:.4f}, scale {scaler.get_scale()}")
