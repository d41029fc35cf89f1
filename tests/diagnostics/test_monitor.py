"""Monitor: when it measures, what it passes to its sinks, and how it reports a stall."""

import json
import logging
import math

import numpy as np
import pytest
from linear import network as linear_network

import ampscale
from ampscale.diagnostics import (
    JSONLines,
    Limits,
    Logging,
    Monitor,
    StalledError,
    TensorBoard,
    Verdict,
    WeightsAndBiases,
    read_run,
)
from ampscale.diagnostics.records import from_json

F32 = np.float32
FORWARD = "the loss was inf before scaling: look for the cause in the inputs or in the forward pass"
FINITE, INFINITE = [F32([1.0, 2.0]), F32([0.5])], [F32([1.0, np.inf]), F32([0.5])]


class Collecting:
    """Sink that stores what it receives."""

    def __init__(self):
        self.rows = []

    def write(self, record, diagnosis, names):
        self.rows.append((record, diagnosis, names))

    def close(self):
        """Do nothing."""


def reports(steps, rule=None, **options):
    """Yield the reports of training steps with these gradients."""
    network = linear_network([np.ones(2, F32), np.ones(1, F32)])
    optimizer = ampscale.optimizers.SGD(network, 2.0**-20)
    rule = rule or ampscale.LossScaleRule(init_scale=4.0)
    state = ampscale.init_train_state(network.params, optimizer, rule)
    for gradients in steps:
        state, report = ampscale.train_step(network, optimizer, rule, state, gradients, **options)
        yield report


def run(steps, monitor, **options):
    """Return the diagnoses of steps with these gradients."""
    return [monitor.record(report) for report in reports(steps, **options)]


def observe(monitor, gradients, optimizer, *, zero_grad=lambda: None, at_end=None, changed=None):
    """Pass a step to the monitor, like a scaler, and return the diagnosis. *at_end* are gradients that the loop has changed."""
    finite = all(np.isfinite(gradient).all() for gradient in gradients)
    monitor.begin([gradient * F32(4.0) for gradient in gradients], 4.0, optimizer)
    zero_grad()
    return monitor.end(4.0, 2.0, finite, finite, gradients if at_end is None else at_end, optimizer, changed=changed)


def test_record_copies_the_report():
    """The record has statistics and a norm if the step computed them."""
    sink = Collecting()
    run([FINITE], Monitor(["w", "b"], sinks=[sink]), measure=True, max_norm=9.0)
    ((record, diagnosis, names),) = sink.rows
    assert (record.step, record.scale, record.next_scale, record.finite, record.applied) == (0, 4.0, 4.0, True, True)
    assert (record.loss, record.norm, record.measured_scale) == (3.5, float(F32(math.sqrt(5.25))), 4.0)
    assert [(tensor.size, tensor.largest) for tensor in record.tensors] == [(2, 3), (1, 1)]
    assert (diagnosis.verdict, names) == (Verdict.HEALTHY, ["w", "b"])


def test_micro_batches_are_not_steps():
    """Without gradients, a step is recorded as neither applied nor skipped."""
    sink = Collecting()
    monitor = Monitor(sinks=[sink])
    (report,) = reports([FINITE])
    assert monitor.record(report._replace(status=np.int32(ampscale.StepStatus.ACCUMULATED))).step == 0
    assert sink.rows == []
    run([[None, None]], monitor)
    assert [(record.finite, record.applied) for record, *_ in sink.rows] == [(True, False)]


def test_nothing_is_measured_until_a_step_is_skipped():
    """The unscaled gradients of the skipped step and the scaled gradients of the next one are measured."""
    sink, optimizer = Collecting(), object()
    monitor = Monitor(sinks=[sink])
    for gradients in (FINITE, INFINITE, FINITE, FINITE):
        observe(monitor, gradients, optimizer)
    assert [record.measured_scale for record, *_ in sink.rows] == [None, 1.0, 4.0, None]
    assert [record.tensors is None for record, *_ in sink.rows] == [True, False, False, True]


