"""The loops equal the published scalers that are installed, and import nothing of ampscale."""

import ast
from pathlib import Path

import numpy as np
import pytest
from presets.loop import Loop
from presets.loops_jax import JmpCompiled
from presets.loops_torch import GradScaler, ShardedGradScaler
from presets.patterns import differing, tree_of_loop

SETTINGS = [(64.0, 2.0, 0.5, 3), (1000.1, 1.1, 0.7, 2), (2.0**126, 3.0, 0.3, 1), (2.0**-147, 2.0, 0.5, 1)]


class TorchLoop(Loop):
    """Loop that calls torch's own update function, with the scale and the count as tensors."""

    def __init__(self, torch, update, init_scale, growth_factor, backoff_factor, growth_interval):
        self._growth_factor, self._backoff_factor, self._growth_interval = growth_factor, backoff_factor, growth_interval
        self._scale, self._growth_tracker = torch.tensor(init_scale), torch.tensor(0, dtype=torch.int32)
        self.torch, self.update = torch, update

    def _step(self, finite):
        self._scale, self._growth_tracker = self._scale.clone(), self._growth_tracker.clone()
        self.update(self, self.torch.tensor(0.0 if finite else 1.0))
        return np.float32(self._scale.item())


@pytest.mark.parametrize("setting", SETTINGS)
def test_loops_equal_the_updates_of_torch(setting):
    """The updates are the kernel of GradScaler, and the method of ShardedGradScaler for the CPU, which is written in Python."""
    torch = pytest.importorskip("torch", reason="needs torch")
    sharded = pytest.importorskip("torch.distributed.fsdp.sharded_grad_scaler", reason="needs torch.distributed")

    def kernel(loop, found_inf):
        torch._amp_update_scale_(loop._scale, loop._growth_tracker, found_inf, *setting[1:])

    init, growth_factor, backoff_factor, growth_interval = setting
    loops = GradScaler(*setting), ShardedGradScaler(init, backoff_factor, growth_factor, growth_interval)
    for loop, update in zip(loops, (kernel, sharded.ShardedGradScaler._amp_update_scale_cpu_), strict=True):
        assert differing(tree_of_loop(TorchLoop(torch, update, *setting), 0.0), tree_of_loop(loop, 0.0)) == 0


@pytest.mark.parametrize("factor", [2, 3, 7, 10, 1.1])
def test_compiled_jmp_loop_equals_a_division_compiled_by_jax(factor):
    """XLA compiles the division to a product with the float32 reciprocal. A thousand scales are compared."""
    jax = pytest.importorskip("jax", reason="needs jax")
    scales = np.linspace(16, 2000, 1000, dtype=np.float32)
    compiled = np.asarray(jax.jit(lambda scale: scale / factor)(scales))
    loops = [JmpCompiled(scale, 3, factor).after(finite=False)[1] for scale in scales]
    assert compiled.tobytes() == np.asarray(loops).tobytes()


def test_loops_do_not_import_ampscale():
    """The loops import the standard library, NumPy and one another."""
    files = sorted(Path(__file__).parent.glob("loop*.py"))
    nodes = [node for file in files for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))]
    imported = {node.module for node in nodes if isinstance(node, ast.ImportFrom)}
    imported |= {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    assert len(files) == 8
    assert imported <= {"numpy", "dataclasses", "math", "presets.loop"}
