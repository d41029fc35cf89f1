"""Backend whose import raises an error."""

import quarry

raise ImportError(f"needs quarry 2, got {quarry.__version__}")
