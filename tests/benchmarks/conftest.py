"""Search path for the modules of benchmarks/, whose programs import them without a package."""

import sys
from pathlib import Path

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
if str(BENCHMARKS) not in sys.path:
    sys.path.append(str(BENCHMARKS))  # last, so that no module here shadows another one
