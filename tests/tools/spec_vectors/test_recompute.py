"""Vectors from their inputs alone: what is there for each kind, and what is refused."""

import json

import pytest
from ampscale_conformance.oracle.tensors import array
from spec_vectors.recompute import DECISIONS, KINDS, recomputed
from vectors import VECTORS

ONE = array("float32", [1.0]).to_json()


def test_every_kind_of_the_schema_is_computed_or_a_decision():
    """None of them is both, and none is passed over."""
    schema = json.loads((VECTORS / "schema.json").read_text("utf-8"))
    assert sorted([*KINDS, *DECISIONS]) == sorted(schema["$defs"]["case"]["properties"]["kind"]["enum"])


@pytest.mark.parametrize("kind", ["error", "other"])
def test_what_cannot_be_computed_is_refused(kind):
    """A decision is never taken for a result."""
    with pytest.raises(ValueError, match=f"kind must be one of .*trace.*, got '{kind}'"):
        recomputed("machine", {"kind": kind})


def test_a_trace_goes_on_where_the_published_scaler_stops():
    """It says where that is first, and None where it is nowhere."""
    rule = {"init_scale": (2.0).hex(), "min_scale": (1.0).hex(), "raise_at_min_scale": True, "growth_interval": 1}
    case = {"kind": "trace", "rule": rule, "finite": "---+"}
    assert recomputed("machine", case) == {"scale": [(float(scale)).hex() for scale in (2, 1, 1, 1, 2)], "raises_at": 1}
    assert recomputed("machine", {**case, "finite": "-+"})["raises_at"] is None


@pytest.mark.parametrize(("chapter", "dtype"), [("paddle", "float32"), ("mindspore", "float16"), ("scaling", "float16")])
def test_paddle_alone_scales_16_bits_into_float32(chapter, dtype):
    """PADDLE-scale-dtype."""
    case = {"kind": "scale", "scale": (2.0).hex(), "input": array("float16", 1.0).to_json()}
    assert recomputed(chapter, case) == {"output": array(dtype, 2.0).to_json()}


def test_no_more_than_what_a_vector_tells_is_compared():
    """After an overflow gradients are anybody's; and an output that is asked for and does not exist is missed."""
    infinite = array("float32", [float("inf")]).to_json()
    case = {"kind": "check", "scale": (2.0).hex(), "input": [infinite], "finite": True}
    assert recomputed("overflow", case) == {"finite": False}
    assert recomputed("overflow", {**case, "output": [ONE]}) == {"finite": False, "output": [infinite]}


def test_ranks_agree_on_what_they_walk():
    """The flags of all in each step, then the machine."""
    rule = {"init_scale": (8.0).hex(), "growth_interval": 2}
    case = {"kind": "replicas", "rule": rule, "flags": [[True, True], [True, True], [True, False]]}
    assert recomputed("replicas", case) == {"finite": "++-", "scale": [(float(scale)).hex() for scale in (8, 8, 16, 8)]}
