"""Tests that every example runs, and that examples for several ranks print the same steps on any number of ranks."""

import ast
import os
import re
import subprocess
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
ENVIRONMENTS = sorted(ROOT.glob(".venv-oracles/*/bin/python"))  # made by tools/environments, with packages that .venv lacks
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH")]))}
WARN = ["lightning_trainer.py", "transformers_trainer.py"]  # Lightning 2.6.6 and transformers 5.23.0 themselves cause warnings
LAUNCHERS = {"fsdp2_loop.py": ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]}
SLOW_LOOPS = ("accelerate_loop.py", "lightning_trainer.py", "transformers_trainer.py", "fsdp2_loop.py")
TORCH_LOOPS = ["torch_loop.py", *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW_LOOPS)]


def imported(file):
    """Yield the top-level modules that a file imports."""
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module.partition(".")[0]


def skip_without(*libraries):
    """Skip the test if a library is not installed."""
    missing = sorted(library for library in set(libraries) if find_spec(library) is None)
    if missing:
        pytest.skip(f"needs {', '.join(missing)}")


def interpreter_with(libraries):
    """Return the path of the running interpreter or one of `ENVIRONMENTS` that has the libraries; skip the test if none has."""
    code = "import sys; from importlib.util import find_spec; sys.exit(not all(map(find_spec, sys.argv[1:])))"
    for python in (sys.executable, *map(str, ENVIRONMENTS)):
        if not subprocess.run([python, "-c", code, *libraries], env=ENVIRONMENT, check=False).returncode:
            return python
    return skip_without(*libraries)


@cache
def printed(name):
    """Return the lines that an example prints in a new interpreter, in which a warning is an error."""
    command = [interpreter_with(set(imported(EXAMPLES / name))), *LAUNCHERS.get(name, []), str(EXAMPLES / name)]
    variables = {"PYTHONWARNINGS": "default" if name in WARN else "error", "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    result = subprocess.run(
        command, cwd=EXAMPLES, env=ENVIRONMENT | variables, capture_output=True, text=True, check=False, timeout=120
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(file.name for file in EXAMPLES.glob("*.py")))
def test_examples_run_and_print_skipped_and_applied_steps(name):
    """Examples for several ranks run on one rank, unless they need a launcher."""
    assert {"skipped", "applied"} <= {word.strip(",") for line in printed(name) for word in line.split()}


@pytest.mark.parametrize("name", TORCH_LOOPS)
def test_resumed_torch_loops_repeat_the_steps_after_the_checkpoint(name):
    """Six of twelve steps follow the checkpoint. Each script compares the final states itself."""
    *steps, end = [line for line in printed(name) if line.startswith(("step ", "The resumed run "))]
    assert len(steps) == 18
    assert steps[12:] == steps[6:12]
    assert end == "The resumed run has ended with the same state."


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "omitted"),
    [("accelerate_loop.py", ""), ("lightning_trainer.py", ""), ("transformers_trainer.py", r"loss \S+  ")],
)
def test_trainers_take_the_same_steps_as_the_torch_loop(name, omitted):
    """Losses are compared with four decimals, except for Transformers, whose callback does not receive the loss."""
    expected = [re.sub(omitted, "", line) for line in printed("torch_loop.py") if line.startswith("step ")]
    assert [line for line in printed(name) if line.startswith("step ")] == expected


# What the code on the pages requires: parts of a run with torch, a model of MindSpore, and a scaler of Paddle made as on a GPU.
TORCH = """
import torch


class Regression(torch.nn.Linear):
    def forward(self, inputs):
        return {"loss": super().forward(inputs).square().mean()}


model = Regression(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=4)
loader = torch.utils.data.DataLoader(torch.ones(8, 8))
data = [{"inputs": torch.ones(8)}] * 8
"""
MINDSPORE = """
import numpy as np
import mindspore
from mindspore import nn

layer = nn.Dense(4, 1)
weights = mindspore.ParameterTuple(layer.trainable_params())
optimizer, x = nn.SGD(weights, 0.1), mindspore.Tensor(np.ones((8, 4), np.float32))


def network(x):
    return layer(x).mean()


"""
PADDLE = """
from types import SimpleNamespace
from unittest import mock
import paddle

tracer = SimpleNamespace(_expected_place=SimpleNamespace(is_gpu_place=lambda: True))
with paddle.amp.auto_cast(), mock.patch.object(paddle.amp.grad_scaler, "_dygraph_tracer", return_value=tracer):
    scaler = paddle.amp.GradScaler()
"""


