"""`GradScaler` without training loops: arguments, setters, state dict, copies, and `update(new_scale)`."""

import copy
import os
import pickle
import re
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import torch
from frameworks.rejections import check_rejected
from frameworks.torch.loops import run_step

from ampscale.frameworks.torch import GradScaler

INF, NAN = float("inf"), float("nan")
NUMBERS = ["growth_factor", "backoff_factor", "growth_interval"]
INVALID_SCALES = [0.0, 0, -1.0, NAN, INF, -INF, 1e39, 2.0**-127]


def used_scaler(**settings):
    """Return a scaler that has scaled a tensor."""
    scaler = GradScaler(**settings)
    scaler.scale(torch.ones(()))
    return scaler


@pytest.mark.clause("TORCH-device", "TORCH-never-off", "TORCH-first-scale")
def test_a_scaler_stays_enabled_on_every_device():
    """There is no warning, and the scale is placed on the device of the first scaled tensor."""
    for device in ("cuda", "cuda:1", "cpu", "xpu", "mps", torch.device("cpu")):
        scaler = GradScaler(device)
        assert scaler.scale(torch.ones(())) == 2.0**16
        assert (run_step(scaler, 1.0), scaler.is_enabled()) == (True, True)


@pytest.mark.clause("TORCH-device", "TORCH-first-scale")
def test_the_default_device_of_torch_is_not_used():
    """The scale is on the host until the first tensor is scaled. "meta" stands for an accelerator."""
    output = torch.ones(())
    with torch.device("meta"):
        scaler = GradScaler("cpu", init_scale=1024.0)
        assert (scaler.get_scale(), scaler.scale(output).item()) == (1024, 1024)


@pytest.mark.clause("TORCH-first-scale", "TORCH-copies")
@pytest.mark.parametrize("make", [GradScaler, lambda: copy.deepcopy(GradScaler())], ids=["new", "copy"])
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_a_scaler_that_was_created_in_inference_mode_can_train(make, device):
    """Tensors of inference mode allow neither a backward pass nor a later write. "meta" stands for an accelerator."""
    with torch.inference_mode():
        scaler = make()
        scaler.scale(torch.ones((), device=device))
    scaler.load_state_dict(PUBLISHED)
    scaler.scale(torch.ones((), device=device, requires_grad=True)).backward()


@pytest.mark.clause("TORCH-getters")
@pytest.mark.parametrize("enabled", [True, False])
def test_getters_return_constructor_arguments(enabled):
    """Setters change these values, and return None."""
    scaler = GradScaler("cpu", 1024.0, 3.0, 0.25, 5, enabled)
    assert [scaler.is_enabled(), *(getattr(scaler, f"get_{name}")() for name in NUMBERS)] == [enabled, 3.0, 0.25, 5]
    for name, value in zip(NUMBERS, (4.0, 0.125, 7), strict=True):
        assert getattr(scaler, f"set_{name}")(value) is None
        assert getattr(scaler, f"get_{name}")() == value


def test_repr_has_the_scale_in_every_state():
    """A debugger can print a scaler before its first step, and after one."""
    scaler = GradScaler("cpu", init_scale=8.0)
    assert repr(scaler) == "GradScaler(scale=8.0, growth_interval=2000, good_steps=0)"
    scaler.scale(torch.ones(()))
    run_step(scaler, 1.0)
    assert repr(scaler) == "GradScaler(scale=8.0, growth_interval=2000, good_steps=1)"
    assert repr(GradScaler("cpu", enabled=False)) == "GradScaler(enabled=False)"


@pytest.mark.clause("TORCH-getters", "MACHINE-at-least")
def test_set_values_apply_at_the_next_update():
    """An interval that is set or loaded applies even if the count already exceeds it."""
    scaler = used_scaler(init_scale=8.0)
    for _ in range(3):
        run_step(scaler, 1.0)
    scaler.set_growth_factor(4.0)
    scaler.set_growth_interval(2)
    run_step(scaler, 1.0)
    assert (scaler.get_scale(), scaler.state_dict()["_growth_tracker"]) == (32.0, 0)
    scaler.load_state_dict({**scaler.state_dict(), "_growth_tracker": 4, "growth_interval": 3})
    assert scaler.state_dict()["_growth_tracker"] == 4
    run_step(scaler, 1.0)
    assert (scaler.get_scale(), scaler.state_dict()["_growth_tracker"]) == (128.0, 0)
    scaler.set_backoff_factor(0.125)
    run_step(scaler, INF)
    assert scaler.get_scale() == 16.0


@pytest.mark.clause("TORCH-new-scale")
@pytest.mark.parametrize("value", [4, np.float64(4), torch.tensor([4.0]), torch.tensor(4.0, dtype=torch.float64)], ids=repr)
def test_update_accepts_a_number_or_a_tensor(value):
    """The count is kept, and the value is copied."""
    scaler = used_scaler(init_scale=8.0)
    run_step(scaler, 1.0)
    assert scaler.update(value) is None
    if isinstance(value, torch.Tensor):
        value.zero_()
    assert scaler.state_dict() == {**GradScaler().state_dict(), "scale": 4.0, "_growth_tracker": 1}
    assert scaler.scale(torch.ones(())) == 4.0


