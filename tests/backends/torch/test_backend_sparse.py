"""Sparse torch gradients, as an embedding returns them: values with the same index are summed before any operation."""

import pytest
from libraries import load
from strategies import LARGEST

import ampscale
from ampscale.backends import network_of
from ampscale.core.trees import map_leaves

torch = pytest.importorskip("torch", reason="needs torch")

equal = load("torch").same
FORMATS = pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])


def sparse(rows, values, dtype="float32"):
    """Return an uncoalesced sparse array of shape (6, 2) with both columns equal to *values* in *rows*."""
    columns = torch.tensor(values, dtype=getattr(torch, dtype))[:, None].expand(-1, 2)
    return torch.sparse_coo_tensor([rows], columns.clone(), (6, 2), check_invariants=True)


def mixed(dtype="float32"):
    """Return a tree with a sparse array, a dense array and None."""
    return {"rows": sparse([4, 1, 4], [3.0, -0.5, 1.0], dtype), "dense": torch.tensor([0.25, -8.0]), "none": None}


def dense(tree):
    return map_leaves(lambda leaf: leaf.to_dense() if leaf.is_sparse else leaf, tree)


@pytest.mark.clause("SCALING-scale", "SCALING-unscale-divides", "SCALING-dtype-kept", "SCALING-widen")
@pytest.mark.clause("NORMS-global", "NORMS-local", "NORMS-clip", "OVERFLOW-both-sides")
@FORMATS
def test_sparse_results_equal_dense_results(dtype):
    """Results of `scale` and `unscale` are sparse and coalesced. The arguments are unchanged."""
    tree = mixed(dtype)
    for function, *arguments in (
        (ampscale.scale, 10.0),
        (ampscale.unscale, 10.0),
        (ampscale.unscale, 10.0, "float32"),
        (ampscale.unscale_check_and_norm, 4.0),
        (ampscale.clip_by_global_norm, 1.0),
        (ampscale.global_norm,),
        (ampscale.local_norms,),
    ):
        result = function(tree, *arguments)
        assert equal(dense(result), function(dense(tree), *arguments))
        if function in (ampscale.scale, ampscale.unscale):
            assert result["rows"].is_coalesced()
            assert result["rows"].indices().tolist() == [[1, 4]]
    assert not tree["rows"].is_coalesced()


@pytest.mark.clause("OVERFLOW-both-sides", "OVERFLOW-all-finite")
@FORMATS
def test_values_with_the_same_index_overflow_in_their_sum(dtype):
    """Each value is finite, and so is a sum that cancels. A large scale does not hide an overflow of the sum."""
    large = float(LARGEST[dtype]) * 0.75
    for rows, finite in (([2, 2], False), ([2, 3], True)):
        tree = [torch.ones(1), sparse(rows, [large, large], dtype)]
        assert bool(ampscale.all_finite(tree)) == finite
        assert bool(ampscale.unscale_and_check(tree, 2.0**20)[1]) == finite
    canceled = [sparse([2, 2], [large, -large], dtype)]
    assert bool(ampscale.all_finite(canceled))


@pytest.mark.clause("OVERFLOW-in-place")
def test_coalesced_arrays_are_unscaled_in_place():
    """The tree contains a sparse and a dense array."""
    tree = mixed()
    tree["rows"] = tree["rows"].coalesce()
    expected = ampscale.unscale(dense(tree), 4.0)
    values = tree["rows"].values()
    result, finite = ampscale.unscale_and_check(tree, 4.0, out=tree)
    assert result is tree
    assert bool(finite)
    assert equal(dense(tree), expected)
    assert values.tolist() == [[-0.125, -0.125], [1.0, 1.0]]


@pytest.mark.clause("OVERFLOW-in-place-checked")
@pytest.mark.parametrize("function", [ampscale.unscale_and_check, ampscale.unscale_check_and_norm])
def test_sparse_targets_that_cannot_receive_the_result_raise(function):
    """The target is not coalesced, is another sparse array, or only one of leaf and target is sparse. Nothing is written."""
    twice = sparse([1, 1], [1.0, 2.0])
    once = sparse([1, 3], [1.0, 2.0]).coalesce()
    other = sparse([0, 5], [1.0, 2.0]).coalesce()
    for leaf, target in ((twice, twice), (once, other), (once, torch.zeros(6, 2)), (torch.zeros(6, 2), once)):
        first = torch.ones(2)
        copy = map_leaves(torch.clone, [first, target])
        actual = "an uncoalesced one" if leaf is target else "another tensor"
        message = rf"^out\[1\] must be the sparse tensor of the tree itself, and coalesced, got {actual}; call coalesce\(\)"
        with pytest.raises(ValueError, match=message):
            function([first, leaf], 4.0, out=[first, target])
        assert equal(dense([first, target]), dense(copy))


@pytest.mark.clause("STEP-vjp")
def test_gradients_of_embeddings_are_sparse():
    """The gradients are uncoalesced, with a value for each use of a word."""

    class Words(torch.nn.Embedding):
        def forward(self, words):
            return super().forward(words).sum()

    network = network_of(Words(6, 2, sparse=True))
    gradient = network.vjp(network.params, torch.tensor([4, 1, 4]))[1](torch.tensor(8.0))["weight"]
    assert gradient.is_sparse
    assert not gradient.is_coalesced()
    assert equal([gradient.to_dense()], [sparse([4, 1, 4], [8.0, 8.0, 8.0]).to_dense()])
