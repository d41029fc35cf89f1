"""Count the points at which fault injection raised an error, by their outcome: `make interruptions`."""

import json
import re
import subprocess
import sys
from ast import literal_eval
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
RESULT = Path(__file__).with_name("interruptions.json")
TESTS = ("tests/frameworks/test_interruptions.py", "tests/frameworks/torch/test_interruptions.py")


def main() -> int:
    """Run the tests; if all pass, store the sums of the counts that they print, if any. Return the exit status."""
    command = [sys.executable, "-m", "pytest", "-q", "--capture=no", "-n", "0", *TESTS, *sys.argv[1:]]
    tests = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    sys.stdout.write(tests.stdout)
    counts = [literal_eval(text) for text in re.findall(r"\d+ points: (\{.*\})", tests.stdout)]
    outcomes: Counter[str] = sum(map(Counter, counts), Counter())
    if tests.returncode == 0 and counts:
        make = " ".join(["make interruptions", *sys.argv[1:]])
        result = {"command": make, "calls": len(counts), "outcomes": dict(sorted(outcomes.items()))}
        RESULT.write_text(json.dumps(result, indent=1) + "\n", "utf-8")
    return tests.returncode


if __name__ == "__main__":
    sys.exit(main())