def test_measurements_are_made_every_n_steps():
    """A step with histograms is measured, too. Histograms contain the exponents of the scaled gradients."""
    sink = Collecting()
    monitor = Monitor(sinks=[sink], measure_every=2, histogram_every=3, diagnose_on_skip=False)
    optimizer = object()
    for gradients in (FINITE, FINITE, FINITE, FINITE, INFINITE):
        observe(monitor, gradients, optimizer)
    records = [record for record, *_ in sink.rows]
    assert [record.tensors is not None for record in records] == [True, False, True, True, True]
    assert [record.histograms for record in records] == [((2, (1, 1)), (1, (1,))), None, None, ((2, (1, 1)), (1, (1,))), None]
    assert records[0].norm == pytest.approx(math.sqrt(5.25))


def test_loss_of_a_step_is_the_mean_over_its_micro_batches():
    """An infinite loss of the first micro-batch is diagnosed, even if that of the last one is finite."""
    (report,) = reports([FINITE])
    micro_batch = report._replace(status=np.int32(ampscale.StepStatus.ACCUMULATED))
    sink = Collecting()
    monitor = Monitor(sinks=[sink])
    for loss in (1.0, math.inf, 2.0):
        monitor.record(micro_batch._replace(loss=F32(loss)))
        monitor.record(report._replace(loss=F32(3.0)))
    assert [record.loss for record, *_ in sink.rows] == [2.0, math.inf, 2.5]
    assert monitor.verdicts[Verdict.FORWARD] == 1


def test_a_sink_that_raises_does_not_disturb_the_others():
    """All other sinks receive each step, and are closed."""

    class Full(Collecting):
        def write(self, record, diagnosis, names):
            raise OSError("disk full")

        def close(self):
            raise OSError("disk full")

    class Closing(Collecting):
        def close(self):
            self.rows.append("closed")

    sinks = [Closing(), Full(), Closing()]
    monitor = Monitor(sinks=sinks)
    (report,) = reports([FINITE])
    with pytest.raises(OSError, match="disk full"):
        monitor.record(report)
    with pytest.raises(OSError, match="disk full"):
        monitor.close()
    assert [len(sink.rows) for sink in sinks] == [2, 0, 2]


@pytest.mark.parametrize(
    ("changed", "verdict"), [(False, Verdict.NO_SCALE_HELPS), (True, Verdict.OCCASIONAL), (None, Verdict.OCCASIONAL)]
)
def test_nans_are_no_proof_if_the_loop_may_have_clipped_the_gradients(changed, verdict):
    """Clipping turns infinities into NaNs."""
    monitor = Monitor()
    optimizer = object()
    observe(monitor, FINITE, optimizer)
    assert observe(monitor, [F32([np.nan, 2.0]), F32([0.5])], optimizer, changed=changed).verdict is verdict


@pytest.mark.parametrize("value", [np.nan, 0.0], ids=["clipped by a norm of NaN", "set to zero before update"])
def test_gradients_that_the_loop_has_overwritten_are_not_named(value):
    """All of them have the same value, so that they do not show which gradient was not finite."""
    sink, optimizer = Collecting(), object()
    monitor = Monitor(["w", "b"], sinks=[sink])
    observe(monitor, FINITE, optimizer)
    overwritten = [np.full_like(gradient, value) for gradient in INFINITE]
    diagnosis = observe(monitor, INFINITE, optimizer, at_end=overwritten, changed=True)
    assert diagnosis.message == "a single overflow at scale 4, after 1 applied step"
    assert sink.rows[-1][0].tensors is None


def test_no_mean_overflows_if_the_communicator_does_not_average():
    """The loop has set the gradients of all ranks to zero before the scaler updates its scale, so they are finite."""

    class Ranks:
        rank, averages = 0, False

        def exchange(self, text):
            return [text, text]

    zeros = [np.zeros_like(gradient) for gradient in INFINITE]
    diagnosis = observe(Monitor(communicator=Ranks()), INFINITE, object(), at_end=zeros, changed=True)
    assert diagnosis.verdict is Verdict.SEARCHING


