"""`import ampscale` in a new process imports NumPy and array_api_compat only."""

import json
import subprocess
import sys
import sysconfig

SCRIPT = """
import sys
initial = set(sys.modules)

def imports():
    return [name for name, module in sys.modules.items() if name not in initial and getattr(module, "__spec__", None)]

import array_api_compat.numpy  # NumPy imports charset_normalizer if it is installed
allowed = imports()
import ampscale
imported = imports()
import json
import os
os.environ["AMPSCALE_KERNELS"] = "numpy"  # otherwise the first pass imports numba, if it is installed
import numpy as np
tree = {"w": np.ones(3, np.float16), "b": [np.ones((), np.float64), None, np.ones(1, np.complex64)]}
ampscale.unscale_check_and_norm(ampscale.scale(tree, 2.0), 2.0)
ampscale.clip_by_global_norm(tree, 1.0)
rule = ampscale.presets.paddle()
network = ampscale.Network(sum, tree["w"], vjp=lambda params, inputs: (params.sum(), lambda seed: params * seed))
optimizer = ampscale.optimizers.AdamW(network)
state = ampscale.init_train_state(network.params, optimizer, rule)
ampscale.train_step(network, optimizer, rule, state, 0)
print(json.dumps([allowed, imported, imports()]))
"""


def test_only_numpy_and_array_api_compat_are_imported():
    """Scaling, checking, clipping and a step on NumPy arrays import no further package, and no further module of ampscale."""
    result = subprocess.run([sys.executable, "-I", "-W", "error", "-c", SCRIPT], capture_output=True, check=True)
    known = (*sys.stdlib_module_names, sysconfig._get_sysconfigdata_name())
    allowed, imported, used = (
        {name for name in names if name.partition(".")[0] not in known} for names in json.loads(result.stdout)
    )
    packages = {name.partition(".")[0] for name in allowed}
    assert packages >= {"numpy", "array_api_compat"}
    assert {name.partition(".")[0] for name in imported} == packages | {"ampscale"}
    assert {name.partition(".")[0] for name in used} == packages | {"ampscale"}
    assert {name for name in used - imported if name.startswith("ampscale")} == set()


LAZY = """
import ampscale
assert "paddle" in dir(ampscale)
for module in (ampscale.optimizers, ampscale.presets):
    assert set(dir(module)) == set(module.__all__)
assert ampscale.frameworks.paddle.GradScaler is ampscale.GradScaler is ampscale.paddle.GradScaler
for module in (ampscale, ampscale.frameworks):
    assert not hasattr(module, "tensorflow")
import sys, pytest
sys.modules["torch"] = None
message = '^[a-zA-Z.]+ requires torch: pip install "ampscale.torch."$'
TORCH = "from ampscale import torch", "from ampscale.frameworks import torch", "from ampscale.distributed import TorchDistributed"
for statement in TORCH:
    with pytest.raises(ModuleNotFoundError, match=message) as error:
        exec(statement)
    assert error.value.name == "torch"
for expression in ("ampscale.torch", "ampscale.frameworks.torch"):
    with pytest.raises(AttributeError, match=message):
        eval(expression)
"""
HELP = """
import sys
sys.modules.update(torch=None, mpi4py=None, jax=None)
import ampscale
assert not hasattr(ampscale, "torch")
from ampscale.distributed import *
assert SingleReplica is ampscale.SingleReplica
assert dir(ampscale.distributed) == ["Agreement", "Communicator", "RankError", "SingleReplica"]
help(ampscale)
help(ampscale.distributed)
"""


def test_modules_of_frameworks_are_imported_when_they_are_first_used():
    """
    `dir` lists their names before the import, and an unknown name raises an AttributeError.

    Without torch, both errors, of an import statement and of an attribute, contain the command that installs it.
    """
    subprocess.run([sys.executable, "-c", LAZY], check=True)


def test_help_needs_no_engine():
    """`help`, `dir`, `hasattr` and `import *` work if torch, mpi4py and JAX are missing."""
    result = subprocess.run([sys.executable, "-c", HELP], capture_output=True, check=True, text=True)
    assert "train_step(" in result.stdout
    assert "class SingleReplica" in result.stdout
