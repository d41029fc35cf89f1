"""Choice of a loss scaler by the dtype of the computation."""

import sys
from typing import Any

from ..core.dtypes import FLOATS, argument_name
from ..parsing import excerpt
from .paddle import GradScaler


def scaler_for(dtype: Any, **kwargs: Any) -> Any:
    """
    Return a scaler for computations in *dtype*: enabled for float16, and disabled for other dtypes.

    A disabled scaler scales nothing, steps in every iteration, accepts calls in any order and has an empty state dict. The same
    loop can therefore run in bfloat16, float32 or float64, whose exponent range is wide enough without a scale.

    Args:
        dtype: float16, bfloat16, float32 or float64: a torch dtype, the dtype of another library, or the name of one.
        kwargs: Passed to `ampscale.torch.GradScaler` for torch dtypes, else to `ampscale.GradScaler`; not `enabled` or `enable`.

    Raises:
        TypeError: *dtype* is not one of the four dtypes, or a keyword is unknown or not allowed.
        ValueError: An argument is out of range.

    Spec: CALLS-disabled.

    >>> scaler = scaler_for("bfloat16", init_loss_scaling=1024.0)
    >>> scaler.is_enable(), scaler.scale(np.float32(3.0)).item()
    (False, 3.0)
    >>> scaler_for(np.float16, init_loss_scaling=1024.0).scale(np.float32(3.0)).item()
    3072.0
    """
    for keyword in ("enable", "enabled"):
        if keyword in kwargs:
            raise TypeError(f"{keyword} must be left out, since the dtype determines it, got {excerpt(kwargs[keyword])}")
    name = argument_name(dtype)
    if name not in FLOATS:
        expected = f"{', '.join(FLOATS)}, as a dtype or a name"
        raise TypeError(f"dtype must be one of {expected}, got {excerpt(dtype)} of type {type(dtype).__name__}")
    is_float16 = name == "float16"
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(dtype, torch.dtype):
        from .torch import GradScaler as TorchGradScaler

        return TorchGradScaler(enabled=is_float16, **kwargs)
    return GradScaler(enable=is_float16, **kwargs)
