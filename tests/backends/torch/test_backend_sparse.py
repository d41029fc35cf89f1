"""torch's sparse gradients, as an embedding gives them: indices that come twice are added up before anything is looked at."""

import pytest
from libraries import load
from strategies import LARGEST, same

import ampscale
from ampscale.backends import network_of
from ampscale.core.trees import map_leaves

torch = pytest.importorskip("torch", reason="needs torch")

LIBRARY = load("torch")
FORMATS = pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])


def sparse(rows, values, dtype="float32"):
    """A sparse array of shape (6, 2): *values*, one for each of *rows*, twice; not coalesced."""
    columns = torch.tensor(values, dtype=getattr(torch, dtype))[:, None].expand(-1, 2)
    return torch.sparse_coo_tensor([rows], columns.clone(), (6, 2), check_invariants=True)


def mixed(dtype="float32"):
    """A tree of a sparse array, a dense one, and none."""
    return {"rows": sparse([4, 1, 4], [3.0, -0.5, 1.0], dtype), "dense": torch.tensor([0.25, -8.0]), "none": None}


def dense(tree):
    """The same values, all of them dense."""
    return map_leaves(lambda leaf: leaf.to_dense() if leaf.is_sparse else leaf, tree)


def equal(left, right):
    """Whether two trees hold the same tensors, bit for bit."""
    return same(LIBRARY.to_numpy(left), LIBRARY.to_numpy(right))


@pytest.mark.clause(
    *("SCALING-scale", "SCALING-unscale-divides", "SCALING-dtype-kept", "SCALING-widen"),
    *("NORMS-global", "NORMS-local", "NORMS-clip", "OVERFLOW-both-sides"),
)
@FORMATS
def test_sparse_values_are_those_of_dense_ones(dtype):
    """In every verb. The result is sparse and coalesced; what was handed in is as it was."""
    tree = mixed(dtype)
    for verb, *arguments in (
        (ampscale.scale, 10.0),
        (ampscale.unscale, 10.0),
        (ampscale.unscale, 10.0, "float32"),
        (ampscale.unscale_check_and_norm, 4.0),
        (ampscale.clip_by_global_norm, 1.0),
        (ampscale.global_norm,),
        (ampscale.local_norms,),
    ):
        result = verb(tree, *arguments)
        assert equal(dense(result), verb(dense(tree), *arguments))
        if verb in (ampscale.scale, ampscale.unscale):
            assert result["rows"].is_coalesced()
            assert result["rows"].indices().tolist() == [[1, 4]]
    assert not tree["rows"].is_coalesced()


@pytest.mark.clause("OVERFLOW-both-sides", "OVERFLOW-all-finite")
@FORMATS
def test_two_values_of_one_place_overflow_together(dtype):
    """Each is finite, their sum is not; nor is it where the scale is so large that the sum of the quotients would be."""
    half = float(LARGEST[dtype]) * 0.75
    for rows, finite in (([2, 2], False), ([2, 3], True)):
        tree = [torch.ones(1), sparse(rows, [half, half], dtype)]
        assert bool(ampscale.all_finite(tree)) == finite
        assert bool(ampscale.unscale_and_check(tree, 2.0**20)[1]) == finite
    cancelled = [sparse([2, 2], [half, -half], dtype)]
    assert bool(ampscale.all_finite(cancelled))


@pytest.mark.clause("OVERFLOW-in-place")
def test_a_coalesced_array_is_unscaled_in_place():
    """The tree itself is written to, sparse and dense."""
    tree = mixed()
    tree["rows"] = tree["rows"].coalesce()
    wanted, values = ampscale.unscale(dense(tree), 4.0), tree["rows"].values()
    result, finite = ampscale.unscale_and_check(tree, 4.0, out=tree)
    assert result is tree
    assert bool(finite)
    assert equal(dense(tree), wanted)
    assert values.tolist() == [[-0.125, -0.125], [1.0, 1.0]]


@pytest.mark.clause("OVERFLOW-in-place-checked")
@pytest.mark.parametrize("verb", [ampscale.unscale_and_check, ampscale.unscale_check_and_norm])
def test_a_sparse_place_that_cannot_take_the_result_is_refused(verb):
    """One that is not coalesced, one of another array, and one beside a dense array; nothing has been written then."""
    twice, once, other = sparse([1, 1], [1.0, 2.0]), sparse([1, 3], [1.0, 2.0]).coalesce(), sparse([0, 5], [1.0, 2.0]).coalesce()
    for leaf, place in ((twice, twice), (once, other), (once, torch.zeros(6, 2)), (torch.zeros(6, 2), once)):
        first = torch.ones(2)
        before = map_leaves(torch.clone, [first, place])
        with pytest.raises(ValueError, match="out must contain the sparse arrays of the tree itself, coalesced"):
            verb([first, leaf], 4.0, out=[first, place])
        assert equal(dense([first, place]), dense(before))


@pytest.mark.clause("STEP-vjp")
def test_the_gradient_of_an_embedding_is_sparse():
    """As torch gives it: a value for each use, so that a word that comes twice is there twice."""

    class Words(torch.nn.Embedding):
        def forward(self, words):
            return super().forward(words).sum()

    network = network_of(Words(6, 2, sparse=True))
    gradient = network.vjp(network.params, torch.tensor([4, 1, 4]))[1](torch.tensor(8.0))["weight"]
    assert gradient.is_sparse
    assert not gradient.is_coalesced()
    assert equal([gradient.to_dense()], [sparse([4, 1, 4], [8.0, 8.0, 8.0]).to_dense()])
