#!/usr/bin/env bash
# Everything here that needs a GPU, in one command of less than eight minutes: the tests marked `device`, and what the verbs cost
# beside their rivals. It writes benchmarks/results/gpu-<device>.json; without a GPU it says so, writes nothing and exits with 2.
# PYTHON is the interpreter, by default .venv's; it needs pytest, hypothesis, array_api_strict, and CuPy, torch or JAX.
set -euo pipefail
cd "$(dirname "$0")/.."

python=${PYTHON:-.venv/bin/python}
if ! command -v "$python" >/dev/null; then
    echo "gpu_check: no $python here; make .venv with CuPy, or set PYTHON to an interpreter that has it" >&2
    exit 2
fi
export PYTHONPATH="$PWD/src${PYTHONPATH:+:$PYTHONPATH}"
exec "$python" benchmarks/gpu_check.py
