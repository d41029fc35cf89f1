"""Chapter 60, replicas: ranks that decide together, wrong in one way each."""

from . import table
from .loop import Loop

_TABLE, wrong = table()


@wrong("REPLICAS-one-flag", "facebookresearch/fairscale#179: each rank looks at its own shard alone")
class EachUsesItsOwnFlag(Loop):
    def agreed(self, finite, rank):
        return finite[rank]


@wrong("REPLICAS-one-flag", "pytorch/pytorch#115710: one rank's flag is read before the reduction has ended")
class FirstRankDecides(Loop):
    def agreed(self, finite, rank):
        return finite[0]


@wrong("REPLICAS-one-flag", "not seen; each rank overwrites the flag of the one before")
class LastRankDecides(Loop):
    def agreed(self, finite, rank):
        return finite[-1]


@wrong("REPLICAS-one-flag", "not seen; flags are added and compared with one, as in MindSpore 2.10.0, for equality")
class TwoOverflowsCancel(Loop):
    def agreed(self, finite, rank):
        return finite.count(False) != 1


@wrong("REPLICAS-one-flag", "not seen; flags are averaged, and the average is rounded")
class MostRanksDecide(Loop):
    def agreed(self, finite, rank):
        return 2 * sum(finite) > len(finite)


@wrong("REPLICAS-same-scale", "NVIDIA-NeMo/Megatron-Bridge#5591: the scaler moves before the ranks agree, to 4 here and 8 there")
class MovesBeforeTheRanksAgree(Loop):
    def agreed(self, finite, rank):
        return finite[rank]


@wrong("REPLICAS-same-scale", "not seen; the scaler lives on the first rank, and the others' copies stay")
class OneRankMoves(Loop):
    def update_replicas(self, handles, finite):
        self.update(handles[0], all(finite))
        return list(handles)


@wrong("REPLICAS-single", "not seen; a group of one is no group, and nobody answers")
class NeedsOthers(Loop):
    def agreed(self, finite, rank):
        if len(finite) < 2:
            raise RuntimeError("the process group has not been initialized")
        return all(finite)


MUTANTS = tuple(_TABLE)
