"""Mutants of chapter 60: agreement of replicas."""

from . import table
from .loop import Loop

_TABLE, breaks = table()


@breaks("REPLICAS-one-flag", "facebookresearch/fairscale#179: each replica checks only its own shard")
class EachUsesItsOwnFlag(Loop):
    def agreed_flag(self, finite, rank):
        return finite[rank]


@breaks("REPLICAS-one-flag", "pytorch/pytorch#115710: the flag of one replica is read before the reduction has ended")
class FirstReplicaDecides(Loop):
    def agreed_flag(self, finite, rank):
        return finite[0]


@breaks("REPLICAS-one-flag", "not observed: each replica overwrites the flag of the previous one")
class LastReplicaDecides(Loop):
    def agreed_flag(self, finite, rank):
        return finite[-1]


@breaks("REPLICAS-one-flag", "not observed: flags are added, as in MindSpore 2.10.0, and tested for equality with one")
class TwoOverflowsCancel(Loop):
    def agreed_flag(self, finite, rank):
        return finite.count(False) != 1


@breaks("REPLICAS-one-flag", "not observed: flags are averaged, and the average is rounded")
class MostReplicasDecide(Loop):
    def agreed_flag(self, finite, rank):
        return 2 * sum(finite) > len(finite)


@breaks(
    "REPLICAS-same-scale",
    "NVIDIA-NeMo/Megatron-Bridge#5591: the scaler is updated before the replicas agree, to 4 on one and 8 on another",
)
class UpdatesBeforeTheReplicasAgree(Loop):
    def agreed_flag(self, finite, rank):
        return finite[rank]


@breaks("REPLICAS-same-scale", "not observed: only the first replica updates its scaler, and the others keep their copies")
class UpdatesOneReplica(Loop):
    def update_replicas(self, handles, finite):
        self.update(handles[0], all(finite))
        return list(handles)


@breaks("REPLICAS-single", "not observed: a process group of one is not initialized")
class RejectsASingleReplica(Loop):
    def agreed_flag(self, finite, rank):
        if len(finite) < 2:
            raise RuntimeError("the process group has not been initialized")
        return all(finite)


MUTANTS = tuple(_TABLE)
