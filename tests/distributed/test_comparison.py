"""Messages that name the ranks that differ."""

import pytest

from ampscale.distributed.comparison import difference, to_text


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ([{"max_norm": "1.0"}] * 3, None),
        ([{"max_norm": "1.0"}, {"max_norm": "2.0"}, {"max_norm": "1.0"}], "max_norm differs: 2.0 on rank 1; 1.0 on ranks 0, 2"),
        ([{"a": "1"}, {}, {"a": "1"}], "a differs: None on rank 1; 1 on ranks 0, 2"),
        ([{"gradients": ["float32"]}, {"gradients": []}], "number of gradients differs: 0 on rank 1; 1 on rank 0"),
        (
            [{"gradients": ["float32 (1,)", "float32 (2,)"]}, {"gradients": ["float32 (1,)", "float16 (2,)"]}],
            "gradients[1] differs: float16 (2,) on rank 1; float32 (2,) on rank 0",
        ),
    ],
)
def test_the_ranks_with_the_rarer_value_are_named_first(settings, message):
    assert difference([*map(to_text, settings)], [*range(len(settings))]) == message
