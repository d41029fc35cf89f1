"""
A torch module trained in float16 by MindFormers' training cell: `python examples/torch_module.py`.

A module that returns its loss can be the network of a training cell, with an optimizer of torch. The first scale is too large on
purpose: steps that overflow are skipped, and change neither the parameters nor the optimizer state. Requires ampscale[torch].
"""

import torch

import ampscale


class Regression(torch.nn.Module):
    """Two layers with float32 parameters that compute in float16."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))

    def forward(self, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the mean squared error: float32, shape ()."""
        with torch.autocast("cpu", dtype=torch.float16):
            outputs = self.layers(inputs)
        return torch.nn.functional.mse_loss(outputs.float(), targets)


def main() -> None:
    """Train for 60 steps, and print every tenth step and each skipped one."""
    torch.manual_seed(0)
    inputs = torch.randn(256, 8)
    targets = inputs.sum(1, keepdim=True).sin()

    model = Regression()
    cell = ampscale.MFTrainOneStepCell(
        model,
        torch.optim.AdamW(model.parameters(), lr=0.01),
        use_clip_grad=True,
        max_grad_norm=1.0,
        scale_sense=ampscale.DynamicLossScaleUpdateCell(loss_scale_value=2**24, scale_factor=2, scale_window=20),
    )
    for step in range(60):
        loss, overflow, scale, _, norm = cell(inputs, targets)
        if overflow or step % 10 == 9:
            outcome = "skipped" if overflow else f"applied, norm {norm:.3f}"
            print(f"step {step:2}  loss {loss:.4f}  {outcome}, next scale {scale:.0f}")


if __name__ == "__main__":
    main()
