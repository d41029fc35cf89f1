"""Names of types in error messages."""

import pytest

import ampscale
from ampscale.core.type_names import type_name


@pytest.mark.parametrize(("module", "method"), [("paddle", "numpy"), ("mindspore.common.tensor", "asnumpy")])
def test_error_for_a_tensor_of_another_framework_names_the_conversion(module, method):
    """The modules are those of real tensors; other objects are named by their class."""
    tensor = type("Tensor", (), {"__module__": module})()
    remedy = (
        rf"(got|of type) {module.partition('.')[0]}\.Tensor; ampscale takes arrays of NumPy, CuPy, .*: pass value\.{method}\(\)$"
    )
    for call in (lambda: ampscale.all_finite([tensor]), lambda: ampscale.GradScaler().scale(tensor)):
        with pytest.raises(TypeError, match=remedy):
            call()
    assert type_name("loss") == "str"
