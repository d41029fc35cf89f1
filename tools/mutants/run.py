"""
Mutation testing of the library: a seeded sample of mutants, each tested with the tests that mirror its file.

Run it with `make mutants`. Each worker has a copy of the working tree. A log keeps the results, so that an interrupted run can be
continued. `reasons.json` states for surviving mutants why the mutation has no visible effect.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from hashlib import sha256
from pathlib import Path
from queue import Queue
from typing import Any, ClassVar

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
SOURCE = Path("src/ampscale")
PACKAGES = ("core", "functional.py", "frameworks", "checkpoints", "simulation")
GENERATOR = ROOT / ".venv-mutants/bin/python"
NO_TESTS = 5  # pytest's exit code; any code except this and 0, or a timeout, means that the mutant is killed
SEED = 13  # of the sample
WORKERS = 2
FOLDER = ROOT / "build" / "mutants"  # for the log and the copies of the working tree
LEAST = 0.95  # minimum share of killed mutants
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
Mutant = dict[str, Any]


def copy_working_tree(folder: Path) -> None:
    """Copy all files that git does not ignore into *folder*."""
    listing = ["git", "ls-files", "-coz", "--exclude-standard"]
    files = subprocess.run(listing, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, files.split("\0")):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_file():  # a deleted file is still listed
            shutil.copy2(ROOT / name, folder / name)


class Worker:
    """Process that tests mutants in a copy of the working tree."""

    _passed: ClassVar[dict[tuple[str, ...], float]] = {}  # duration of the tests without a mutant, in seconds

    def __init__(self, folder: Path) -> None:
        copy_working_tree(folder)
        path = os.pathsep.join(str(folder / source) for source in ("src", "conformance/src"))
        # Write no bytecode later: Python would load that of a previous mutant with the same size and modification second.
        subprocess.run([sys.executable, "-m", "compileall", "-q", str(folder / "src"), str(folder / "tests")], check=True)
        environment = {**os.environ, **ONE_THREAD, "PYTHONPATH": path, "JAX_ENABLE_X64": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, str(folder / "tools/mutants/worker.py")]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self._process = subprocess.Popen(command, cwd=folder, env=environment, **pipes)

    def test(self, mutant: Mutant) -> Mutant:
        """Return *mutant* with its outcome. Before the first mutant of a file, check that its tests pass without a mutant."""
        stages = stages_of(mutant["file"])
        test_files = tuple(sorted(name for stage in stages for name in stage))
        if test_files not in self._passed:
            result = self._run(mutant, stages, 900, source=None)
            if result["code"] != 0:
                raise RuntimeError(f"the tests of {mutant['file']} must pass without a mutant, got {result['tail']}")
            self._passed[test_files] = result["seconds"]
        result = self._run(mutant, stages, 3 * self._passed[test_files] + 20)
        if result["code"] == NO_TESTS:
            raise RuntimeError(f"{mutant['file']} must have tests, got none in {stages}")
        return {**mutant, **result, "source": None, "outcome": "killed" if result["code"] != 0 else "survived"}

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait()

    def _run(self, mutant: Mutant, stages: list[list[str]], limit: float, **changed: Any) -> dict[str, Any]:
        """Return the result of the worker process for a task: *mutant*, with *changed* members."""
        assert self._process.stdin
        assert self._process.stdout
        print(json.dumps({**mutant, "stages": stages, "limit": limit, **changed}), file=self._process.stdin, flush=True)
        result: dict[str, Any] = json.loads(self._process.stdout.readline())
        return result


@cache
def stages_of(file: str) -> list[list[str]]:
    """Return the test files of *file* in stages: those with its name, the others of its folder, and the others of its package."""
    path = Path(file).relative_to(SOURCE)
    folder, package = ROOT / "tests" / path.parent, ROOT / "tests" / path.parts[0]
    groups = [folder.glob(f"test_{path.stem.lstrip('_')}*.py")]
    if path.parent != Path():
        find = folder.rglob if path.stem.startswith("_") else folder.glob
        groups += [find("test_*.py"), package.glob("test_*.py")]
    stages: list[list[str]] = []
    seen: set[str] = set()
    for group in groups:
        stage = [name for name in (str(test.relative_to(ROOT)) for test in sorted(group)) if name not in seen]
        seen.update(stage)
        if stage:
            stages.append(stage)
    return stages


def generated(file: str) -> list[Mutant]:
    """Return all mutants of *file*, which are cached until the file changes."""
    version = (HERE / "generate.py").read_bytes() + file.encode() + (ROOT / file).read_bytes()
    cached = FOLDER / f"{sha256(version).hexdigest()}.jsonl"
    if not cached.exists():
        command = [str(GENERATOR), str(HERE / "generate.py"), file]
        cached.write_text(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout)
    return [json.loads(line) for line in cached.read_text().splitlines()]


def sample(packages: Sequence[str], size: int) -> tuple[int, list[Mutant]]:
    """Return the number of mutants and the sample. A change of one file does not change the ranking of other files' mutants."""
    roots = [ROOT / SOURCE / name for name in packages]
    files = sorted(path for root in roots for path in ([root] if root.is_file() else root.rglob("*.py")))
    mutants = [mutant for path in files for mutant in generated(str(path.relative_to(ROOT)))]
    ranked = sorted(mutants, key=lambda mutant: sha256(f"{SEED} {_name(mutant)}".encode()).digest())
    return len(mutants), ranked[:size]


