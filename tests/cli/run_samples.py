"""Run files for tests of commands."""

import math

from ampscale import LossScaleRule
from ampscale.diagnostics import Diagnosis, Histogram, StepRecord, TensorStatistics, Verdict
from ampscale.diagnostics.run_files import header_line, step_line

NAMES = ["layers.0.weight", "<b>&amp;"]
HISTOGRAMS = (Histogram(-30, (50, 0, 0, 0, 30, 0, 0, 0, 0, 20)), Histogram(14, (100,)))
TENSORS = (TensorStatistics(110, 10, 100, 50, 0, 0, -30, -21), TensorStatistics(100, 0, 0, 0, 0, 0, 14, 14))
OVERFLOW = (TensorStatistics(110, 10, 0, 0, 0, 0, -3, 5), TensorStatistics(100, 0, 0, 0, 7, 1, 3, 15))


def write_steps(path, records, names=None):
    """Write a run with these records and without a rule, and return its path."""
    path.write_text(header_line(None, names) + "".join(map(step_line, records)))
    return path


def write_run(path, steps=40, skipped=(0, 1, 20), names=NAMES):
    """Write a run that starts at 2**16 and backs off at the *skipped* steps, measured there and at each tenth. Return *path*."""
    scale = 2.0**16
    lines = [header_line(LossScaleRule(init_scale=2.0**16), names)]
    for step in range(steps):
        measured = {"measured_scale": scale, "tensors": OVERFLOW if step in skipped else TENSORS}
        if step in skipped:
            verdict = Verdict.SEARCHING if step < 10 else Verdict.OCCASIONAL
            record = StepRecord(step, scale, scale / 2, finite=False, applied=False, loss=math.nan, **measured)
            lines.append(step_line(record, Diagnosis(step, verdict, f"<i>overflow</i> at step {step}", {"scale": scale})))
            scale /= 2
        elif step % 10 == 0:
            record = StepRecord(
                step, scale, scale, finite=True, applied=True, loss=0.5, norm=2.0, histograms=HISTOGRAMS, **measured
            )
            lines.append(step_line(record))
        else:
            lines.append(step_line(StepRecord(step, scale, scale, finite=True, applied=True, loss=0.25)))
    path.write_text("".join(lines), "utf-8")
    return path
