#!/usr/bin/env bash
# Everything here that needs a GPU, in one command of less than eight minutes: the tests marked `device`, and what the fused
# passes cost. It writes benchmarks/results/gpu-<device>.json; without a GPU it says so, writes nothing and exits with 2.
set -euo pipefail
cd "$(dirname "$0")/.."

python=${PYTHON:-.venv/bin/python}
if ! command -v "$python" >/dev/null; then
    echo "gpu_check: no $python here; make .venv with CuPy, or set PYTHON to an interpreter that has it" >&2
    exit 2
fi
exec "$python" benchmarks/gpu_check.py
