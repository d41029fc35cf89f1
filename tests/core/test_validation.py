"""The check that an argument has methods."""

import pytest

from ampscale.core.validation import check_methods


def test_object_without_a_method_raises():
    """An attribute of that name that is not callable raises too."""
    check_methods([], "network", "append", "pop")
    for methods in (("append", "push"), ("__doc__",)):
        with pytest.raises(TypeError, match=r"^network must have the methods .* of type list"):
            check_methods([], "network", *methods)
