"""Names of types in errors about what is no array."""

import pytest

import ampscale
from ampscale.core.type_names import type_name


@pytest.mark.parametrize(("module", "method"), [("paddle", "numpy"), ("mindspore.common.tensor", "asnumpy")])
def test_a_tensor_of_another_framework_is_named_with_its_conversion(module, method):
    """Real ones have these modules; other objects are named by their class alone."""
    tensor = type("Tensor", (), {"__module__": module})()
    remedy = (
        rf"(got|of type) {module.partition('.')[0]}\.Tensor; ampscale takes arrays of NumPy, CuPy, .*: pass value\.{method}\(\)$"
    )
    for call in (lambda: ampscale.all_finite([tensor]), lambda: ampscale.GradScaler().scale(tensor)):
        with pytest.raises(TypeError, match=remedy):
            call()
    assert type_name("loss") == "str"
