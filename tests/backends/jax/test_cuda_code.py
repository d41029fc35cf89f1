"""
PTX that XLA generates for an H200, compiled without a GPU by JAX's CUDA plug-in: quotients, and roundings to 16 bits.

Another process compiles the functions, because XLA reads its flags only once. Last run with jax and jax-cuda13-plugin 0.10.2 and
0.11.2, without other CUDA packages. With JAX's own division and conversions, 15 of the tests fail: float32 quotients are
`div.full.f32`, and flags and squares of 16-bit quotients are computed before rounding.
"""

import json
import os
import re
import subprocess
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

jax = pytest.importorskip("jax", reason="needs jax")

import ampscale  # noqa: E402

PLUGIN = "jax_plugins.xla_cuda13"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        find_spec("jax_plugins") is None or find_spec(PLUGIN) is None, reason="needs JAX's CUDA plug-in: jax-cuda13-plugin"
    ),
]
H200 = """
gpu_device_info {
  cuda_compute_capability { major: 9 }
  threads_per_block_limit: 1024 threads_per_warp: 32 threads_per_core_limit: 2048
  shared_memory_per_block: 49152 shared_memory_per_core: 233472 shared_memory_per_block_optin: 232448
  core_count: 132 fpus_per_core: 128 registers_per_core_limit: 65536 registers_per_block_limit: 65536
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
  memory_bandwidth: 4800000000000 l2_cache_size: 52428800 clock_rate_ghz: 1.98 device_memory_size: 150754820096
}
platform_name: "CUDA" device_description_str: "NVIDIA H200" runtime_version { major: 13 } dnn_version_info { major: 9 minor: 10 }
"""
DTYPES = ["float16", "bfloat16", "float32"]
SIZES = [1000, 10**8]
FLAGS = "--xla_dump_to={} --xla_dump_emitter_re=.*"  # jax 0.11 writes no PTX without the second flag
RULE = ampscale.presets.mindspore(2.0**24, 3, 2000)  # an overflow divides the scale by 3
ROUNDING = re.compile(r"cvt\.rn\.b?f16(x2)?\.f32")


def rounded(tree, scale):
    """Return the products of *tree* and *scale*, computed in float32 and rounded to the dtypes of *tree*."""
    return [(leaf.astype("float32") * scale).astype(leaf.dtype) for leaf in tree]


FUNCTIONS = {
    "scale": ampscale.scale,
    "unscale": ampscale.unscale,
    "unscale_and_check": ampscale.unscale_and_check,
    "unscale_check_and_norm": ampscale.unscale_check_and_norm,
    "clip_by_global_norm": lambda tree, _: ampscale.clip_by_global_norm(tree, 2.0),
    "all_finite after rounding": lambda tree, scale: ampscale.all_finite(rounded(tree, scale)),
    "global_norm after rounding": lambda tree, scale: ampscale.global_norm(rounded(tree, scale)),
}
UPDATE = {
    "update": lambda tree, scale: RULE.update(RULE.init(like=scale)._replace(scale=scale), ampscale.all_finite(tree)),
}


def compile_all(folder):
    """Print the PTX of each function and dtype as JSON, after XLA has written it to *folder*."""
    from jax.experimental import topologies

    topology = topologies.get_topology_desc("", "cuda", target_config=H200, topology="1x1x1")
    sharding = jax.sharding.SingleDeviceSharding(topology.devices[0])
    texts = {}
    for name, function in (FUNCTIONS | UPDATE).items():
        for dtype in DTYPES:
            tree = [jax.ShapeDtypeStruct((size,), dtype, sharding=sharding) for size in SIZES]
            jax.jit(function).trace(tree, jax.ShapeDtypeStruct((), "float32", sharding=sharding)).lower().compile()
            files = list(Path(folder).glob("*.ptx"))
            texts[f"{name} {dtype}"] = "".join(file.read_text() for file in files)
            for file in files:
                file.unlink()
    print(json.dumps(texts))  # noqa: T201


@cache
def code():
    """Return the PTX of each pair "NAME DTYPE", as a dict. Another process compiles the functions."""
    with TemporaryDirectory() as folder:
        environment = {**os.environ, "JAX_PLATFORMS": "cpu", "JAX_ENABLE_X64": "0", "XLA_FLAGS": FLAGS.format(folder)}
        environment["PYTHONPATH"] = os.pathsep.join(sys.path)
        command = [sys.executable, __file__, folder]
        result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout.splitlines()[-1])


def uses_of_unrounded(text):
    """Return the instructions that use the float32 operand of a rounding to 16 bits, except other roundings."""
    results = []
    for kernel in text.split(".entry")[1:]:
        instructions = re.findall(r"^\s*(?:@\S+\s+)?(\S+)\s+(?:\{[^}]*\}|[^,;{]+),([^;]*);", kernel, re.MULTILINE)
        operands = [(operation, set(re.findall(r"%r\d+", sources))) for operation, sources in instructions]
        unrounded = set().union(*(sources for operation, sources in operands if ROUNDING.match(operation)))
        results += [operation for operation, sources in operands if sources & unrounded and not ROUNDING.match(operation)]
    return results


@pytest.mark.clause("SCALING-unscale-divides", "BACKENDS-bit-identical", "MACHINE-divide-on-backoff")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", FUNCTIONS | UPDATE)
def test_float32_quotients_are_correctly_rounded_on_cuda(name, dtype):
    """`div.full` and `div.approx` are not correctly rounded, and `.ftz` would replace subnormal numbers by zeros."""
    text = code()[f"{name} {dtype}"]
    assert ".entry" in text
    assert re.findall(r"\b(?:div\.full|div\.approx|rcp\.approx|sqrt\.approx)[.\w]*|\b\w+[.\w]*\.ftz[.\w]*", text) == []


@pytest.mark.clause("SCALING-round-once", "OVERFLOW-both-sides", "NORMS-fused")
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_unrounded_values_are_not_used_on_cuda(name, dtype):
    """The compiled code contains instructions that round, and no other instruction uses the operand of one of them."""
    text = code()[f"{name} {dtype}"]
    assert ROUNDING.search(text)
    assert uses_of_unrounded(text) == []


if __name__ == "__main__":
    compile_all(*sys.argv[1:])
