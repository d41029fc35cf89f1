"""Archive of the test vectors: reproducible, whole, and readable without this project."""

import json
import re
import subprocess
import sys
import zipfile

import pytest
from spec_vectors.archive import SPEC, write


@pytest.fixture
def archive(tmp_path):
    """Return the folder of the extracted archive."""
    with zipfile.ZipFile(write(tmp_path)) as file:
        file.extractall(tmp_path)
    return next(path for path in tmp_path.iterdir() if path.is_dir())


def test_the_archive_has_every_vector_and_its_bytes_are_reproducible(archive, tmp_path):
    names = {path.name for path in (SPEC / "vectors").iterdir()} | {"VERSION", "SHA256SUMS"}
    assert {path.name for path in archive.iterdir()} == names
    assert write(tmp_path / "again").read_bytes() == write(tmp_path).read_bytes()


def test_the_checksums_are_those_of_the_files(archive):
    assert subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=archive, check=False).returncode == 0
    (archive / "machine.json").write_text("{}")
    assert subprocess.run(["sha256sum", "--check", "--status", "SHA256SUMS"], cwd=archive, check=False).returncode == 1


def test_the_page_lists_every_kind_and_its_code_reads_the_vectors(archive):
    """The table omits errors. A scaler is added to the code block, and passes the 20 or more vectors that it selects."""
    page = (archive / "README.md").read_text("utf-8")
    kinds = {vector["kind"] for path in archive.glob("*.json") for vector in json.loads(path.read_text()).get("cases", [])}
    listed = set(re.findall(r"[\w]+", "".join(re.findall(r"^\| [\w., ]+json \|(.*?)\|", page, re.MULTILINE))))
    assert listed == kinds - {"error"}
    code = re.search(r"```python\n(.*?)```", page, re.DOTALL)[1]
    scaler = """
        scale, good, scales = np.float32(rule["init_scale"]), 0, [float(np.float32(rule["init_scale"]))]
        for sign in vector["finite"]:
            good = good + 1 if sign == "+" else 0
            factor = rule["backoff_factor"] if sign == "-" else rule["growth_factor"] if good == rule["growth_interval"] else 1
            with np.errstate(over="ignore"):
                updated = max(scale * np.float32(factor), np.float32(rule["min_scale"] if sign == "-" else 0))
            scale, good = updated if np.isfinite(updated) else scale, good % rule["growth_interval"]
            scales.append(float(scale))
        print(vector["id"], scales == expected)
"""
    command = [sys.executable, "-c", "import numpy as np\n" + code + scaler]
    output = subprocess.run(command, cwd=archive, capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(output) >= 20
    assert [line for line in output if not line.endswith(" True")] == []
