"""Type aliases for arrays of any library."""

from typing import Any, TypeAlias

Array: TypeAlias = Any  # an array of a supported library; docstrings specify dtype and shape
Tree: TypeAlias = Any  # a pytree of arrays in tuples, lists, dicts and NamedTuples; None stands for a missing array
Flag: TypeAlias = Any  # a bool, or a bool array of shape ()
Scale: TypeAlias = Any  # a float32 or float64 array of shape () or (1,), or a Python number
DType: TypeAlias = Any  # a dtype or a scalar type of a supported library, such as numpy.float32, or its name
Namespace: TypeAlias = Any  # an Array API namespace of array_api_compat
