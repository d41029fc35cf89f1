"""Write docs/supported.md from supported.json, which `supported.py --record` writes."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
RESULT = Path(__file__).with_name("supported.json")
PAGE = ROOT / "docs" / "supported.md"
HEAD = """# Supported versions

Results of the tests, without the slow ones, with the oldest supported packages (the lower bounds in `pyproject.toml`) and
with the newest. "none" means that the tests of a library were left out. [The policy](policy.md#supported-versions) states when
a bound rises.
"""
PACKAGES = {"numpy": "NumPy", "array-api-compat": "array-api-compat", "torch": "torch", "jax": "JAX"}


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(json.loads(RESULT.read_text("utf-8"))), "utf-8")


def page(result: dict[str, Any]) -> str:
    """Return the page as Markdown."""
    return "\n".join([HEAD, *table(result["runs"]), "", "## Not run", "", *not_run(result), ""])


def table(runs: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the lines of a table with the *runs*."""
    yield f"| packages | Python | {' | '.join(PACKAGES.values())} | passed | skipped | failed | date |"
    yield "|---" * (len(PACKAGES) + 6) + "|"
    for run in runs:
        tested = {"numpy", "array-api-compat", *run["libraries"]}
        versions = [run["versions"].get(name, "none") if name in tested else "none" for name in PACKAGES]
        counts = [run["counts"].get(kind, 0) for kind in ("passed", "skipped")]
        failed = sum(run["counts"].get(kind, 0) for kind in ("failed", "error", "errors"))
        yield f"| {' | '.join(map(str, [run['packages'], run['python'], *versions, *counts, failed, run['date']]))} |"


def not_run(result: dict[str, Any]) -> Iterator[str]:
    """Yield a line for each environment that has not been run, with the reason."""
    yield from (f"- {name}: {reason}" for name, reason in result["not_run"].items())


if __name__ == "__main__":
    main()
