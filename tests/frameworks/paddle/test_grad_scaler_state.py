"""What can be set in a `GradScaler` while it runs, and its state dict, which is laid out as Paddle's."""

import numpy as np
import pytest
from frameworks.networks import array, bits
from frameworks.steps import Plain, scaler_at, stands, take

from ampscale import GradScaler

PUBLISHED = {
    "scale": array([1024]),
    "incr_ratio": 3.0,
    "decr_ratio": 0.25,
    "incr_every_n_steps": 5,
    "decr_every_n_nan_or_inf": 4,
    "incr_count": 2,
    "decr_count": 3,
    "use_dynamic_loss_scaling": True,
}


@pytest.mark.clause("PADDLE-getters")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("init_loss_scaling", 64.0),
        ("incr_ratio", 4.0),
        ("decr_ratio", 0.125),
        ("incr_every_n_steps", 7),
        ("decr_every_n_nan_or_inf", 3),
    ],
)
def test_what_was_set_is_got(name, value):
    """And saved, under the same name; the setter returns nothing."""
    scaler = GradScaler()
    assert getattr(scaler, f"set_{name}")(value) is None
    assert getattr(scaler, f"get_{name}")() == value
    assert scaler.state_dict().get(name, value) == value


@pytest.mark.clause("PADDLE-set-init-loss-scaling", "PADDLE-getters")
def test_setting_the_first_scale_replaces_the_present_one():
    """The counts stay, and the next loss is scaled by it."""
    scaler = GradScaler(init_loss_scaling=8, incr_every_n_steps=3, decr_every_n_nan_or_inf=3)
    for letter in "OFF":
        take(scaler, letter)
    scaler.set_init_loss_scaling(64.0)
    assert stands(scaler) == (64, 2, 1)
    assert scaler.scale(array(1)) == 64
    take(scaler, "F")
    assert (stands(scaler), scaler.get_init_loss_scaling()) == ((128, 0, 0), 64)


@pytest.mark.clause("PADDLE-getters", "PADDLE-incr-ratio", "PADDLE-decr-ratio", "PADDLE-incr-every", "PADDLE-decr-every")
def test_what_is_set_is_in_force_at_the_next_step():
    """The ratios, and the intervals too where the count is past them already."""
    scaler = GradScaler(init_loss_scaling=8)
    for letter in "OFFF":
        take(scaler, letter)
    scaler.set_incr_ratio(4.0)
    scaler.set_incr_every_n_steps(2)
    take(scaler, "F")
    assert stands(scaler) == (32, 0, 0)
    scaler.set_decr_ratio(0.125)
    scaler.set_decr_every_n_nan_or_inf(1)
    take(scaler, "O")
    assert stands(scaler) == (4, 0, 0)


@pytest.mark.clause("PADDLE-state-dict")
def test_the_state_has_paddles_eight_keys():
    """The scale as a float32 array of shape (1,), the rest as Python values."""
    scaler = GradScaler(True, 2048, 3.0, 0.25, 5, 4)
    for letter in "OOFF":
        take(scaler, letter)
    state = scaler.state_dict()
    assert bits([state.pop("scale")]) == bits([array([2048])])
    assert state == {**{key: value for key, value in PUBLISHED.items() if key != "scale"}, "incr_count": 2, "decr_count": 2}
    assert [type(value) for value in state.values()] == [float, float, int, int, int, int, bool]


@pytest.mark.clause("PADDLE-load-state-dict", "PADDLE-never-off")
@pytest.mark.parametrize(
    "scale", [array([1024]), [1024.0], (1024.0,), 1024.0, array(1024), np.float32(1024), array([1024], "float64")]
)
def test_a_state_of_paddle_loads(scale):
    """Whatever holds the one number; all eight values are taken over, and the first scale is the loaded one."""
    scaler = GradScaler()
    assert scaler.load_state_dict({**PUBLISHED, "scale": scale}) is None
    assert bits([scaler.state_dict()["scale"]]) == bits([array([1024])])
    assert {**scaler.state_dict(), "scale": 0} == {**PUBLISHED, "scale": 0}
    assert (scaler.get_init_loss_scaling(), scaler.get_incr_ratio(), scaler.get_decr_ratio()) == (1024, 3, 0.25)
    take(scaler, "O")
    assert stands(scaler) == (256, 0, 0)


@pytest.mark.clause("PADDLE-load-state-dict", "PADDLE-dynamic")
@pytest.mark.parametrize("dynamic", [True, False])
def test_a_load_decides_whether_the_scale_moves(dynamic):
    """As the saved scaler was, whatever this one was."""
    scaler = GradScaler(use_dynamic_loss_scaling=not dynamic)
    scaler.load_state_dict({**PUBLISHED, "use_dynamic_loss_scaling": dynamic})
    assert scaler.is_use_dynamic_loss_scaling() is dynamic
    take(scaler, "O")
    assert stands(scaler) == ((256, 0, 0) if dynamic else (1024, 2, 3))


@pytest.mark.clause("PADDLE-state-dict", "PADDLE-load-state-dict", "PADDLE-enable")
def test_a_scaler_that_is_off_saves_and_takes_nothing():
    """It takes the empty dict in silence, and warns that another is not used."""
    scaler = GradScaler(enable=False)
    assert scaler.state_dict() == {}
    scaler.load_state_dict({})
    with pytest.warns(UserWarning, match="off"):
        scaler.load_state_dict(PUBLISHED)
    assert (scaler.is_enable(), scaler.state_dict()) == (False, {})


@pytest.mark.clause("PADDLE-load-refuses")
def test_a_scaler_that_is_on_takes_no_empty_state():
    """The ValueError names the missing keys."""
    with pytest.raises(ValueError, match=r"missing.*scale.*incr_count"):
        GradScaler().load_state_dict({})


@pytest.mark.clause("PADDLE-load-state-dict", "PADDLE-fixed-step")
def test_a_load_in_the_midst_of_a_step_closes_it():
    """What was unscaled or has stepped before it belongs to another run."""
    scaler, optimizer = scaler_at(8), Plain(array([8]))
    scaler.step(optimizer)
    scaler.load_state_dict({**PUBLISHED, "use_dynamic_loss_scaling": False})
    scaler.update()
    assert scaler.step(optimizer) is True