def test_single_overflows_name_the_rank_from_the_second_one_on():
    """The communicator averages the gradients, so the monitor then measures 100 steps before the mean."""

    class Ranks:
        rank, averages = 0, True

        def exchange(self, text):
            return [text, "[[], 1.0]"]

    optimizer, monitor = object(), Monitor(communicator=Ranks())
    steps = [FINITE, INFINITE, *[FINITE] * 98, INFINITE]
    messages = [observe(monitor, gradients, optimizer, changed=False).message for gradients in steps]
    assert messages[1] == "a single overflow at scale 4 in gradient 0, after 1 applied step"
    assert messages[-1] == "a single overflow at scale 4 in gradient 0 on rank 0, after 99 applied steps"


def test_optimizers_are_diagnosed_separately():
    """Each optimizer has its own step numbers and its own history."""
    monitor, first, second = Monitor(), object(), object()
    assert [observe(monitor, FINITE, first).step, observe(monitor, FINITE, second).step] == [0, 0]
    assert observe(monitor, INFINITE, first).verdict is Verdict.OCCASIONAL
    assert monitor.verdicts == {Verdict.HEALTHY: 2, Verdict.OCCASIONAL: 1}


def test_a_scale_at_which_another_optimizer_overflows_is_not_too_small():
    """Both optimizers share the scale, so that a larger one would not help the first."""
    monitor = Monitor(measure_every=1)
    first = object()
    second = object()
    small = [F32([2.0**-22])]
    assert observe(monitor, small, first).verdict is Verdict.UNDERFLOW
    observe(monitor, INFINITE, second)
    assert observe(monitor, small, first).verdict is Verdict.HEALTHY


def test_gradients_are_named_by_their_parameters():
    """A parameter without a gradient is left out. The names are those at `begin`, even if `zero_grad` is called before `end`."""
    network = ampscale.Network(lambda params: params[0], [F32([1.0]), F32([1.0, 1.0]), F32([1.0])])
    optimizer, sink = ampscale.optimizers.SGD(network, 0.5), Collecting()

    def set_gradients(gradients):
        for parameter, gradient in zip(network.parameters, gradients, strict=True):
            parameter.grad = gradient

    set_gradients([None, *INFINITE])
    monitor = Monitor(zip("abc", network.parameters, strict=True), sinks=[sink])
    observe(monitor, FINITE, optimizer)
    diagnosis = observe(monitor, INFINITE, optimizer, zero_grad=lambda: set_gradients([None] * 3))
    assert diagnosis.message.startswith("a single overflow at scale 4 in b,")
    assert [names for _, _, names in sink.rows] == [["b", "c"]] * 2


def test_recorded_steps_have_the_names_of_all_parameters():
    """A step that is not measured has them, too."""
    sink = Collecting()
    monitor = Monitor([("w", object()), ("b", object())], sinks=[sink])
    (report,) = reports([INFINITE], measure=True)
    for statistics in (None, report.statistics):
        monitor.record(report._replace(statistics=statistics))
    assert [names for _, _, names in sink.rows] == [["w", "b"]] * 2


@pytest.mark.parametrize("finite", [True, False])
def test_an_optimizer_is_not_at_fault_for_the_loss_of_another(finite):
    """Two networks are trained in turn. A gradient that is not finite can come from either loss, if these share parameters."""
    monitor, first, second = Monitor(), object(), object()
    for loss, optimizer in ((math.nan, first), (1.0, second)):
        monitor.observe_loss(loss)
        monitor.begin(FINITE, 4.0, optimizer)
    monitor.end(4.0, 2.0, finite=False, applied=False, gradients=INFINITE, owner=first)
    gradients = FINITE if finite else INFINITE
    verdict = monitor.end(4.0, 2.0, finite=finite, applied=finite, gradients=gradients, owner=second).verdict
    assert verdict is (Verdict.HEALTHY if finite else Verdict.FORWARD)
    assert monitor.verdicts[Verdict.FORWARD] == (1 if finite else 2)


