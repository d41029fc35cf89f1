"""Names of types in error messages."""

from typing import Any

_TO_NUMPY = {"paddle": "numpy", "mindspore": "asnumpy", "tensorflow": "numpy"}  # methods that convert a tensor


def type_name(value: Any) -> str:
    """Return the type name of *value*; for a tensor of an unsupported framework, followed by the call that converts it."""
    cls = type(value)
    framework = cls.__module__.partition(".")[0]
    if framework not in _TO_NUMPY:
        return cls.__name__
    remedy = f"ampscale takes arrays of NumPy, CuPy, torch and JAX: pass value.{_TO_NUMPY[framework]}()"
    return f"{framework}.{cls.__name__}; {remedy}"
