"""Files of torch, by its loader that runs no code. Whoever imports this module imports torch."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zipfile import is_zipfile

import numpy as np
import torch


def read(path: Path) -> Any:
    """
    What was saved with `torch.save`, its tensors on the host and left in the file until they are looked at.

    Raises:
        ValueError: torch does not read it without running code that the file brings.
    """
    zipped = is_zipfile(path)  # else it is of the time before torch 1.6, and cannot be mapped into memory
    try:
        return torch.load(path, map_location="cpu", weights_only=True, mmap=zipped)
    except OSError:
        raise
    except Exception as problem:  # a damaged file makes the loader raise anything
        reason = (str(problem) or type(problem).__name__).splitlines()[0]
        raise ValueError(f"torch.load(weights_only=True) refuses it: {reason}") from problem


def write(path: Path, mapping: Mapping[str, Any]) -> None:
    """Saves *mapping* with `torch.save`, its NumPy arrays as tensors."""
    torch.save({key: torch.as_tensor(value) if isinstance(value, np.ndarray) else value for key, value in mapping.items()}, path)
