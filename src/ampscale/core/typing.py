"""The words that signatures use for arrays of any library."""

from typing import Any, TypeAlias

Array: TypeAlias = Any  # an array of one of the supported libraries; its docstring says dtype and shape
Tree: TypeAlias = Any  # arrays in tuples, lists, dicts and NamedTuples; None where there is no array
Flag: TypeAlias = Any  # bool, shape (): True is good
Scale: TypeAlias = Any  # float32 or float64, shape () or (1,); or a Python number
Namespace: TypeAlias = Any  # an Array API namespace, as array_api_compat gives it
