"""Shapes of gradients: various numbers of equal arrays, and the parameters of two well-known models."""

from dataclasses import dataclass
from math import prod

Dimensions = tuple[int, ...]


@dataclass(frozen=True)
class Shape:
    """Shapes of arrays that are scaled together, a name for the row's id, and a description for the table."""

    name: str
    description: str
    arrays: tuple[Dimensions, ...]

    @property
    def values(self) -> int:
        """Return the total number of values."""
        return sum(map(prod, self.arrays))

    def shortened(self, quick: bool) -> "Shape":
        """Return this shape; for a quick run, up to four small arrays of one size, since JAX compiles a program for each size."""
        if not quick:
            return self
        return Shape(self.name, self.description, ((min(self.values, 1000),),) * min(len(self.arrays), 4))


def equal(name: str, description: str, count: int, size: int) -> Shape:
    """Return the shape of *count* arrays of *size* values."""
    return Shape(name, description, ((size,),) * count)


def resnet50() -> tuple[Dimensions, ...]:
    """Return the shapes of the 161 parameters of ResNet-50 for 1,000 classes, with 25,557,032 values."""
    shapes: list[Dimensions] = [*convolution(3, 64, 7)]
    channels = 64
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            shapes += convolution(channels, width, 1) + convolution(width, width, 3) + convolution(width, 4 * width, 1)
            if block == 0:
                shapes += convolution(channels, 4 * width, 1)  # shortcut
            channels = 4 * width
    return (*shapes, (1000, channels), (1000,))


def convolution(in_channels: int, out_channels: int, kernel_size: int) -> list[Dimensions]:
    """Return the shapes of a convolution without bias and of the batch norm after it."""
    return [(out_channels, in_channels, kernel_size, kernel_size), (out_channels,), (out_channels,)]


def gpt2_small() -> tuple[Dimensions, ...]:
    """Return the shapes of the 148 parameters of GPT-2 small, with 124,439,808 values. The head shares the embedding."""
    width, vocabulary, context, layers = 768, 50257, 1024, 12
    norm = [(width,), (width,)]
    attention = [(width, 3 * width), (3 * width,), (width, width), (width,)]
    feed_forward = [(width, 4 * width), (4 * width,), (4 * width, width), (width,)]
    return ((vocabulary, width), (context, width), *(layers * (norm + attention + norm + feed_forward)), *norm)


ONE_HUGE = equal("1x100M", "1 x 100M", 1, 100_000_000)
LARGE = equal("100x1M", "100 x 1M", 100, 1_000_000)
HALF = equal("50x1M", "50 x 1M", 50, 1_000_000)
QUARTER = equal("25x1M", "25 x 1M", 25, 1_000_000)
MANY = equal("10000x1000", "10,000 x 1,000", 10_000, 1_000)
FEWER = equal("1000x1000", "1,000 x 1,000", 1_000, 1_000)
TINY = equal("1x10", "1 x 10", 1, 10)
SMALL = equal("100x1000", "100 x 1,000", 100, 1_000)
RESNET = Shape("resnet50", "ResNet-50", resnet50())
GPT2 = Shape("gpt2", "GPT-2 small", gpt2_small())
SHAPES = (ONE_HUGE, LARGE, MANY, SMALL, TINY, RESNET, GPT2)
