"""Mutants of chapter 60: agreement of replicas, and of ranks, which share one process here."""

import numpy as np
from ampscale_conformance.model.adapter import Unsupported
from ampscale_conformance.model.subject import TimedOut

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


@breaks("REPLICAS-one-flag", "planted: flags are combined in pairs, and a middle one is left over")
class IgnoresMiddleReplicas(Loop):
    def agreed_flag(self, finite, rank):
        return finite[0] and finite[-1]


@breaks("REPLICAS-one-flag", "planted: the flags are combined by an exclusive or")
class OddOverflowsCount(Loop):
    def agreed_flag(self, finite, rank):
        return finite.count(False) % 2 == 0


@breaks("REPLICAS-one-flag", "planted: a buffer has room for the flags of four replicas")
class ReadsFourFlags(Loop):
    def agreed_flag(self, finite, rank):
        return all(finite[:4])


@breaks("REPLICAS-one-flag", "planted: the number of replicas is that of the first call")
class KeepsTheFirstSize(Loop):
    size = 0

    def agreed_flag(self, finite, rank):
        self.size = self.size or len(finite)
        return all(finite[: self.size])


@breaks("REPLICAS-same-scale", "planted: replicas back off once for each flag that is False")
class BacksOffForEachReplica(Loop):
    def update_replicas(self, handles, finite):
        for handle in handles:
            for _ in range(max(1, finite.count(False))):
                self.update(handle, all(finite))
        return list(handles)


@breaks("REPLICAS-same-scale", "planted: a replica without an overflow of its own keeps its count of finite steps")
class KeepsItsOwnCount(Loop):
    def update_replicas(self, handles, finite):
        for handle, is_finite in zip(handles, finite, strict=True):
            good = handle.good
            self.update(handle, all(finite))
            handle.good = good if is_finite and not all(finite) else handle.good
        return list(handles)


@breaks("REPLICAS-same-scale", "planted: one state is returned for all replicas, since they are equal")
class ReturnsOneState(Loop):
    def update_replicas(self, handles, finite):
        self.update(handles[0], all(finite))
        return [handles[0]] * len(handles)


@breaks("REPLICAS-same-scale", "planted: the count of finite steps belongs to the implementation, and all groups share it")
class SharesTheCountOfGroups(Loop):
    good = 0

    def update_replicas(self, handles, finite):
        for handle in handles:
            handle.good = self.good
            self.update(handle, all(finite))
        self.good = handles[0].good
        return list(handles)


@breaks("REPLICAS-same-scale", "planted: replicas that agree back off at each overflow")
class LosesHysteresisTogether(Loop):
    updates_replicas = False

    def backoff_due(self, handle, bad, since):
        return self.updates_replicas or super().backoff_due(handle, bad, since)

    def update_replicas(self, handles, finite):
        self.updates_replicas = True
        updated = super().update_replicas(handles, finite)
        self.updates_replicas = False
        return updated


@breaks("REPLICAS-single", "planted: replicas count at most eight finite steps")
class CountsEightStepsOfReplicas(Loop):
    def update_replicas(self, handles, finite):
        handles = super().update_replicas(handles, finite)
        for handle in handles:
            handle.good = min(handle.good, 8)
        return handles


@breaks("REPLICAS-single", "not observed: a process group of one is not initialized")
class RejectsASingleReplica(Loop):
    def agreed_flag(self, finite, rank):
        if len(finite) < 2:
            raise RuntimeError("the process group has not been initialized")
        return all(finite)


class UsesFlagsOfSomeRanks(Loop):
    """Loop in which a rank uses, for each array, the flags of the ranks that `peers` returns."""

    def applies_on_rank(self, placements, step, gradients, rank):
        columns = zip(placements, zip(*gradients, strict=True), strict=True)
        return all(
            self.rank_is_finite([value for peer, value in enumerate(values) if peer in self.peers(placements, placement, rank)])
            for placement, values in columns
        )

    def peers(self, placements, placement, rank):
        """Return the ranks whose flags count for an array with this placement."""
        return {0, 1, 2, 3}


@breaks("REPLICAS-same-scale", "NVIDIA-NeMo/Megatron-Bridge#5591: each rank updates its scale before the ranks agree")
class UpdatesByItsOwnGradients(Loop):
    def applies_on_rank(self, placements, step, gradients, rank):
        self.own = self.rank_is_finite(step[rank])
        return super().applies_on_rank(placements, step, gradients, rank)

    def update_on_rank(self, handle, applied, gradients, rank, optimizers):
        self.update(handle, self.own)


