"""
Archive of the test vectors for other projects: `python -m spec_vectors.archive`; see conformance/docs/versions.md.

The bytes of the archive depend only on the contents of its files, which are sorted and have the same date.
"""

import hashlib
import sys
import zipfile
from pathlib import Path

SPEC = Path(__file__).parents[2] / "spec"
DATE = (1980, 1, 1, 0, 0, 0)  # earliest date that a ZIP archive can store


def contents() -> dict[str, bytes]:
    """Return the files of the archive by name, with their checksums in SHA256SUMS."""
    files = {file.name: file.read_bytes() for file in sorted((SPEC / "vectors").iterdir()) if file.suffix in (".json", ".md")}
    files["VERSION"] = (SPEC / "VERSION").read_bytes()
    sums = "".join(f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in files.items())
    return {**files, "SHA256SUMS": sums.encode()}


def write(folder: Path) -> Path:
    """Write the archive to *folder*, and return its path."""
    name = f"ampscale-vectors-{(SPEC / 'VERSION').read_text().strip()}"
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(folder / f"{name}.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for file, data in contents().items():
            archive.writestr(zipfile.ZipInfo(f"{name}/{file}", DATE), data, zipfile.ZIP_DEFLATED, 9)
    return folder / f"{name}.zip"


if __name__ == "__main__":
    sys.stdout.write(f"{write(Path(*sys.argv[1:] or ['dist']))}\n")
