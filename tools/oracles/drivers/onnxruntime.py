"""ONNX Runtime training: `DynamicLossScaler`."""

from types import SimpleNamespace
from typing import Any

from environments.published import extract
from subject import Subject, maker, on_copies, pairs, read_attributes, settings

DISTRIBUTION = "onnxruntime-training"
SCALER = extract(DISTRIBUTION, "onnxruntime/training/amp/loss_scaler.py", "LossScaler", "DynamicLossScaler").DynamicLossScaler
BOUNDS = {"min_scale": "min_loss_scale", "max_scale": "max_loss_scale"}
FRESH = maker(SCALER, init_scale="loss_scale", growth_interval="up_scale_window", **BOUNDS)
READ = read_attributes(scale="loss_scale", good_steps="_stable_steps_count")


@on_copies
def step(scaler: Any, finite: bool) -> None:
    scaler.update(SimpleNamespace(all_finite=finite))


SETTINGS = settings(
    {},
    *pairs((1024.0, 3), (65536.0, 1), (4.0, 2), (2.0**23, 2)),
    {"init_scale": 1000.1, "growth_interval": 1, "min_scale": 300.0, "max_scale": 3000.0},
)
CUT = {"how": "the classes alone, extracted from their file", "unpacked": True}

SUBJECTS = (Subject("onnxruntime", DISTRIBUTION, "DynamicLossScaler", FRESH, step, READ, SETTINGS, **CUT),)