def test_losses_of_a_step_that_does_not_end_are_discarded():
    """A loop abandons the second and third step of an optimizer. Another optimizer shares all steps but the third."""
    sink, first, second = Collecting(), object(), object()
    monitor = Monitor(sinks=[sink])
    for loss, other_loss, is_abandoned in [(1.0, 2.0, False), (math.nan, 3.0, True), (math.nan, None, True), (4.0, 5.0, False)]:
        monitor.observe_loss(loss)
        monitor.begin(FINITE, 4.0, first)
        if other_loss is not None:
            monitor.observe_loss(other_loss)
            monitor.begin(FINITE, 4.0, second)
        for optimizer in (first, second) if not is_abandoned else ():
            monitor.end(4.0, 4.0, finite=True, applied=True, gradients=FINITE, owner=optimizer)
    assert [record.loss for record, *_ in sink.rows] == [1.0, 2.0, 4.0, 5.0]


@pytest.mark.parametrize(
    ("limits", "steps", "reason"),
    [
        (Limits(stall_after=2), [INFINITE] * 4, "2 steps were skipped in a row"),
        (
            Limits(stall_window=4, stall_share=0.5),
            [INFINITE, INFINITE, FINITE, INFINITE, INFINITE, INFINITE],
            "75% of the last 4 steps were",
        ),
        (
            Limits(stall_window=6),
            [INFINITE, INFINITE, FINITE, INFINITE, INFINITE, FINITE, INFINITE],
            "67% of the last 6 steps were",
        ),
        (Limits(min_scale=1.0), [INFINITE] * 3, "a step was skipped at the lowest scale, 1"),
    ],
    ids=["in a row", "share", "share of two in a row", "lowest scale"],
)
def test_a_stall_is_reported_once(limits, steps, reason):
    """The monitor warns, raises an error or calls `on_stall`, after the sinks have received the step."""
    rule = ampscale.LossScaleRule(init_scale=4.0, min_scale=1.0)
    with pytest.warns(RuntimeWarning, match=reason) as caught:
        run(steps, Monitor(limits=limits), rule=rule)
    assert [warning.filename for warning in caught] == [__file__]
    calls, sink = [], Collecting()
    run(steps, Monitor(limits=limits, on_stall=calls.append), rule=rule)
    assert [reason in diagnosis.stall for diagnosis in calls] == [True]
    with pytest.raises(StalledError, match=reason):
        run(steps, Monitor(limits=limits, on_stall="raise", sinks=[sink]), rule=rule)
    assert sink.rows[-1][1].stall == calls[0].stall


def test_a_stall_is_reported_again_after_an_applied_step():
    """Each of the two reports is a warning."""
    with pytest.warns(RuntimeWarning) as caught:
        run([INFINITE, INFINITE, FINITE, INFINITE, INFINITE], Monitor(limits=Limits(stall_after=2)))
    assert len(caught) == 2


def test_a_stall_by_share_lasts_until_fewer_steps_are_skipped():
    """Two of three steps are skipped, then none of four, and then again two of three."""
    calls = []
    steps = [*[INFINITE, INFINITE, FINITE] * 4, *[FINITE] * 4, *[INFINITE, INFINITE, FINITE] * 3]
    run(steps, Monitor(limits=Limits(stall_window=6), on_stall=calls.append))
    assert [diagnosis.step for diagnosis in calls] == [6, 20]


def test_run_file_contains_every_step(tmp_path):
    """Each line is written immediately, so that other processes can read it. A healthy verdict is omitted."""
    path, rule = tmp_path / "run.jsonl", ampscale.LossScaleRule(init_scale=4.0)
    with Monitor(["w", "b"], sinks=[JSONLines(path, rule)]) as monitor:
        for count, report in enumerate(reports([FINITE, INFINITE], rule, measure=True), start=1):
            monitor.record(report)
            assert len(path.read_text().splitlines()) == 1 + count
    header, first, second = map(json.loads, path.read_text().splitlines())
    assert (header["names"], header["rule"]["init_scale"]) == (["w", "b"], 4.0)
    assert "diagnosis" not in first
    assert second.pop("diagnosis")["verdict"] == "forward pass not finite"
    assert from_json(second).tensors[0].infinities == 1
    assert read_run(path).scales.tolist() == [4.0, 4.0]


