"""Tests of the recomputation of vectors from their inputs."""

import json

import pytest
from ampscale_conformance.oracle.tensors import array
from spec_vectors.recompute import DECISIONS, KINDS, recomputed
from vectors import VECTORS

ONE = array("float32", [1.0]).to_json()


def test_kinds_and_decisions_are_those_of_the_schema():
    """Each kind of the schema is either recomputed or a decision."""
    schema = json.loads((VECTORS / "schema.json").read_text("utf-8"))
    assert sorted([*KINDS, *DECISIONS]) == sorted(schema["$defs"]["case"]["properties"]["kind"]["enum"])


@pytest.mark.parametrize("kind", ["error", "other"])
def test_other_kinds_raise_a_value_error(kind):
    """Vectors of the kind "error" are decisions, which cannot be recomputed."""
    with pytest.raises(ValueError, match=f"kind must be one of .*trace.*, got '{kind}'"):
        recomputed("machine", {"kind": kind})


def test_trace_continues_after_the_published_scaler_raises():
    """`raises_at` is the first step in which the published scaler raises an error; None if there is none."""
    rule = {"init_scale": (2.0).hex(), "min_scale": (1.0).hex(), "raise_at_min_scale": True, "growth_interval": 1}
    case = {"kind": "trace", "rule": rule, "finite": "---+"}
    assert recomputed("machine", case) == {"scale": [(float(scale)).hex() for scale in (2, 1, 1, 1, 2)], "raises_at": 1}
    assert recomputed("machine", {**case, "finite": "-+"})["raises_at"] is None


@pytest.mark.parametrize(("chapter", "dtype"), [("paddle", "float32"), ("mindspore", "float16"), ("scaling", "float16")])
def test_only_paddle_widens_float16_when_scaling(chapter, dtype):
    """PADDLE-scale-dtype requires float32."""
    case = {"kind": "scale", "scale": (2.0).hex(), "input": array("float16", 1.0).to_json()}
    assert recomputed(chapter, case) == {"output": array(dtype, 2.0).to_json()}


def test_only_members_of_the_vector_are_returned():
    """After an overflow, the unscaled gradients are returned only if the vector has an output."""
    infinite = array("float32", [float("inf")]).to_json()
    case = {"kind": "check", "scale": (2.0).hex(), "input": [infinite], "finite": True}
    assert recomputed("overflow", case) == {"finite": False}
    assert recomputed("overflow", {**case, "output": [ONE]}) == {"finite": False, "output": [infinite]}


def test_replicas_update_the_scale_with_the_combined_flags():
    """A step is an overflow if the flag of any replica is False."""
    rule = {"init_scale": (8.0).hex(), "growth_interval": 2}
    case = {"kind": "replicas", "rule": rule, "flags": [[True, True], [True, True], [True, False]]}
    assert recomputed("replicas", case) == {"finite": "++-", "scale": [(float(scale)).hex() for scale in (8, 8, 16, 8)]}
