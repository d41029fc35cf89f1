"""Chainer: the loss scaling of `Optimizer` with NumPy gradients; its methods are called in the order of `update`."""

import math
import warnings
from types import SimpleNamespace
from typing import Any

import numpy as np
from environments.published import extract
from subject import Subject, on_copies, pairs, read_attributes, settings

CHAINER = extract("chainer", "chainer/optimizer.py", "Optimizer", _Hookable=object, math=math, warnings=warnings)
GRADIENTS = {True: np.zeros(2), False: np.array([0.0, np.inf])}
DEVICE = SimpleNamespace(xp=np)


def fresh(init_scale: float | None = None, growth_interval: int | None = None) -> Any:
    """Return an optimizer. Dynamic scaling starts at 1; any other initial scale must be set as an attribute."""
    optimizer = CHAINER.Optimizer()
    optimizer.loss_scaling() if growth_interval is None else optimizer.loss_scaling(interval=growth_interval)
    optimizer._loss_scale = optimizer._loss_scale if init_scale is None else init_scale
    return optimizer


@on_copies
def step(optimizer: Any, finite: bool) -> None:
    parameter = SimpleNamespace(device=DEVICE, grad=GRADIENTS[finite])
    optimizer.target = SimpleNamespace(namedparams=lambda: [("weight", parameter)])
    with warnings.catch_warnings(action="ignore"):
        optimizer.check_nan_in_grads()
    assert optimizer.is_safe_to_update() is finite
    optimizer.update_loss_scale()
    del optimizer.target


SETTINGS = settings({}, {"growth_interval": 3}, *pairs((1024.0, 2), (16384.0, 1), (60000.0, 7), (4.0, 2)))
HOW = "the class alone, extracted from its file; an initial scale other than 1 set as an attribute"
READ = read_attributes(scale="_loss_scale")

SUBJECTS = (Subject("chainer", "chainer", "Optimizer.loss_scaling", fresh, step, READ, SETTINGS, how=HOW, unpacked=True),)
