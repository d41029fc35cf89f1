"""Comparison of the test vectors in spec/ with the oracle: `python -m spec_vectors` prints all differences."""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ampscale_conformance.model.bits import Bits
from ampscale_conformance.oracle.tensors import same

from .recompute import DECISIONS, KINDS, recomputed

FOLDER = Path(__file__).parents[2] / "spec" / "vectors"


@dataclass(frozen=True)
class Difference:
    """
    Value of a vector that differs from the oracle's.

    Args:
        file: Name of the file without its suffix.
        id: Id of the vector.
        path: Path of the value in the vector, such as "expect[1].parameters[0]".
        stored: Value in the file; None if it is absent.
        computed: Value of the oracle; None if it must be absent.
    """

    file: str
    id: str
    path: str
    stored: Any
    computed: Any

    def __str__(self) -> str:
        return f"{self.file}: {self.id}: {self.path}\n- {json.dumps(self.stored)}\n+ {json.dumps(self.computed)}\n"


@dataclass
class VectorReport:
    """Differences, and the numbers of vectors by kind: recomputed, decisions (which are not computed), and of an unknown kind."""

    differences: list[Difference] = field(default_factory=list)
    recomputed: Counter[str] = field(default_factory=Counter)
    decisions: Counter[str] = field(default_factory=Counter)
    unknown: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        lines = [_counted("recomputed", self.recomputed), _counted("decisions, not computed", self.decisions)]
        if self.unknown:
            lines.append(_counted("of an unknown kind", self.unknown))
        lines.append(f"differences: {len(self.differences)}")
        return "".join(map(str, self.differences)) + "".join(f"{line}\n" for line in lines)


def compare(folder: Path) -> VectorReport:
    """
    Compare all vectors of a folder with the oracle.

    Raises:
        FileNotFoundError: The folder has no vectors.
    """
    report = VectorReport()
    for path in _files(folder):
        for case, members in _recomputed(json.loads(path.read_text("utf-8")), report):
            for member, computed in members.items():
                report.differences += _differences(path.stem, case["id"], member, case.get(member), computed)
    return report


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 1 if a value differs or a kind of vector is unknown, otherwise 0."""
    parser = argparse.ArgumentParser(prog="python -m spec_vectors", description=(__doc__ or "").strip())
    parser.add_argument("folder", nargs="?", type=Path, default=FOLDER, help="the folder of the vectors")
    options = parser.parse_args(argv)
    try:
        report = compare(options.folder)
        sys.stdout.write(str(report))
    except (FileNotFoundError, ValueError) as error:
        parser.error(str(error))
    return 1 if report.differences or report.unknown else 0


def _files(folder: Path) -> list[Path]:
    files = [path for path in sorted(folder.glob("*.json")) if path.stem != "schema"]
    if not files:
        raise FileNotFoundError(f"there are no vectors in {folder}")
    return files


def _recomputed(file: Mapping[str, Any], report: VectorReport) -> Iterator[tuple[Mapping[str, Any], dict[str, Any]]]:
    """Yield each vector that can be recomputed with its computed members, and count all vectors in *report*."""
    for case in file["cases"]:
        kind = case["kind"]
        if kind in KINDS:
            report.recomputed[kind] += 1
            yield case, recomputed(file["chapter"], case)
        elif kind in DECISIONS:
            report.decisions[kind] += 1
        else:
            report.unknown[kind] += 1


def _differences(file: str, id: str, path: str, stored: Any, computed: Any) -> Iterator[Difference]:
    """Yield all differences between two values. NaNs are equal."""
    pairs = _pairs(stored, computed)
    if pairs is None and not _equal(stored, computed):
        yield Difference(file, id, path, stored, computed)
    for key, left, right in pairs or []:
        suffix = f"[{key}]" if isinstance(key, int) else f".{key}"
        yield from _differences(file, id, path + suffix, left, right)


def _pairs(stored: Any, computed: Any) -> list[tuple[Any, Any, Any]] | None:
    """Return (key or index, stored item, computed item) for two containers with equal keys or lengths; otherwise None."""
    if isinstance(stored, dict) and isinstance(computed, dict) and set(stored) == set(computed) and "bits" not in stored:
        return [(key, stored[key], computed[key]) for key in stored]
    if isinstance(stored, list) and isinstance(computed, list) and len(stored) == len(computed):
        return [(index, *items) for index, items in enumerate(zip(stored, computed, strict=True))]
    return None


def _equal(stored: Any, computed: Any) -> bool:
    if not (isinstance(stored, dict) and isinstance(computed, dict) and "bits" in computed):
        return type(stored) is type(computed) and bool(stored == computed)
    try:
        return same(Bits.from_json(stored), Bits.from_json(computed))
    except ValueError:  # the stored value is not an array
        return False


def _counted(label: str, counts: Counter[str]) -> str:
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items()))
    return f"{label}: {counts.total()}" + (f" ({kinds})" if kinds else "")