@pytest.mark.clause("TORCH-new-scale")
def test_a_new_scale_is_validated_as_the_initial_one():
    """After an error the scale is unchanged, and the step can continue."""
    scaler = used_scaler(init_scale=8.0)
    parameter = torch.zeros(1, requires_grad=True)
    optimizer = torch.optim.SGD([parameter])
    parameter.grad = torch.tensor([1.0])
    scaler.unscale_(optimizer)
    tensors = [*(torch.tensor(value) for value in (0.0, -1.0, NAN, INF, 2.0**-127)), torch.tensor([4.0, 4.0])]
    wrong = [("new_scale", value, ValueError) for value in [*INVALID_SCALES, *tensors, torch.tensor(4.0, requires_grad=True)]]
    others = [torch.tensor(4), torch.tensor(4.0, dtype=torch.float16), True, "4"]
    wrong += [("new_scale", value, TypeError) for value in others]
    check_rejected(lambda _, value: scaler.update(value), wrong, got=None)
    assert scaler.get_scale() == 8.0
    assert scaler.step(optimizer) is True


PUBLISHED = {"scale": 1024.0, "growth_factor": 3.0, "backoff_factor": 0.25, "growth_interval": 5, "_growth_tracker": 3}


@pytest.mark.clause("TORCH-state-dict")
def test_the_state_dict_has_torchs_five_keys():
    """Order, values and types equal those of torch."""
    scaler, torch_scaler = used_scaler(), torch.amp.GradScaler("cpu")
    torch_scaler.scale(torch.ones(()))
    for saved_scaler in (scaler, torch_scaler):
        run_step(saved_scaler, 1.0)
    saved, published = scaler.state_dict(), torch_scaler.state_dict()
    assert list(saved.items()) == list(published.items())
    assert [type(value) for value in saved.values()] == [type(value) for value in published.values()]


@pytest.mark.clause("TORCH-load-state-dict")
@pytest.mark.parametrize("make", [GradScaler, used_scaler])
@pytest.mark.parametrize("scale", [1024.0, 1024, torch.tensor(1024.0), torch.tensor([1024.0]), np.float32(1024)], ids=repr)
def test_a_loaded_state_replaces_the_scalers_own(make, scale):
    """A state can be loaded before the first scaled tensor or after it; its scale may be a number or a tensor."""
    scaler = make()
    assert scaler.load_state_dict({**PUBLISHED, "scale": scale}) is None
    assert scaler.state_dict() == PUBLISHED
    assert scaler.scale(torch.ones(())) == 1024.0
    for _ in range(2):
        run_step(scaler, 1.0)
    assert scaler.state_dict() == {**PUBLISHED, "scale": 3072.0, "_growth_tracker": 0}


@pytest.mark.clause("TORCH-load-rejects")
@pytest.mark.parametrize("make", [GradScaler, used_scaler])
def test_an_invalid_state_dict_changes_nothing(make):
    """The error names missing and unknown keys, and the remedy if the mapping is that of a checkpoint or of another class."""
    scaler = make()
    old_state = scaler.state_dict()
    wrong = [("scale", value, ValueError) for value in INVALID_SCALES] + [
        ("scale", "1024", TypeError),
        ("scale", True, TypeError),
    ]
    wrong += [(name, 1.0, ValueError) for name in ("growth_factor", "backoff_factor")] + [("growth_interval", 0, ValueError)]
    wrong += [(name, "2", TypeError) for name in NUMBERS]
    wrong += [("_growth_tracker", -1, ValueError), ("_growth_tracker", 1.0, TypeError)]
    check_rejected(lambda name, value: scaler.load_state_dict({**PUBLISHED, name: value}), wrong)
    for missing in PUBLISHED:
        with pytest.raises(ValueError, match=re.escape(f"missing ['{missing}']")):
            scaler.load_state_dict({name: value for name, value in PUBLISHED.items() if name != missing})
    with pytest.raises(ValueError, match=r"unknown \['hysteresis'\]"):
        scaler.load_state_dict({**PUBLISHED, "hysteresis": 2})
    remedies = {
        "scaler": r"pass state_dict\['scaler'\]$",
        "scale": "`ampscale convert` converts",
        "loss_scale": "`ampscale convert`",
    }
    for key, remedy in remedies.items():
        with pytest.raises(ValueError, match=remedy):
            scaler.load_state_dict({key: 8.0})
    with pytest.raises(RuntimeError, match="a disabled GradScaler returned it"):
        scaler.load_state_dict({})
    for state in (None, [1024.0], np.zeros(2)):
        with pytest.raises(TypeError, match="mapping"):
            scaler.load_state_dict(state)
    assert scaler.state_dict() == old_state


