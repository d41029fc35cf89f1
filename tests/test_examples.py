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


@pytest.mark.slow
@pytest.mark.parametrize(("library", "model"), [("paddle", ""), ("mindspore", MINDSPORE)])
def test_code_of_frameworks_on_the_porting_page_runs(library, model, tmp_path):
    """The page shows no model for MindSpore."""
    page = (ROOT / "docs" / "porting.md").read_text("utf-8")
    [code] = [code for code in re.findall(r"^```py\n(.*?)^```$", page, re.MULTILINE | re.DOTALL) if library in code]
    script = tmp_path / "script.py"  # MindSpore reads the source of its functions
    script.write_text(model + code, "utf-8")
    command = [interpreter_with({library}), "-W", "ignore", str(script)]
    result = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=False, timeout=120)
    assert result.returncode == 0, result.stderr


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
    """A run that is resumed on a different number of ranks has the same scales and steps, too."""
    skip_without("sklearn", *libraries)
    lines = run_on_ranks(engine, 1, "--steps", "40")
    assert sum("skipped" in line for line in lines) == 4
    assert run_on_ranks(engine, 4, "--steps", "40", *options) == lines
    saved = str(tmp_path / "run.npz")
    first = run_on_ranks(engine, 4, "--steps", "20", "--save", saved, *options)
    resumed = run_on_ranks(engine, 2, "--steps", "20", "--resume", saved, *options)
    assert first[:-1] + resumed[:-1] == lines[:-1]
