"""Gradients of every dtype and shape, flags and scales of every type, and norms at the limits, on real ranks."""

import math

import numpy as np
import pytest
from distributed import edges


@pytest.mark.clause("REPLICAS-mean", "REPLICAS-accumulation-dtype")
def test_a_mean_keeps_dtypes_shapes_and_structure(ranks):
    """
    Ranks have 1, 2, 3 and 4 times the same values, so the mean is 2.5 times these. The last sum would overflow in float16.

    The arrays have all dtypes. Some are views, read-only, empty or of shape ().
    """
    base = 2.5 * np.asarray([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    zeros = [0.0] * 6
    for result in ranks.run(edges.means_of_dtypes, ranks.engine):
        for (name, shape, real, imaginary), expected in zip(result[:6], edges.NAMES, strict=True):
            assert (name, shape, real) == (expected, [2, 3], base.ravel().tolist())
            assert imaginary == (real if "complex" in name else zeros)
        assert result[6][:3] == ["float32", [2, 2], base[:, ::2].ravel().tolist()]
        assert result[7][:3] == ["float16", [3, 2], base.T.ravel().tolist()]
        assert result[8][:3] == ["float32", [2, 3], base.ravel().tolist()]
        assert [row[:3] for row in result[9:]] == [["float32", [], [1.5]], ["float16", [0, 2], []], ["float16", [1], [60000.0]]]


def test_a_mean_of_no_arrays_is_no_arrays(ranks):
    """The mean of an array that follows is correct."""
    assert ranks.run(edges.mean_without_arrays, ranks.engine) == [[[], {"a": None}, [1.0]]] * 4


def test_a_mean_of_integers_is_a_type_error_on_all_ranks(ranks):
    """The mean of floats that follows is correct."""
    message = "gradients must be floating-point or complex, got int32"
    assert ranks.run(edges.mean_of_integers, ranks.engine) == [[message, [1.0, 1.0]]] * 4


def test_a_mean_of_many_values_is_exact(ranks):
    """The values of the ranks are 1, 2, 4 and 8. The first and the last mean are compared bit for bit."""
    bits = np.float32(3.75).tobytes().hex()
    assert ranks.run(edges.mean_of_many, ranks.engine) == [[bits, bits, 3.75 * 300_000]] * 4


@pytest.mark.clause("REPLICAS-one-flag")
@pytest.mark.parametrize("bad", [None, 0, 3])
def test_flags_and_scales_may_have_any_type(ranks, bad):
    """Flags of three types are combined with five scales. Only the rank *bad* has an overflow."""
    assert ranks.run(edges.flags, ranks.engine, bad) == [[[bad is None] * 3] * 5] * 4


@pytest.mark.clause("REPLICAS-agreed-norm")
@pytest.mark.parametrize(
    ("layouts", "case", "norm", "dtype"),
    [
        (("sharded", "distinct"), "float32", 10.0, "float32"),
        (("sharded", "distinct"), "float64", 3e-200, "float64"),
        (("sharded", "distinct"), "large", 6e38, "float32"),
        (("sharded", "distinct"), "small", 2.0**-148, "float32"),
        (("sharded", "distinct"), "complex", 10.0, "float32"),
        (("sharded", "distinct"), "copies", 10.0, "float32"),
        (("sharded", "distinct"), "all the same", 5.0, "float32"),
        (("sharded", "distinct"), "no gradients", 0.0, "float32"),
        (("distinct",), "a rank without", math.sqrt(75), "float32"),
        (("distinct",), "float64 and a rank without", math.sqrt(75), "float64"),
    ],
)
def test_a_norm_is_the_same_on_all_ranks(ranks, layouts, case, norm, dtype):
    """With sharded arrays, either all ranks have gradients or none has; with distinct arrays, one rank may have none."""
    for layout in layouts:
        results = ranks.run(edges.norm, ranks.engine, layout, case)
        assert results == [results[0]] * 4
        value, lift, actual_dtype, has_gradients = results[0]
        assert value / lift == pytest.approx(norm, rel=2e-7)
        assert (actual_dtype, has_gradients) == (dtype, norm > 0)


def test_ranks_with_gradients_must_have_norms_of_one_dtype(mpi):
    """Rank 0 has no gradients."""
    assert (
        mpi.run(edges.norm_of_mixed_dtypes)
        == ["dtype of the norm differs: float64 on rank 1; None on rank 0; float32 on ranks 2, 3"] * 4
    )


def test_states_of_all_ranks_must_have_equal_lengths(mpi):
    """A mean, which compares no states, works after the error."""
    message = "length of state differs: 2 on rank 2; 1 on ranks 0, 1, 3"
    assert mpi.run(edges.state_with_another_count) == [[message, [1.5]]] * 4


def test_states_must_be_numbers(mpi):
    """The errors precede all communication."""
    messages = [
        "state must have at least one number, got {}",
        "state must have at least one number, got {'bad_steps': None}",
        "scale must be a number or an array of shape () or (1,), got array([1., 1.], dtype=float32)",
        "good_steps must be a number or an array of shape () or (1,), got '3'",
    ]
    assert mpi.run(edges.errors_of_invalid_states) == [messages] * 4


def test_a_deleted_communicator_is_freed_unless_a_call_was_interrupted(mpi):
    """MPICH supports only 2,048 communicators at a time."""
    assert mpi.run(edges.freed) == [[True, False]] * 4


def test_mpi_writes_the_result_of_an_interrupted_sum_to_no_other_array(mpi):
    """The second rank of each pair is interrupted while it waits for the first."""
    assert mpi.run(edges.interrupted) == [[False, 0], [True, 0]] * 2


def test_copies_must_have_one_number_for_each_array(mpi):
    """The error precedes all communication, so the next call works."""
    message = "gradients must be 2 arrays, one for each item of copies, got 3"
    assert mpi.run(edges.copies_of_another_length) == [[message, pytest.approx(math.sqrt(5))]] * 4


@pytest.mark.clause("REPLICAS-same-decision", "OVERFLOW-both-sides")
@pytest.mark.parametrize(("max_norm", "applied"), [(None, False), (200000.0, False), (30000.0, True)])
def test_ranks_skip_together_if_a_gradient_of_one_overflows_float16(gloo, max_norm, applied):
    """A gradient that is clipped to a norm that float16 represents cannot overflow."""
    results = gloo.run(edges.step_on_float16, max_norm)
    assert [result[0] for result in results] == [applied] * 4
    assert results[1] == [applied, applied]
