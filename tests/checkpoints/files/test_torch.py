"""Files of torch.save: their archives have limits."""

from zipfile import ZipFile

import pytest

from ampscale.checkpoints.files import torch as torch_files
from ampscale.checkpoints.files.read_write import read_file


def test_an_archive_with_too_many_entries_is_rejected(tmp_path, monkeypatch):
    """Before any of them is read."""
    monkeypatch.setattr(torch_files, "MOST_ENTRIES", 3)
    with ZipFile(tmp_path / "scaler.pt", "w") as archive:
        for number in range(4):
            archive.writestr(f"archive/data/{number}", b"")
    with pytest.raises(ValueError, match="the archive must have at most 3 entries, got 4"):
        read_file(tmp_path / "scaler.pt")
