"""Names of types in error messages."""

from typing import Any

_CONVERSIONS = {"paddle": "numpy", "mindspore": "asnumpy", "tensorflow": "numpy"}


def type_name(value: Any) -> str:
    """Return the name of the type of *value*; for a tensor of an unsupported framework, also its conversion to NumPy."""
    cls = type(value)
    framework = cls.__module__.partition(".")[0]
    if framework not in _CONVERSIONS:
        return cls.__name__
    remedy = f"ampscale takes arrays of NumPy, CuPy, torch and JAX: pass value.{_CONVERSIONS[framework]}()"
    return f"{framework}.{cls.__name__}; {remedy}"