@breaks("REPLICAS-same-decision", "not observed: a rank that has no overflow before the reduction steps, and then backs off")
class StepsBeforeTheReduction(Loop):
    def applies_on_rank(self, placements, step, gradients, rank):
        return self.rank_is_finite(step[rank] if placements[0] == "replicated" else [value for row in gradients for value in row])

    def update_on_rank(self, handle, applied, gradients, rank, optimizers):
        self.update(handle, all(map(self.rank_is_finite, gradients)))


@breaks("REPLICAS-same-decision", "facebookresearch/fairscale#179: each rank checks only its own shard")
class ChecksItsOwnShard(UsesFlagsOfSomeRanks):
    def train_on_ranks(self, rule, placements, steps, optimizers, **options):
        if optimizers > 1:
            raise Unsupported("it has a single optimizer")
        return super().train_on_ranks(rule, placements, steps, optimizers, **options)

    def peers(self, placements, placement, rank):
        return {rank} if placement == "sharded" else {0, 1, 2, 3}


@breaks("REPLICAS-same-decision", "torch 2.13.0: `GradScaler` combines no flags of the stages of a pipeline")
class ChecksItsOwnStage(UsesFlagsOfSomeRanks):
    def peers(self, placements, placement, rank):
        return {rank} if placement == "distinct" else {0, 1, 2, 3}


@breaks("REPLICAS-same-decision", "planted: a stage of a pipeline sends its flag to the stages before and after it")
class AsksNeighboringStages(UsesFlagsOfSomeRanks):
    def peers(self, placements, placement, rank):
        return {rank - 1, rank, rank + 1} if placement == "distinct" else {0, 1, 2, 3}


@breaks("REPLICAS-same-decision", "planted: the flag of the first optimizer is agreed on, and the others step by their own")
class AgreesForTheFirstOptimizer(Loop):
    def applies_on_rank(self, placements, step, gradients, rank):
        agreed = super().applies_on_rank(placements, step, gradients, rank)
        return agreed or (placements == ["sharded", "sharded"] and self.rank_is_finite(gradients[rank][1:]))

    def update_on_rank(self, handle, applied, gradients, rank, optimizers):
        self.update(handle, all(map(self.rank_is_finite, gradients)))


@breaks(
    "REPLICAS-same-decision",
    "planted: the flag of the first optimizer is agreed on, and a rank's own flag of the last one counts",
)
class AgreesOnTheFirstArray(Loop):
    def applies_on_rank(self, placements, step, gradients, rank):
        if placements != ["sharded", "sharded"]:
            return super().applies_on_rank(placements, step, gradients, rank)
        return self.rank_is_finite([first for first, _ in gradients]) and self.rank_is_finite(gradients[rank][1:])


@breaks("REPLICAS-same-decision", "not observed: a rank ends its loop after an overflow in the last stage")
class EndsAfterTheLastStage(Loop):
    def train_on_ranks(self, rule, placements, steps, optimizers, **options):
        results = super().train_on_ranks(rule, placements, steps, optimizers, **options)
        return [results[0][:-1], *results[1:]] if placements == ["distinct"] else results


@breaks("REPLICAS-spreads", "not observed: the averaged gradients are checked for infinities, but not for NaN")
class LooksForInfinities(Loop):
    def rank_is_finite(self, gradients):
        return not any(value is not None and np.isinf(value) for value in gradients)


@breaks("REPLICAS-one-flag", "torch 2.13.0: `GradScaler` under DDP combines no flags, since the gradients are reduced")
class TrustsTheReduction(UsesFlagsOfSomeRanks):
    def peers(self, placements, placement, rank):
        return {rank} if placement == "reduced" else {0, 1, 2, 3}


@breaks("REPLICAS-one-update", "THUDM/slime#1842: gradients are prepared twice, which updates the scale twice")
class BacksOffForEachOptimizer(Loop):
    def update_on_rank(self, handle, applied, gradients, rank, optimizers):
        parts = [[self.rank_is_finite(values[first::optimizers]) for values in gradients] for first in range(optimizers)]
        for _ in range(max(1, sum(not all(flags) for flags in parts))):
            self.update(handle, applied)


@breaks("REPLICAS-one-update", "megatron-core 0.16.1: the first of two optimizers determines the scale")
class FirstOptimizerUpdates(Loop):
    def update_on_rank(self, handle, applied, gradients, rank, optimizers):
        self.update(handle, all(self.rank_is_finite(values[::optimizers]) for values in gradients))