def test_log_messages_have_the_numbers_as_fields(caplog):
    """A verdict that is normal in a healthy run has the level INFO, and any other WARNING."""
    with caplog.at_level(logging.INFO, "ampscale"):
        run([FINITE, INFINITE, [F32([1.0, np.nan]), F32([0.5])]], Monitor(sinks=[Logging()]))
    assert [(record.levelname, record.ampscale["verdict"], record.ampscale["step"]) for record in caplog.records] == [
        ("WARNING", "forward pass not finite", 1),
        ("WARNING", "forward pass not finite", 2),
    ]
    caplog.clear()
    with caplog.at_level(logging.INFO, "ampscale"):
        monitor, optimizer = Monitor(sinks=[Logging()]), object()
        monitor.begin(INFINITE, 2.0**24, optimizer)
        monitor.end(2.0**24, 2.0**23, finite=False, applied=False, gradients=INFINITE, owner=optimizer)
    (record,) = caplog.records
    assert (record.levelname, record.ampscale["next_scale"]) == ("INFO", 2.0**23)
    assert record.getMessage() == "step 0: searching: the scale 16777216 is too large in gradient 0; the next one is 8388608"


def test_trackers_receive_the_numbers_of_a_step():
    """TensorBoard receives the numbers through its writer, and Weights & Biases through its run."""

    class Writer:
        def __init__(self):
            self.rows = []

        def add_scalar(self, name, value, step):
            self.rows.append((name, value, step))

        add_text = add_scalar

        def log(self, metrics):
            self.rows.append(metrics)

        def flush(self):
            self.rows.append("flushed")

    board, tracker = Writer(), Writer()
    with Monitor(["w", "b"], sinks=[TensorBoard(board), WeightsAndBiases(tracker)]) as monitor:
        run([INFINITE], monitor, measure=True)
    assert board.rows == [
        ("ampscale/scale", 4.0, 0), ("ampscale/skipped", 1.0, 0), ("ampscale/loss", math.inf, 0),
        ("ampscale/lost/w", 0.0, 0), ("ampscale/subnormal/w", 0.0, 0),
        ("ampscale/lost/b", 0.0, 0), ("ampscale/subnormal/b", 0.0, 0),
        ("ampscale/diagnosis", f"forward pass not finite: {FORWARD}", 0),
        "flushed",
    ]  # fmt: skip
    assert tracker.rows == [
        {"ampscale/step": 0, **{name: value for name, value, _ in board.rows[:7]}, "ampscale/verdict": "forward pass not finite"}
    ]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"names": "w"}, TypeError, r"names must be strings, or model.named_parameters\(\), got 'w'"),
        ({"names": [1]}, TypeError, r"names must be strings, or model.named_parameters\(\), got \[1\]"),
        ({"measure_every": 0}, ValueError, "measure_every must be .* got 0"),
        ({"histogram_every": 1.5}, TypeError, "histogram_every must be .* got 1.5"),
        ({"on_stall": "stop"}, ValueError, r"on_stall must be one of \['warn', 'raise'\] or a function, got 'stop'"),
        ({"diagnose_on_skip": 1}, TypeError, "diagnose_on_skip must be a bool, got 1"),
        ({"sinks": "log"}, TypeError, "sinks must be a list or tuple, got 'log' of type str"),
        ({"sinks": [Logging]}, TypeError, "sink must be"),
    ],
)
def test_invalid_arguments_raise(arguments, error, message):
    """The message states what was expected."""
    with pytest.raises(error, match=message):
        Monitor(**arguments)


def test_an_invalid_report_or_backward_pass_raises():
    """A report has the values of one step, and a backward pass returns gradients."""
    with pytest.raises(TypeError, match="report must be a StepReport, got None"):
        Monitor().record(None)
    (report,) = reports([FINITE])
    with pytest.raises(ValueError, match=r"report must be of one step of one rank, got arrays of shape \(3,\): record each"):
        Monitor().record(report._replace(status=np.ones(3, np.int32)))
    with pytest.raises(ValueError, match="backward must return gradients, got none"):
        Monitor().record(next(reports([INFINITE])), lambda _: [])
