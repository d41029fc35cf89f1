"""Messages that name the ranks that differ."""

import numpy as np
import pytest

import ampscale
from ampscale.core.trees import structure
from ampscale.distributed.comparison import array_paths, difference, setting_texts, to_text


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ([{"max_norm": "1.0"}] * 3, None),
        ([{"max_norm": "1.0"}, {"max_norm": "2.0"}, {"max_norm": "1.0"}], "max_norm differs: 2.0 on rank 1; 1.0 on ranks 0, 2"),
        ([{"a": "1"}, {}, {"a": "1"}], "a differs: None on rank 1; 1 on ranks 0, 2"),
        ([{"gradients": ["float32"]}, {"gradients": []}], "length of gradients differs: 0 on rank 1; 1 on rank 0"),
        (
            [{"gradients": ["float32 (1,)", "float32 (2,)"]}, {"gradients": ["float32 (1,)", "float16 (2,)"]}],
            "gradients[1] differs: float16 (2,) on rank 1; float32 (2,) on rank 0",
        ),
    ],
)
def test_the_ranks_with_the_rarer_value_are_named_first(settings, message):
    assert difference([*map(to_text, settings)], [*range(len(settings))]) == message


def test_equal_constants_of_different_types_have_equal_texts():
    rules = (ampscale.LossScaleRule(init_scale=scale, max_scale=scale) for scale in (8, 8.0, np.float64(8)))
    assert [setting_texts({"rule": rule})["rule.max_scale"] for rule in rules] == 3 * ["8.0"]


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
    assert [[structure(tree) == structure(other) for other in trees] for tree in trees] == np.eye(len(trees), dtype=bool).tolist()
