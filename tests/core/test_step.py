"""Training step on a network whose gradients equal its inputs."""

import pickle
from types import SimpleNamespace

import array_api_strict
import numpy as np
import pytest
from libraries import NAMES, on, with_dtypes
from linear import network
from strategies import DTYPES, alike, same

from ampscale import Network, StepStatus, init_train_state, train_step
from ampscale.core.rule import LossScaleRule
from ampscale.core.trees import leaves
from ampscale.optimizers import SGD, AdamW, Momentum

INF, NAN = np.inf, np.nan
GOOD, BAD = [1.0, 2.0, 3.0], [1.0, INF, 3.0]
RULE = LossScaleRule(init_scale=8.0, growth_interval=2)


def step_and_state(library, create=SGD, dtype="float32", rule=RULE, **options):
    """Return a function that runs a step with three gradient values or None, and a state: parameters of shapes (2,) and ()."""
    params = [library.array([1.0, -2.0], dtype), library.array(0.5, dtype)]
    model = network(params)
    optimizer = create(model, **{"learning_rate": [0.5, 0.25, 0.125], **options})

    def step(state, gradients, **arguments):
        if gradients is None:
            return train_step(model, optimizer, rule, state, [None, None], **arguments)
        inputs = [library.array(gradients[:2], dtype), library.array(gradients[2], dtype)]
        return train_step(model, optimizer, rule, state, inputs, **arguments)

    return step, init_train_state(params, optimizer, rule)


def narrowest(library):
    """Return float16, or float32 if the library has no 16-bit formats."""
    return "float16" if "float16" in library.dtypes else "float32"


@pytest.mark.clause("STEP-apply", "STEP-report", "STEP-status", "STEP-loss-unscaled")
def test_finite_step_is_applied(library):
    """SGD subtracts the unscaled gradients times the learning rate. Without `max_norm`, the report has no norm."""
    step, state = step_and_state(library)
    new_state, report = library.to_numpy(step(state, GOOD))
    assert alike(new_state.params[0], np.asarray([0.5, -3.0], np.float32))
    assert alike(new_state.params[1], np.asarray(-1.0, np.float32))
    assert alike(report.loss, np.asarray(-1.5, np.float32))
    assert (bool(report.finite), bool(report.applied)) == (True, True)
    assert [float(value) for value in (report.scale, report.next_scale, report.learning_rate)] == [8, 8, 0.5]
    assert report.global_norm is None
    assert alike(report.status, np.asarray(StepStatus.APPLIED, np.int32))


@pytest.mark.clause("STEP-skip", "STEP-status", "STEP-report", "STEP-counters", "STEP-loss-unscaled")
@pytest.mark.parametrize(
    ("library", "optimizer", "bad"),
    [("numpy", SGD, INF), ("numpy", Momentum, -INF), *((name, AdamW, NAN) for name in NAMES)],
    indirect=["library"],
)
def test_skipped_step_changes_only_the_scaler(library, optimizer, bad):
    """No bit changes but the scale and the count of attempted steps. The report has both scales and the non-finite loss."""
    step, state = step_and_state(library, optimizer, narrowest(library))
    state, _ = step(state, GOOD)
    old_state = library.to_numpy(state)
    new_state, report = library.to_numpy(step(state, [1.0, bad, 3.0]))
    assert same(new_state._replace(scaler=None, attempted=None), old_state._replace(scaler=None, attempted=None))
    assert same(library.to_numpy(state), old_state)
    assert float(new_state.scaler.scale) == 4
    assert (int(new_state.attempted), int(new_state.applied)) == (2, 1)
    assert (bool(report.finite), bool(report.applied), int(report.status)) == (False, False, StepStatus.OVERFLOW)
    assert (float(report.scale), float(report.next_scale)) == (8, 4)
    assert not np.isfinite(report.loss)


@pytest.mark.clause("STEP-no-gradients", "STEP-status", "OVERFLOW-empty")
def test_step_without_gradients_changes_nothing(library):
    """The step is finite but not applied; it counts as attempted."""
    step, state = step_and_state(library)
    old_state = library.to_numpy(state)
    new_state, report = library.to_numpy(step(state, None, max_norm=1.0))
    assert same(new_state._replace(attempted=None), old_state._replace(attempted=None))
    assert (int(new_state.attempted), int(new_state.applied)) == (1, 0)
    assert (bool(report.finite), bool(report.applied), int(report.status)) == (True, False, StepStatus.NO_GRADIENTS)
    assert float(report.scale) == float(report.next_scale) == 8


