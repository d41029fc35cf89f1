"""What `import ampscale` brings in, in a fresh process: NumPy, array_api_compat, and nothing else."""

import json
import subprocess
import sys
import sysconfig

USE = """
import numpy as np
tree = {"w": np.ones(3, np.float16), "b": [np.ones((), np.float64), None, np.ones(1, np.complex64)]}
ampscale.unscale_check_and_norm(ampscale.scale(tree, 2.0), 2.0)
ampscale.clip_by_global_norm(tree, 1.0)
rule = ampscale.presets.paddle()
network = ampscale.Network(sum, tree["w"], vjp=lambda params, inputs: (params.sum(), lambda seed: params * seed))
optimizer = ampscale.optimizers.AdamW(network)
state = ampscale.init_train_state(network.params, optimizer, rule)
ampscale.train_step(network, optimizer, rule, state, 0)
"""


REPORT = """
import json
found = [name for name, module in sys.modules.items() if name not in before and getattr(module, "__spec__", None)]
print(json.dumps(found))
"""


def imported_after(code):
    """The modules from outside the standard library that a fresh interpreter imports to run *code*."""
    script = f"import sys; before = set(sys.modules)\n{code}\n{REPORT}"
    result = subprocess.run([sys.executable, "-I", "-W", "error", "-c", script], capture_output=True, check=True)
    known = (*sys.stdlib_module_names, sysconfig._get_sysconfigdata_name())
    return {name for name in json.loads(result.stdout) if name.partition(".")[0] not in known}


def packages(modules):
    """The names before the first dot."""
    return {name.partition(".")[0] for name in modules}


def test_importing_is_light():
    """The import loads nothing from outside the standard library but the two dependencies."""
    assert packages(imported_after("import ampscale")) == {"ampscale", "numpy", "array_api_compat"}


def test_using_numpy_arrays_imports_nothing_more():
    """Scaling, checking, clipping and a step on NumPy arrays load no other package, and no other room of this one."""
    before, after = imported_after("import ampscale"), imported_after("import ampscale" + USE)
    assert packages(after) == packages(before)
    assert {name for name in after - before if name.startswith("ampscale")} == set()
