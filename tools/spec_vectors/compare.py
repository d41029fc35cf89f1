"""
The vectors of spec/ against the oracle: `python -m spec_vectors.compare` says where the two differ.

With `--write` a value that differs is replaced by the oracle's, and nothing else in its file is touched.
"""

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from ampscale_conformance.model.bits import Bits
from ampscale_conformance.oracle.tensors import same

from ampscale.files import write_atomically

from .recompute import DECISIONS, KINDS, recomputed

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{},:]|[^\s\[\]{},:"]+')


@dataclass(frozen=True)
class Difference:
    """
    A place where a vector and the oracle disagree.

    Args:
        file: The file's name without its ending.
        id: The vector.
        where: The member, and the place in it, as "expect[1].parameters[0]".
        said: What the file says there; None for nothing.
        computed: What the oracle says; None for nothing.
    """

    file: str
    id: str
    where: str
    said: Any
    computed: Any

    def __str__(self) -> str:
        return f"{self.file}: {self.id}: {self.where}\n- {json.dumps(self.said)}\n+ {json.dumps(self.computed)}\n"


@dataclass
class Outcome:
    """What came of a reading: differences, and how many vectors of each kind were recomputed, are decisions, or are unknown."""

    differences: list[Difference] = field(default_factory=list)
    recomputed: Counter[str] = field(default_factory=Counter)
    decisions: Counter[str] = field(default_factory=Counter)
    unknown: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        lines = [
            _counted("recomputed", self.recomputed),
            _counted("decisions, with nothing to compute", self.decisions),
            *([_counted("of a kind that the oracle does not know", self.unknown)] if self.unknown else []),
            f"differences: {len(self.differences)}",
        ]
        return "".join(str(difference) for difference in self.differences) + "".join(f"{line}\n" for line in lines)


def spec_vectors() -> Path:
    """Return the folder of the vectors."""
    return Path(__file__).parents[2] / "spec" / "vectors"


def compare(folder: Path) -> Outcome:
    """
    Every vector of a folder beside the oracle.

    Raises:
        FileNotFoundError: There is none.
    """
    outcome = Outcome()
    for path in _files(folder):
        for case, found in _found(json.loads(path.read_text("utf-8")), outcome):
            for member, computed in found.items():
                outcome.differences += _differences(path.stem, case["id"], member, case.get(member), computed)
    return outcome


def rewrite(folder: Path) -> list[Path]:
    """
    Puts the oracle's values where a vector says others. A file is written only if something in it differs.

    Returns:
        The files that were written.

    Raises:
        ValueError: A member would have to come or to go, which is for a person to do. Its file is as it was.
    """
    written = []
    for path in _files(folder):
        text = before = path.read_text("utf-8")
        for case, found in _found(json.loads(text), Outcome()):
            for member, computed in found.items():
                if list(_differences(path.stem, case["id"], member, case.get(member), computed)):
                    text = _replaced(text, case["id"], member, _merged(case.get(member), computed))
        if text != before:
            write_atomically(path, text)
            written.append(path)
    return written


def main(given: Sequence[str] | None = None) -> int:
    """The command: its exit status is 1 where something differed, or a kind of vector is unknown, and else 0."""
    parser = argparse.ArgumentParser(prog="python -m spec_vectors.compare", description=(__doc__ or "").strip())
    parser.add_argument("folder", nargs="?", type=Path, default=spec_vectors(), help="the folder of the vectors")
    parser.add_argument("--write", action="store_true", help="put the oracle's values where a vector says others")
    options = parser.parse_args(given)
    try:
        outcome = compare(options.folder)
        sys.stdout.write(str(outcome))
        if options.write:
            sys.stdout.writelines(f"written: {path}\n" for path in rewrite(options.folder))
    except (FileNotFoundError, ValueError) as error:
        parser.error(str(error))
    return 1 if outcome.differences or outcome.unknown else 0


def _files(folder: Path) -> list[Path]:
    files = [path for path in sorted(folder.glob("*.json")) if path.stem != "schema"]
    if not files:
        raise FileNotFoundError(f"there are no vectors in {folder}")
    return files


def _found(file: Mapping[str, Any], outcome: Outcome) -> Iterator[tuple[Mapping[str, Any], dict[str, Any]]]:
    """Each vector that can be recomputed, with what came of it; the others are counted."""
    for case in file["cases"]:
        kind = case["kind"]
        counter = outcome.recomputed if kind in KINDS else outcome.decisions if kind in DECISIONS else outcome.unknown
        counter[kind] += 1
        if kind in KINDS:
            yield case, recomputed(file["chapter"], case)


def _differences(file: str, id: str, where: str, said: Any, computed: Any) -> Iterator[Difference]:
    """Every place in two values where they are not the same; any NaN equals any NaN."""
    pairs = _pairs(said, computed)
    if pairs is None and not _same(said, computed):
        yield Difference(file, id, where, said, computed)
    for key, one, other in pairs or []:
        yield from _differences(file, id, f"{where}[{key}]" if isinstance(key, int) else f"{where}.{key}", one, other)


def _merged(said: Any, computed: Any) -> Any:
    """The computed value in the order in which the other one says it, and in its very words wherever the two are the same."""
    pairs = _pairs(said, computed)
    if pairs is None:
        return said if _same(said, computed) else computed
    merged = [(key, _merged(one, other)) for key, one, other in pairs]
    return dict(merged) if isinstance(said, dict) else [value for _, value in merged]


def _pairs(said: Any, computed: Any) -> list[tuple[Any, Any, Any]] | None:
    """What two containers of one kind hold side by side; None for arrays, and for what is not so."""
    if isinstance(said, dict) and isinstance(computed, dict) and set(said) == set(computed) and "bits" not in said:
        return [(key, said[key], computed[key]) for key in said]
    if isinstance(said, list) and isinstance(computed, list) and len(said) == len(computed):
        return [(at, one, other) for at, (one, other) in enumerate(zip(said, computed, strict=True))]
    return None


def _same(said: Any, computed: Any) -> bool:
    if not (isinstance(said, dict) and isinstance(computed, dict) and "bits" in computed):
        return type(said) is type(computed) and bool(said == computed)
    try:
        return same(Bits.from_json(said), Bits.from_json(computed))
    except ValueError:  # what is said is no array
        return False


def _replaced(text: str, id: str, member: str, computed: Any) -> str:
    """A file with another value for one member of one vector, laid out as the value before it."""
    start = text.index(f'"id": {json.dumps(id)}')
    following = text.find('"id": ', start + 1)
    end = len(text) if following < 0 else following
    label = f"{json.dumps(member)}: "
    at = text.find(f"\n      {label}", start, end)
    if at < 0 or computed is None:
        raise ValueError(f"{id} must {'lose' if computed is None else 'gain'} its member {member}, which is for a person to do")
    at += len(label) + 7
    _, after = json.JSONDecoder().raw_decode(text, at)
    return text[:at] + _laid_out(text[at:after], json.dumps(computed)) + text[after:]


def _laid_out(before: str, flat: str) -> str:
    """A JSON text with the spaces and the lines of another one, where both have as many parts."""
    old, new = list(_TOKEN.finditer(before)), _TOKEN.findall(flat)
    if len(old) != len(new):
        return flat
    gaps = [before[one.end() : other.start()] for one, other in pairwise(old)]
    return "".join(part + gap for part, gap in zip(new, [*gaps, ""], strict=True))


def _counted(what: str, counts: Counter[str]) -> str:
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items()))
    return f"{what}: {counts.total()}" + (f" ({kinds})" if kinds else "")