@pytest.mark.clause("STEP-status", "MACHINE-would-raise")
@pytest.mark.parametrize(
    "constants", [{"min_scale": 4.0, "raise_at_min_scale": True}, {"raise_at_or_below": 2.0}], ids=["min-scale", "at-or-below"]
)
def test_step_reports_that_the_published_scaler_would_raise(library, constants):
    """The first overflow halves the scale to 4. At the next ones, the published scaler would raise, so the scale stays at 4."""
    step, state = step_and_state(library, rule=LossScaleRule(init_scale=8.0, growth_interval=2, **constants))
    reported = []
    for gradients in (BAD, BAD, BAD, GOOD):
        state, report = step(state, gradients)
        report = library.to_numpy(report)
        reported.append((int(report.status), float(report.next_scale)))
    statuses = [StepStatus.OVERFLOW, StepStatus.WOULD_RAISE, StepStatus.WOULD_RAISE, StepStatus.APPLIED]
    assert reported == [(status, 4) for status in statuses]


@pytest.mark.clause("MACHINE-next-step", "STEP-scale-updated-last", "STEP-counters", "STEP-learning-rate")
def test_a_run_of_steps_is_reported_step_by_step(library):
    """Each step uses the scale of the state before it, and the learning rate for the number of steps applied before it."""
    step, state = step_and_state(library)
    reports = []
    for gradients in (GOOD, BAD, GOOD, GOOD, GOOD):
        state, report = step(state, gradients)
        reports.append(library.to_numpy(report))
    assert [float(report.scale) for report in reports] == [8, 8, 4, 4, 8]
    assert [float(report.next_scale) for report in reports] == [8, 4, 4, 8, 8]
    assert [float(report.learning_rate) for report in reports] == [0.5, 0.25, 0.25, 0.125, 0.125]
    state = library.to_numpy(state)
    assert (int(state.attempted), int(state.applied), int(state.optimizer.count)) == (5, 4, 4)
    assert (state.attempted.dtype, state.applied.dtype) == (np.int32, np.int32)


@pytest.mark.clause("STEP-order", "STEP-clip", "NORMS-clip-magnitudes")
def test_clipping_uses_unscaled_gradients(library):
    """The gradients can have any magnitude. A limit beyond float32 has no effect, and clipping does not hide an infinity."""
    step, state = step_and_state(library, learning_rate=1.0)
    new_state, report = library.to_numpy(step(state, [0.0, 3.0, 4.0], max_norm=1.0))
    assert alike(report.global_norm, np.asarray(5, np.float32))
    assert new_state.params[0].tolist() == [1, pytest.approx(-2.6)]
    assert float(new_state.params[1]) == pytest.approx(-0.3)
    new_state, report = library.to_numpy(step(state, [1e30, 1e30, 1.0], max_norm=1.0))
    assert report.applied
    assert report.global_norm == pytest.approx(2**0.5 * 1e30)
    assert new_state.params[0].tolist() == pytest.approx([1 - 0.5**0.5, -2 - 0.5**0.5], rel=1e-6)
    assert same(library.to_numpy(step(state, GOOD, max_norm=1e300)[0].params), library.to_numpy(step(state, GOOD)[0].params))
    assert not library.to_numpy(step(state, BAD, max_norm=1.0)[1].applied)


@pytest.mark.clause("STEP-seed", "STEP-loss-unscaled")
@with_dtypes(*DTYPES)
def test_scale_is_the_output_cotangent(library, dtype):
    """It has the shape and dtype of the loss, except that it is float32 for a 16-bit loss. The report has the loss itself."""
    seeds = []

    def vjp(params, loss):
        def pullback(seed):
            seeds.append(seed)
            return params

        return loss, pullback

    for loss in (library.array(3, dtype), library.array([3], dtype)):
        model = Network(pytest.fail, [library.array([1.0])], vjp=vjp)
        optimizer = SGD(model)
        rule = LossScaleRule(init_scale=2.0**17)
        _, report = train_step(model, optimizer, rule, init_train_state(model.params, optimizer, rule), loss)
        seed_dtype = "float64" if dtype == "float64" else "float32"
        assert alike(library.to_numpy(seeds[-1]), np.full(loss.shape, 2.0**17, seed_dtype))
        assert report.loss is loss


@pytest.mark.clause("STEP-seed")
def test_scale_beyond_the_dtype_of_the_loss_is_an_overflow(library):
    """A float64 scale that is infinite in float32 causes an overflow without a warning."""
    rule = LossScaleRule(init_scale=2.0**200, dtype="float64")
    step, state = step_and_state(library, rule=rule)
    assert library.to_numpy(step(state, GOOD)[1].status) == StepStatus.OVERFLOW