def tested(mutants: list[Mutant]) -> Iterator[Mutant]:
    """Yield each of *mutants* with its outcome. Mutants that the log lists as killed are not tested again."""
    log = FOLDER / "log.jsonl"
    rows = map(json.loads, log.read_text().splitlines() if log.exists() else [])
    killed = {row["key"]: row for row in rows if row["outcome"] == "killed"}
    idle: Queue[Worker] = Queue()
    for number in range(WORKERS):
        shutil.rmtree(FOLDER / str(number), ignore_errors=True)
        idle.put(Worker(FOLDER / str(number)))

    def outcome(mutant: Mutant) -> Mutant:
        worker = idle.get()
        try:
            return killed.get(mutant["key"]) or worker.test(mutant)
        finally:
            idle.put(worker)

    with ThreadPoolExecutor(WORKERS) as pool, log.open("a") as file:
        for result in pool.map(outcome, mutants):
            if result["key"] not in killed:
                print(json.dumps(result), file=file, flush=True)
            yield result
    for _ in range(WORKERS):
        idle.get().close()


def report(count: int, results: list[Mutant]) -> dict[str, Any]:
    """Return the contents of the result file."""
    reasons = {_name(row): row["reason"] for row in json.loads((HERE / "reasons.json").read_text())}
    packages: dict[str, Counter[str]] = {}
    for mutant in results:
        package = Path(mutant["file"]).relative_to(SOURCE).parts[0]
        packages.setdefault(package, Counter(tested=0, killed=0, survived=0)).update(["tested", mutant["outcome"]])
    total = sum(packages.values(), Counter())
    survivors = [
        {**{key: mutant[key] for key in ("file", "line", "operator", "before", "after")}, "reason": reasons.get(_name(mutant))}
        for mutant in results
        if mutant["outcome"] == "survived"
    ]
    return {
        "command": "make mutants",
        "seed": SEED,
        "mutants": count,
        **total,
        "share": round(total["killed"] / total["tested"], 4),
        "packages": packages,
        "operators": Counter(mutant["operator"] for mutant in results),
        "survivors": survivors,
    }


def _name(mutant: Mutant) -> tuple[str, ...]:
    """Return a key that identifies a mutant and does not depend on its line number."""
    return tuple(mutant[key] for key in ("file", "before", "after"))


def main() -> int:
    """Test a sample and write the result; return 1 if too few mutants are killed or a survivor lacks a reason."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("packages", nargs="*", default=PACKAGES, help="folders and files below src/ampscale")
    parser.add_argument("--count", type=int, default=700)
    arguments = parser.parse_args()
    FOLDER.mkdir(parents=True, exist_ok=True)
    count, mutants = sample(arguments.packages, arguments.count)
    results = []
    for mutant in tested(mutants):
        results.append(mutant)
        if mutant["outcome"] == "survived":
            lines = [f"{mutant['file']}:{mutant['line']}: {mutant['operator']}", f"- {mutant['before']}", f"+ {mutant['after']}"]
            print("\n  ".join(lines), flush=True)
    result = report(count, sorted(results, key=lambda mutant: (mutant["file"], mutant["line"])))
    (HERE / "result.json").write_text(json.dumps(result, indent=1) + "\n")
    print(f"{result['killed']} of {result['tested']} mutants killed, of {count} in all: {result['share']:.1%}")
    return int(result["share"] < LEAST or any(survivor["reason"] is None for survivor in result["survivors"]))


if __name__ == "__main__":
    sys.exit(main())
