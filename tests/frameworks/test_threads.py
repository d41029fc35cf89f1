"""Scalers that one thread updates while others read their state: readers get consistent states and change nothing."""

import copy
import pickle
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from types import SimpleNamespace

import numpy as np
import pytest

from ampscale.frameworks import mindspore, paddle

STEPS = [number % 5 != 2 for number in range(100)]  # True is a finite step


def paddle_scaler():
    """Return a function that runs a step, and a function that returns the state dict."""
    parameter = SimpleNamespace(value=np.ones(1, np.float32), grad=None)
    optimizer = SimpleNamespace(parameters=[parameter], step=list)  # `list()` changes nothing
    scaler = paddle.GradScaler(incr_every_n_steps=2, decr_every_n_nan_or_inf=1)

    def step(finite):
        parameter.grad = np.float32([1.0 if finite else np.inf])
        scaler.step(optimizer)
        scaler.update()

    return step, scaler.state_dict


def mindspore_scaler():
    scaler = mindspore.DynamicLossScaler(2.0**16, 2, 2)
    return scaler.adjust, scaler.state_dict


def mindspore_update_cell():
    cell = mindspore.DynamicLossScaleUpdateCell(2.0**16, 2, 2)
    scale = np.asarray(2.0**16, np.float32)
    return lambda finite: cell(scale, not finite), cell.state_dict


@pytest.mark.parametrize("make", [paddle_scaler, mindspore_scaler, mindspore_update_cell])
def test_readers_get_consistent_states(make):
    """Each state dict that three threads read is the state after some step. The run has the states of a run without readers."""

    def run(step, state_dict):
        states = [state_dict()]
        for finite in STEPS:
            step(finite)
            states.append(state_dict())
        return states

    def read():
        while not done.is_set():
            read_states.append(state_dict())

    expected = run(*make())
    step, state_dict = make()
    done, read_states, interval = Event(), [], sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(3) as pool:
            readers = [pool.submit(read) for _ in range(3)]
            states = run(step, state_dict)
            done.set()
            assert [reader.result() for reader in readers] == [None] * 3
    finally:
        done.set()
        sys.setswitchinterval(interval)
    assert states == expected
    assert [state for state in read_states if state not in expected] == []


def test_readers_wait_while_torchs_scaler_writes_its_state(monkeypatch):
    """
    `state_dict` and `get_scale` in another thread wait between the writes of scale and count.

    The scaler can still be copied and pickled afterwards.
    """
    torch = pytest.importorskip("torch", reason="needs torch")
    from ampscale.frameworks.torch import GradScaler

    begun, update_scale = Event(), torch._amp_update_scale_

    def update_slowly(scale, count, *constants):
        next_scale, next_count = scale.clone(), count.clone()
        update_scale(next_scale, next_count, *constants)
        scale.copy_(next_scale)
        begun.set()
        time.sleep(0.05)
        count.copy_(next_count)

    weight = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([weight], lr=0.0)
    scaler = GradScaler("cpu", growth_interval=2)
    monkeypatch.setattr(torch, "_amp_update_scale_", update_slowly)
    with ThreadPoolExecutor(1) as pool:
        for scale, count in ((2.0**16, 1), (2.0**17, 0), (2.0**17, 1)):
            weight.grad = scaler.scale(torch.ones(1))
            scaler.step(optimizer)
            updated = pool.submit(scaler.update)
            assert begun.wait(30)
            assert (scaler.state_dict()["_growth_tracker"], scaler.get_scale()) == (count, scale)
            updated.result()
            begun.clear()
    assert pickle.loads(pickle.dumps(scaler)).state_dict() == copy.deepcopy(scaler).state_dict() == scaler.state_dict()
