"""Messages that name the ranks that differ."""

import numpy as np
import pytest

import ampscale
from ampscale.core.trees import structure
from ampscale.distributed.comparison import array_paths, difference, setting_texts, to_text


def test_equal_settings_have_no_difference():
    assert difference(3 * [to_text({"a": "1"})], [0, 1, 2]) is None


def test_if_values_are_equally_frequent_that_of_the_later_ranks_is_named_first():
    """A setting that a rank lacks differs from one with the value None."""
    settings = [{"a": "None"}, {}]
    assert difference([*map(to_text, settings)], [0, 1]) == "a differs: not set on rank 1; None on rank 0"


def test_an_argument_of_the_communicator_is_named_before_the_call_that_follows_from_it():
    """A rank with `mean=True` calls `mean` first, so the calls differ too."""
    settings = [{"call": "agree", "mean": False, "a": "1"}, {"call": "mean", "mean": True}]
    assert difference([*map(to_text, settings)], [0, 1]) == "mean differs: True on rank 1; False on rank 0"


def test_equal_constants_of_different_types_have_equal_texts():
    numbers = (8, 8.0, np.float64(8))
    texts = [setting_texts({"rule": ampscale.LossScaleRule(8.0, max_scale=x), "max_norm": x}) for x in numbers]
    assert [(text["rule.max_scale"], text["max_norm"]) for text in texts] == 3 * [("8.0", "8.0")]


ARRAY = np.ones(1, np.float32)


@pytest.mark.parametrize(
    ("tree", "paths"),
    [
        (ARRAY, [""]),
        (None, []),
        ([], []),
        ({"a": ARRAY, "b": {"c": (None, ARRAY), "d": []}, 3: ARRAY}, ["['a']", "['b']['c'][1]", "[3]"]),
        ([{}, [ARRAY, ARRAY], ARRAY], ["[1][0]", "[1][1]", "[2]"]),
        ({("layer", 1): ARRAY, object(): ARRAY}, ["[('layer', 1)]", "[<class 'object'>]"]),
    ],
)
def test_the_structure_of_a_tree_has_a_path_for_each_array(tree, paths):
    """Keys whose `repr` could differ between ranks are named by their types."""
    assert list(array_paths(iter(structure(tree)))) == paths


def test_trees_have_equal_structures_only_if_types_keys_and_none_are_equal():
    pair = [ARRAY, ARRAY]
    trees = [pair, tuple(pair), [ARRAY, None], [None, ARRAY], [[ARRAY], ARRAY], [pair], dict(enumerate(pair))]
    for tree in trees:
        assert [structure(other) == structure(tree) for other in trees] == [other is tree for other in trees]