@breaks("REPLICAS-nan-survives", "gloo in torch 2.13.0, Open MPI 5.0.11 and JAX 0.10.2: a maximum drops the NaN of some ranks")
class MaximumDropsANaN(Loop):
    def applies_on_rank(self, placements, step, gradients, rank):
        values = [0.0 if value is None else value for row in gradients for value in row]
        largest = values[0]
        for value in values[1:]:
            largest = value if value > largest else largest
        return bool(np.isfinite(largest)) and -np.inf not in values


@breaks("REPLICAS-every-call", "microsoft/DeepSpeed#7568: ranks wait for each other in the check for an overflow")
class ReturnsEarly(Loop):
    def train_on_ranks(self, rule, placements, steps, optimizers, **options):
        if any(len({self.rank_is_finite(values) for values in step}) > 1 for step in steps):
            raise TimedOut("no result of rank 1 within 50 s")
        return super().train_on_ranks(rule, placements, steps, optimizers, **options)


@breaks("REPLICAS-empty-ranks", "pytorch/pytorch#99174: a rank without shards raises an error")
class RequiresShards(Loop):
    def applies_on_rank(self, placements, step, gradients, rank):
        if placements == ["sharded"] and gradients[rank] == [None]:
            raise RuntimeError("no inf checks were recorded prior to update")
        return super().applies_on_rank(placements, step, gradients, rank)


@breaks("REPLICAS-empty-ranks", "not observed: a stage without gradients keeps its scale")
class KeepsTheScaleOfAnEmptyStage(Loop):
    def update_on_rank(self, handle, applied, gradients, rank, optimizers):
        if rank or gradients[rank] != [None]:
            self.update(handle, applied)


@breaks("REPLICAS-mixed-placements", "torch 2.13.0: `GradScaler` uses the placements of the first gradient for all")
class UsesTheFirstPlacement(UsesFlagsOfSomeRanks):
    def peers(self, placements, placement, rank):
        return {rank} if placements[0] == "reduced" else {0, 1, 2, 3}


@breaks("REPLICAS-mixed-placements", "not observed: the placements of the last gradient are used for all")
class UsesTheLastPlacement(UsesFlagsOfSomeRanks):
    def peers(self, placements, placement, rank):
        return {rank} if placements[-1] == "reduced" else {0, 1, 2, 3}


@breaks("REPLICAS-mixed-meshes", "torch 2.13.0: `GradScaler` uses the mesh of the first gradient for all")
class UsesTheFirstMesh(UsesFlagsOfSomeRanks):
    def peers(self, placements, placement, rank):
        return {rank, (rank + 2) % 4} if placements[0] == "half" else {0, 1, 2, 3}


@breaks("REPLICAS-mixed-meshes", "not observed: the mesh of the last gradient is used for all")
class UsesTheLastMesh(UsesFlagsOfSomeRanks):
    def peers(self, placements, placement, rank):
        return {rank, (rank + 2) % 4} if placements[-1] == "half" else {0, 1, 2, 3}


@breaks("REPLICAS-mixed-meshes", "planted: flags are combined along the first row and the first column of the mesh")
class LeavesOutTheLastRankOfTheMesh(UsesFlagsOfSomeRanks):
    def peers(self, placements, placement, rank):
        return {0, 1, 2}


@breaks("REPLICAS-load-keeps-scale", "planted: the count of overflows is not loaded on ranks")
class LoadsNoOverflowsOnRanks(Loop):
    def loaded_on_rank(self, rule, saved):
        return super().loaded_on_rank(rule, {**saved, "bad": 0})


@breaks("REPLICAS-load-keeps-scale", "huggingface/accelerate#4289: a step without gradients during loading changed the scale")
class CountsLoadingAsAStep(Loop):
    def loaded_on_rank(self, rule, saved):
        handle = super().loaded_on_rank(rule, saved)
        self.update(handle, True)
        return handle


@breaks("REPLICAS-load-keeps-scale", "not observed: only the scale is loaded, and the count of finite steps starts again")
class LoadsTheScaleAlone(Loop):
    def loaded_on_rank(self, rule, saved):
        return super().loaded_on_rank(rule, {name: saved[name] for name in ("scale", "shown")})


