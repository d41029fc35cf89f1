"""The shapes that gradients come in: some numbers of equal arrays, and the parameters of two models that everybody knows."""

from dataclasses import dataclass
from math import prod

Dimensions = tuple[int, ...]


@dataclass(frozen=True)
class Shape:
    """Arrays that are scaled together: a name for the row's id, and the shape of each."""

    name: str
    words: str
    arrays: tuple[Dimensions, ...]

    @property
    def values(self) -> int:
        """How many numbers there are in all."""
        return sum(map(prod, self.arrays))

    def quick(self) -> "Shape":
        """Few and small arrays in their place, to see that a row runs; of few sizes, for each of which JAX compiles anew."""
        return Shape(self.name, self.words, ((min(self.values, 1000),),) * min(len(self.arrays), 4))


def equal(name: str, words: str, count: int, size: int) -> Shape:
    """*count* arrays of *size* numbers."""
    return Shape(name, words, ((size,),) * count)


def resnet50() -> tuple[Dimensions, ...]:
    """The parameters of ResNet-50 for 1,000 classes, in their order: 161 of them, 25,557,032 numbers."""
    found: list[Dimensions] = [*convolution(3, 64, 7)]
    inside = 64
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            found += convolution(inside, width, 1) + convolution(width, width, 3) + convolution(width, 4 * width, 1)
            if block == 0:
                found += convolution(inside, 4 * width, 1)  # the shortcut's
            inside = 4 * width
    return (*found, (1000, inside), (1000,))


def convolution(inside: int, outside: int, side: int) -> list[Dimensions]:
    """Of a convolution without bias, and the batch norm after it."""
    return [(outside, inside, side, side), (outside,), (outside,)]


def gpt2_small() -> tuple[Dimensions, ...]:
    """The parameters of GPT-2 small, in their order: 148 of them, 124,439,808 numbers. The head shares the embedding's."""
    width, vocabulary, context, layers = 768, 50257, 1024, 12
    norm = [(width,), (width,)]
    attention = [(width, 3 * width), (3 * width,), (width, width), (width,)]
    feed_forward = [(width, 4 * width), (4 * width,), (4 * width, width), (width,)]
    return ((vocabulary, width), (context, width), *(layers * (norm + attention + norm + feed_forward)), *norm)


ONE_HUGE = equal("1x100M", "1 x 100M", 1, 100_000_000)
LARGE = equal("100x1M", "100 x 1M", 100, 1_000_000)
MANY = equal("10000x1000", "10,000 x 1,000", 10_000, 1_000)
FEWER = equal("1000x1000", "1,000 x 1,000", 1_000, 1_000)
TINY = equal("1x10", "1 x 10", 1, 10)
SMALL = equal("100x1000", "100 x 1,000", 100, 1_000)
RESNET = Shape("resnet50", "ResNet-50", resnet50())
GPT2 = Shape("gpt2", "GPT-2 small", gpt2_small())
SHAPES = (ONE_HUGE, LARGE, MANY, SMALL, TINY, RESNET, GPT2)
