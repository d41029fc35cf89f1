"""A backend that fails when it is imported."""

import quarry

raise ImportError(f"needs quarry 2, got {quarry.__version__}")
