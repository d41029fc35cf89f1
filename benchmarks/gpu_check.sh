#!/usr/bin/env bash
# Run the tests marked `device` and the GPU benchmarks, in less than eight minutes, and write benchmarks/results/gpu-<device>.json.
# Without a GPU, print an error, write nothing and exit with status 2.
# PYTHON is the interpreter, by default that of .venv; it requires pytest, hypothesis, array_api_strict, and CuPy, torch or JAX.
set -euo pipefail
cd "$(dirname "$0")/.."

python=${PYTHON:-.venv/bin/python}
if ! command -v "$python" >/dev/null; then
    echo "gpu_check: $python does not exist; create .venv with CuPy, or set PYTHON to an interpreter that has it" >&2
    exit 2
fi
export PYTHONPATH="$PWD/src${PYTHONPATH:+:$PYTHONPATH}"
exec "$python" benchmarks/gpu_check.py
