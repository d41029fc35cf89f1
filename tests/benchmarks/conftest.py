"""Makes the modules of benchmarks/ importable, as its programs import them."""

import sys
from pathlib import Path

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
if str(BENCHMARKS) not in sys.path:
    sys.path.append(str(BENCHMARKS))  # last, so that no module here shadows another one