@pytest.mark.clause("STEP-order")
@on("numpy", "strict16", "torch", "jax")
def test_scaling_preserves_small_float16_gradients(library):
    """A gradient below the smallest float16 updates its parameter, since it is scaled first and unscaled in float32."""
    model = network([library.array([0.0], "float16")])
    optimizer = SGD(model, learning_rate=2.0**20)
    rule = LossScaleRule(init_scale=2.0**17)
    state = init_train_state(model.params, optimizer, rule)
    new_state, _ = train_step(model, optimizer, rule, state, [library.array([2.0**-30])])
    assert alike(library.to_numpy(new_state.params[0]), np.asarray([-(2.0**-10)], np.float16))


@pytest.mark.clause("STEP-optimizer")
def test_any_pair_of_pure_functions_can_be_an_optimizer(library):
    """A learning rate is not required; if some gradients are missing, the others are applied."""

    class Plain:
        def init(self, params):
            return ()

        def update(self, gradients, state, params):
            return [None if gradient is None else -gradient for gradient in gradients], state

    model = network([library.array([1.0]), library.array([1.0, 1.0])])
    state = init_train_state(model.params, Plain(), RULE)
    new_state, report = train_step(model, Plain(), RULE, state, [library.array([3.0]), None])
    assert [leaf.tolist() for leaf in library.to_numpy(new_state.params)] == [[-2], [1, 1]]
    assert library.to_numpy(report.applied)
    assert report.learning_rate is None


@pytest.mark.clause("STEP-resume", "STEP-report")
def test_resumed_run_equals_an_uninterrupted_run(library):
    """The state is saved and loaded before every step. Later steps change no earlier state or report."""
    step, state = step_and_state(library, AdamW, narrowest(library))
    resumed, results, copies = state, [], []
    for gradients in (GOOD, BAD, [0.1, -3.0, 1e-3], GOOD):
        state, report = step(state, gradients, max_norm=1.0)
        resumed = library.from_numpy(pickle.loads(pickle.dumps(library.to_numpy(resumed))))
        resumed, _ = step_and_state(library, AdamW, narrowest(library))[0](resumed, gradients, max_norm=1.0)
        assert same(library.to_numpy(resumed), library.to_numpy(state))
        results.append((state, report))
        copies.append(library.to_numpy((state, report)))
    assert all(same(library.to_numpy(result), copy) for result, copy in zip(results, copies, strict=True))


@pytest.mark.clause("STEP-two-modes")
@pytest.mark.parametrize("create", [SGD, Momentum, AdamW])
def test_state_and_report_are_on_the_device_of_the_parameters(create):
    xp, device = array_api_strict, array_api_strict.Device("device1")
    params = [xp.asarray([1.0], dtype=xp.float32, device=device)]
    model = network(params)
    optimizer = create(model, learning_rate=[0.5, 0.25])
    state = init_train_state(params, optimizer, RULE)
    new_state, report = train_step(model, optimizer, RULE, state, [xp.ones(1, dtype=xp.float32, device=device)], max_norm=1.0)
    assert {leaf.device for leaf in (*leaves(new_state), *leaves(report))} == {device}


def test_state_of_a_float64_scalar_consists_of_arrays():
    """A NumPy scalar of float64 is also a Python float."""
    state = init_train_state([np.float64(1.0)], SGD(network([np.float64(1.0)])), RULE)
    assert (state.scaler.scale.dtype, state.attempted.dtype) == ("float32", "int32")


@pytest.mark.clause("STEP-status")
def test_status_codes_are_fixed():
    """Users write the codes to logs."""
    codes = {"APPLIED": 0, "OVERFLOW": 1, "NO_GRADIENTS": 2, "WOULD_RAISE": 3, "ACCUMULATED": 4}
    assert {status.name: int(status) for status in StepStatus} == codes


@pytest.mark.clause("STEP-optimizer")
def test_optimizer_without_master_weights_is_initialized_with_float32():
    """16-bit parameters are widened like the gradients; others keep their dtype."""
    received = []
    optimizer = SimpleNamespace(init=lambda params: received.append(params), update=pytest.fail)
    init_train_state([np.ones(1, np.float16), np.ones(1, np.float64)], optimizer, LossScaleRule())
    assert [leaf.dtype for leaf in received[0]] == [np.float32, np.float64]