def code_on(page, text):
    """Return the block of code on a page in docs/ that contains *text*."""
    blocks = re.findall(r"^```py\n(.*?)^```$", (ROOT / "docs" / page).read_text("utf-8"), re.MULTILINE | re.DOTALL)
    [code] = [block for block in blocks if text in block]
    return code


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "text", "library", "prelude"),
    [
        ("porting.md", "import paddle", "paddle", ""),
        ("porting.md", "mindspore", "mindspore", MINDSPORE),
        ("paddle.md", "paddle.amp", "paddle", PADDLE),
        ("lightning.md", "import lightning", "lightning", ""),
        ("lightning.md", "import Accelerator", "accelerate", TORCH),
        ("lightning.md", "import Trainer", "transformers", TORCH),
    ],
)
def test_code_on_the_pages_of_frameworks_runs(page, text, library, prelude, tmp_path):
    """It runs on the CPU."""
    script = tmp_path / "script.py"  # MindSpore reads the source of its functions
    script.write_text(prelude + code_on(page, text).replace('"cuda"', '"cpu"'), "utf-8")
    command = [interpreter_with({library}), "-W", "ignore", str(script)]
    result = subprocess.run(command, cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, check=False, timeout=120)
    assert result.returncode == 0, result.stderr


def test_methods_on_the_page_of_lightning_are_those_of_the_example():
    """The page leaves out the docstrings."""
    functions = ast.parse(code_on("lightning.md", "def optimizer_step")).body
    example = {
        node.name: node.body[1:]
        for node in ast.walk(ast.parse((EXAMPLES / "lightning_trainer.py").read_text("utf-8")))
        if isinstance(node, ast.FunctionDef)
    }
    assert len(functions) == 2
    for function in functions:
        assert list(map(ast.dump, function.body)) == list(map(ast.dump, example[function.name]))


@pytest.mark.parametrize("name", [file.stem.removeprefix("start_") for file in sorted(EXAMPLES.glob("start_*.py"))])
def test_start_examples_contain_the_loop_of_their_page(name):
    """Each adds a docstring, and prints a result. The page on ranks has the loop for MPI."""
    page = (ROOT / "docs" / f"{'ranks' if name == 'mpi' else name}.md").read_text("utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    example = (EXAMPLES / f"start_{name}.py").read_text("utf-8")
    assert [block for block in blocks if block in example and "for _ in range(" in block]


def run_on_ranks(engine, ranks, *options):
    """Return the step lines of an example, without loss and accuracy, whose last digits depend on the order of summation."""
    file = str(EXAMPLES / f"ranks_{engine}.py")
    command = {
        "mpi": [str(Path(sys.executable).with_name("mpiexec")), "-n", str(ranks), sys.executable, file],
        "torch": [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks), file],
        "jax": [sys.executable, file, "--devices", str(ranks)],
    }[engine]
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    result = subprocess.run(
        [*command, *options], capture_output=True, text=True, check=False, timeout=180, cwd=EXAMPLES, env=environment
    )
    assert result.returncode == 0, result.stderr
    return [re.sub(r"(loss|accuracy) \S+", "", line) for line in result.stdout.splitlines() if "step" in line]


@pytest.mark.slow
@pytest.mark.clause("REPLICAS-same-scale", "REPLICAS-load-keeps-scale")
@pytest.mark.parametrize(
    ("engine", "libraries", "options"),
    [("mpi", ["mpi4py", "autograd"], []), ("torch", ["torch"], []), ("torch", ["torch"], ["--fsdp"]), ("jax", ["jax"], [])],
)
def test_scales_and_applied_steps_are_the_same_on_any_number_of_ranks(engine, libraries, options, tmp_path):
    """Four steps are skipped. A run that is resumed on a different number of ranks has the same scales and steps, too."""
    skip_without("sklearn", *libraries)
    lines = run_on_ranks(engine, 1, "--steps", "40")
    assert sum("skipped" in line for line in lines) == 4
    assert run_on_ranks(engine, 4, "--steps", "40", *options) == lines
    saved = str(tmp_path / "run.npz")
    first = run_on_ranks(engine, 4, "--steps", "20", "--save", saved, *options)
    resumed = run_on_ranks(engine, 2, "--steps", "20", "--resume", saved, *options)
    assert first[:-1] + resumed[:-1] == lines[:-1]