@breaks("REPLICAS-settings-compared", "torch 2.13.0: `GradScaler` compares nothing; the mutant compares only the limit")
class ComparesTheLimitAlone(Loop):
    def differs(self, name, values):
        return name == "max_norm" and super().differs(name, values)


@breaks("REPLICAS-scale-compared", "NVIDIA-NeMo/Megatron-Bridge#5591: ranks compare their constants, but not their scales")
class ComparesNoScales(Loop):
    def differs(self, name, values):
        return name != "scale" and super().differs(name, values)


@breaks("REPLICAS-sizes-compared", "gloo in torch 2.13.0: arrays of several sizes are added up without an error")
class ComparesNoSizes(Loop):
    def differs(self, name, values):
        return name != "elements" and super().differs(name, values)


@breaks("REPLICAS-agreement-first", "NVIDIA-NeMo/Megatron-Bridge#5591: ranks compare flags after the update of the scale")
class UpdatesAndThenAgrees(Loop):
    def after_an_error(self, handle):
        self.update(handle, True)
        return super().after_an_error(handle)


@breaks(
    "REPLICAS-agreement-first",
    "not observed: the optimizer steps if the rank's own gradients are finite, and then the ranks agree",
)
class StepsAndThenAgrees(Loop):
    def after_an_error(self, handle):
        return self.read_scale(handle), True


@breaks("REPLICAS-settings-compared", "not observed: ranks compare their rules, but not the clipping limit of each call")
class ComparesTheRuleAlone(Loop):
    def differs(self, name, values):
        return name != "max_norm" and super().differs(name, values)


@breaks("REPLICAS-settings-compared", "planted: the first rank compares its rule with that of the second one")
class ComparesTwoRanks(Loop):
    def differs(self, name, values):
        return super().differs(name, values[:2] if name == "growth_interval" else values)


@breaks("REPLICAS-error-names-ranks", "not observed: only a rank that differs from the first one raises an error")
class RaisesOnTheRankThatDiffers(Loop):
    def ranks_that_raise(self, values):
        return [rank for rank, value in enumerate(values) if value != values[0]]


@breaks("REPLICAS-error-names-ranks", "not observed: the error contains the values, but no rank")
class NamesNoRank(Loop):
    def difference(self, name, values):
        return f"{name} differs from that of another rank: {min(values)}, {max(values)}"


@breaks("REPLICAS-time-limit", "microsoft/DeepSpeed#7568: ranks wait for each other in the check for an overflow")
class WaitsWithoutALimit(Loop):
    def errors_of_ranks(self, size, time_limit=None, late=None, **settings):
        return super().errors_of_ranks(size, **settings)


@breaks("REPLICAS-time-limit", "gloo in torch 2.13.0: the error after a timeout names no rank")
class NamesNoLateRank(Loop):
    def late_error(self, late, time_limit):
        return f"timed out waiting for {time_limit * 1000:g} ms"


@breaks("REPLICAS-same-scale", "planted: with more than three replicas, a finite step counts twice unless the scale then grows")
class CountsFiniteStepsTwice(Loop):
    def update_replicas(self, handles, finite):
        handles = super().update_replicas(handles, finite)
        if len(handles) > 3 and all(finite):
            for handle in handles:
                if 0 < handle.good < handle.rule.growth_interval - 1:
                    handle.good += 1
        return handles


@breaks("REPLICAS-one-flag", "planted: the flags of the replicas are the bits of an int32")
class ReadsThirtyTwoFlags(Loop):
    def agreed_flag(self, finite, rank):
        return all(finite[:32])


@breaks("REPLICAS-same-scale", "planted: the replicas other than the first keep their count of overflows in a finite step")
class KeepsOverflowsOfOthers(Loop):
    def update_replicas(self, handles, finite):
        counts = [handle.bad for handle in handles]
        updated = super().update_replicas(handles, finite)
        for handle, bad in list(zip(updated, counts, strict=True))[1:]:
            handle.bad = bad if all(finite) and handle.good else handle.bad
        return updated


@breaks("REPLICAS-same-scale", "planted: the replicas other than the first keep their window if an overflow keeps the scale")
class KeepsTheWindowOfOthers(Loop):
    def update_replicas(self, handles, finite):
        old_states = [(handle.good, handle.scale) for handle in handles]
        updated = super().update_replicas(handles, finite)
        for handle, (good, scale) in list(zip(updated, old_states, strict=True))[1:]:
            handle.good = handle.good if all(finite) or handle.scale != scale else good
        return updated


MUTANTS = tuple(_TABLE)
