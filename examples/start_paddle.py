"""
A float16 training loop on torch with Paddle's scaler: `python examples/start_paddle.py`.

The first scale is too large on purpose: the first steps overflow and are skipped. Requires ampscale[torch].
"""

import torch

from ampscale.paddle import GradScaler

torch.manual_seed(0)
model = torch.nn.Conv2d(3, 2, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
scaler = GradScaler(init_loss_scaling=2.0**24)  # too large on purpose: the first steps overflow
data, skipped = torch.rand(10, 3, 32, 32), 0

for _ in range(20):
    with torch.autocast("cpu", dtype=torch.float16):
        outputs = model(data)
    loss = outputs.float().square().mean()
    scaler.scale(loss).backward()
    if not scaler.step(optimizer):  # unscales and checks the gradients; True if the optimizer stepped
        skipped += 1
    scaler.update()
    optimizer.zero_grad()  # Paddle's clear_grad()

print(f"{20 - skipped} applied, {skipped} skipped, loss {loss:.4f}, scale {scaler.get_loss_scaling()}")
