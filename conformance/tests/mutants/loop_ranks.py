"""Conforming implementation of level 5, with ranks in one process: a base class of `loop.Loop`, which has the other methods."""

import numpy as np


class Ranks:
    """Training on ranks. Each method takes one decision, so that a mutant overrides one method."""

    def train_on_ranks(self, rule, placements, steps, optimizers, returns=False, **options):
        """
        Run each step on each rank, with gradients that are not scaled, and return each rank's pairs (scale, applied).

        If the *options* make ranks raise an error, the last step is not run: raise their errors, or, if *returns* is True, add
        the result of `after_an_error`. A step without ranks saves and loads the scalers.
        """
        texts = self.errors_of_ranks(len(steps[0]), **options)
        if texts and not returns:
            raise RuntimeError("; ".join(f"rank {rank}: {text}" for rank, text in texts.items()))
        handles = [self.create(rule) for _ in steps[0]]
        results = [[] for _ in handles]
        for step in steps[:-1] if texts else steps:
            if not step:
                handles = [self.loaded_on_rank(rule, self.save(handle)) for handle in handles]
                for result, handle in zip(results, handles, strict=True):
                    result.append((self.read_scale(handle), False))
                continue
            arrays = map(self.after_reduction, placements, zip(*step, strict=True))
            gradients = [list(rank) for rank in zip(*arrays, strict=True)]
            for rank, handle in enumerate(handles):
                applied = self.applies_on_rank(placements, step, gradients, rank)
                self.update_on_rank(handle, applied, gradients, rank, optimizers)
                results[rank].append((self.read_scale(handle), applied))
        if texts:
            for handle, scale, result in zip(handles, options["scale"], results, strict=True):
                handle.shown = handle.scale = self.rounded(rule, scale)
                result.append(self.after_an_error(handle))
        return results

    # --- the decisions

    def errors_of_ranks(self, size, time_limit=None, late=None, **settings):
        """Return a dict from each rank that raises an error to the text of the error."""
        for name, values in settings.items():
            if self.differs(name, values):
                return {rank: self.difference(name, values) for rank in self.ranks_that_raise(values)}
        return {} if late is None else {rank: self.late_error(late, time_limit) for rank in range(size) if rank != late}

    def differs(self, name, values):
        """Return True if the ranks compare this setting and have different values of it."""
        return len(set(values)) > 1

    def ranks_that_raise(self, values):
        """Return the ranks that raise an error if their values are different."""
        return range(len(values))

    def difference(self, name, values):
        """Return the text of the error about a setting with different values."""
        return f"{name} differs: " + ", ".join(f"{value} on rank {rank}" for rank, value in enumerate(values))

    def late_error(self, late, time_limit):
        """Return the text of the error of a rank that waits for another rank."""
        return f"rank {late} did not respond within {time_limit} s"

    def after_an_error(self, handle):
        """Return the scale after a step without an agreement, and whether the rank applied it."""
        return self.read_scale(handle), False

    def loaded_on_rank(self, rule, saved):
        """Return a scaler that continues from a saved state."""
        return self.load(rule, saved)

    def after_reduction(self, placement, values):
        """Return the gradient of one array on each rank after the reduction."""
        with np.errstate(all="ignore"):
            return [np.mean(values)] * len(values) if placement == "replicated" else values

    def applies_on_rank(self, placements, step, gradients, rank):
        """Return True if *rank* applies a step, given all ranks' values before (*step*) and after the reduction (*gradients*)."""
        return all(map(self.rank_is_finite, gradients))

    def rank_is_finite(self, gradients):
        """Return True if the gradients of a rank are finite."""
        return all(value is None or bool(np.isfinite(value)) for value in gradients)

    def update_on_rank(self, handle, applied, gradients, rank, optimizers):
        """Update the scale of a rank once."""
        self.update(handle, applied)
