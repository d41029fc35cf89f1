#!/usr/bin/env bash
# Run the tests marked `device` and the GPU benchmarks in less than eight minutes, and write FOLDER/gpu-<device>.json after the
# tests and after each row: gpu_check.sh [FOLDER], by default benchmarks/results. The exit status is 0 if nothing failed.
# Without a GPU, print an error, write nothing and exit with status 2.
# PYTHON is the interpreter, by default that of .venv. It requires array_api_compat and ml_dtypes; CuPy, torch or JAX; and for the
# tests pytest, pytest-xdist, hypothesis, array_api_strict, autograd and jsonschema.
set -euo pipefail
folder=${1:+$(realpath -m "$1")}
cd "$(dirname "$0")/.."

python=${PYTHON:-.venv/bin/python}
if ! command -v "$python" >/dev/null; then
    echo "gpu_check: $python does not exist; create .venv with CuPy, or set PYTHON to an interpreter that has it" >&2
    exit 2
fi
export PYTHONPATH="$PWD/src:$PWD/conformance/src${PYTHONPATH:+:$PYTHONPATH}"
exec "$python" benchmarks/gpu_check.py ${folder:+"$folder"}