@pytest.mark.clause("TORCH-enabled", "TORCH-getters", "TORCH-abandon")
def test_a_disabled_scaler_only_steps():
    """Gradients and arguments are unchanged, even infinities, and any order of calls is allowed."""
    scaler = GradScaler(init_scale=8.0, enabled=False)
    parameter = torch.zeros(1, requires_grad=True)
    for outputs in (torch.ones((), dtype=torch.float16), 1.0, None, "loss", [1, 2], torch.ones(2, dtype=torch.int32)):
        assert scaler.scale(outputs) is outputs
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    parameter.grad = torch.tensor([INF])
    assert scaler.update() is scaler.unscale_(optimizer) is scaler.unscale_(optimizer) is scaler.abandon("anything") is None
    assert scaler.step(optimizer) is scaler.step(optimizer) is True
    assert (parameter.item(), parameter.grad.item(), scaler.get_scale(), scaler.is_enabled()) == (-INF, INF, 1.0, False)
    calls = []
    scaler.step(optimizer, closure=lambda: calls.append("loss"))
    assert calls == ["loss"]


@pytest.mark.clause("TORCH-enabled", "TORCH-state-dict", "TORCH-load-state-dict")
def test_a_disabled_scaler_saves_and_loads_an_empty_state():
    """Loading any other state warns that the state is not used."""
    scaler = GradScaler(enabled=False)
    assert scaler.state_dict() == {}
    scaler.load_state_dict({})
    with pytest.warns(UserWarning, match="disabled"):
        scaler.load_state_dict(PUBLISHED)
    assert (scaler.is_enabled(), scaler.state_dict()) == (False, {})


COPIES = {"pickle": lambda scaler: pickle.loads(pickle.dumps(scaler)), "deepcopy": copy.deepcopy, "copy": copy.copy}


@pytest.mark.clause("TORCH-copies")
@pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES)
@pytest.mark.parametrize("make", [GradScaler, used_scaler])
def test_a_copy_is_independent(copied, make):
    """The copy continues from the same state after its first `scale`. The steps of one scaler do not change the other."""
    scaler = make()
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)])
    scaler.load_state_dict(PUBLISHED)
    twin = copied(scaler)
    with pytest.raises(RuntimeError, match=r"after scale\(\)"):
        twin.update()
    assert twin.state_dict() == PUBLISHED
    twin.load_state_dict(PUBLISHED)
    with pytest.raises(RuntimeError, match=r"after scale\(\)"):
        twin.update()
    assert twin.scale(torch.ones(())) == scaler.scale(torch.ones(())) == 1024.0
    scaler.unscale_(optimizer)
    with pytest.raises(RuntimeError, match=r"after step\(\)"):
        twin.update()
    scaler.abandon()
    run_step(twin, INF)
    assert (twin.get_scale(), scaler.state_dict()) == (256.0, PUBLISHED)


@pytest.mark.clause("TORCH-copies")
@pytest.mark.parametrize(("copied", "call"), [(copy.copy, "unscale_"), (copy.deepcopy, "step")])
def test_copying_within_a_step_raises(copied, call):
    """The RuntimeError names the missing call, `update`. After this call, the scaler can be copied."""
    scaler, parameter = used_scaler(), torch.zeros(1, requires_grad=True)
    parameter.grad = torch.ones(1)
    getattr(scaler, call)(torch.optim.SGD([parameter]))
    with pytest.raises(RuntimeError, match=r"update\(\)"):
        copied(scaler)
    scaler.update()
    assert copied(scaler).state_dict() == scaler.state_dict()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_can_read_a_scaler_that_another_thread_was_reading():
    """The thread that holds the locks of a scaler and its copy does not exist in the child process, so it cannot release them."""
    code = """
        import copy, os, threading, torch
        from ampscale.frameworks.torch import GradScaler
        scaler, locked, done = GradScaler("cpu"), threading.Event(), threading.Event()
        duplicate = copy.copy(scaler)
        def hold_lock():
            with scaler._lock, duplicate._lock:
                locked.set()
                done.wait()
        threading.Thread(target=hold_lock, daemon=True).start()
        locked.wait()
        child = os.fork()
        if not child:
            os._exit(0 if scaler.get_scale() == duplicate.get_scale() == 65536 else 1)
        assert os.waitpid(child, 0)[1] == 0
    """
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", textwrap.dedent(code)]
    subprocess.run(command, check=True, timeout=60)


def test_a_loss_on_another_device_is_scaled_there():
    """The scale stays on the device of the first loss."""
    scaler = GradScaler("cpu", init_scale=8.0)
    assert float(scaler.scale(torch.ones(()))) == 8
    assert scaler.scale(torch.ones((), device="meta")).device.type == "meta"
    assert float(scaler.scale(torch.ones(()))) == 8
