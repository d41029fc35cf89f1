"""Tests of the package against all test vectors of spec/, bit for bit."""

import importlib
from collections import defaultdict
from functools import partial

import numpy as np
import pytest
from linear import network as linear
from ranks import on_ranks
from spec.loops import Loop
from strategies import alike, same
from vectors import argument, arguments, array, cases, rule_arguments

import ampscale
from ampscale.core import norms
from ampscale.core.statistics import LOWEST
from ampscale.core.trees import leaves, structure
from ampscale.frameworks import mindspore


def trees_are_same(actual, expected):
    """Return True if two trees have the same structure and the same bits."""
    return structure(actual) == structure(expected) and same(actual, expected)


# One function for each kind of test vector, which returns True if the results are as expected.


def trace(case):
    """Return True if the scales and the first step that raises an error are correct, and a named preset equals the rule."""
    flags = [sign == "+" for sign in case["finite"]]
    scales, raising_steps = run(case, flags)
    if "preset" in case:
        preset = ampscale.presets.PRESETS[case["preset"]["name"]].rule(**arguments(case["preset"]["settings"]))
        if preset != ampscale.LossScaleRule(**rule_arguments(case["rule"])):
            return False
    return scales == [float.fromhex(scale) for scale in case["scale"]] and next(iter(raising_steps), None) == case.get(
        "raises_at"
    )


def run(case, flags):
    """
    Return the scales of an overflow trace, and the steps at which `would_raise` is True.

    A framework's class has no `would_raise`, so for a test vector of such a class the steps are [].
    """
    if "rule" not in case:
        read, update = driver_of(case["chapter"], case["class"], arguments(case["arguments"]))
        scales = [read()]
        for finite in flags:
            update(finite)
            scales.append(read())
        return scales, []
    rule = ampscale.LossScaleRule(**rule_arguments(case["rule"]))
    states, raising_steps = [rule.init()], []
    for step, finite in enumerate(flags):
        if rule.would_raise(states[-1], finite):
            raising_steps.append(step)
        states.append(rule.update(states[-1], finite))
    return [float(state.scale) for state in states], raising_steps


def driver_of(chapter, name, settings):
    """Return two functions that read and update the scale of a documented class."""
    if chapter == "torch":
        return torch_driver(settings)
    instance = getattr(ampscale, name)(**settings)
    if name in ("StaticLossScaler", "DynamicLossScaler"):
        return lambda: float(instance.scale_value), lambda finite: instance.adjust(np.asarray(finite))
    if name in ("DynamicLossScaleManager", "FixedLossScaleManager"):
        return instance.get_loss_scale, lambda finite: instance.update_loss_scale(not finite)
    if name in ("DynamicLossScaleUpdateCell", "FixedLossScaleUpdateCell"):
        scale = np.asarray(instance.get_loss_scale(), np.float32)
        return lambda: float(scale), lambda finite: instance(scale, np.asarray(not finite))
    optimizer = ampscale.optimizers.SGD(linear([np.zeros(1, np.float32)]))

    def update(finite):
        optimizer.parameters[0].grad = np.asarray([1.0 if finite else np.inf], np.float32)
        instance.minimize(optimizer, None)

    return instance.get_loss_scaling, update


def torch_driver(settings):
    torch = pytest.importorskip("torch")
    scaler = module_of("torch").GradScaler(**settings)
    parameter = torch.zeros(1, requires_grad=True)
    scaler.scale(parameter)

    def update(finite):
        parameter.grad = torch.tensor([1.0 if finite else float("inf")])
        scaler.step(torch.optim.SGD([parameter]))
        scaler.update()

    return scaler.get_scale, update


def scale(case):
    """Return True if scaling gives the expected tree. MindSpore and Paddle have chapters with their classes."""
    tree, factor = argument(case["input"]), argument(case["scale"])
    classes = {"mindspore": ampscale.StaticLossScaler, "paddle": partial(ampscale.GradScaler, True)}
    cls = classes.get(case["chapter"])
    scaled = cls(factor).scale(tree) if cls else ampscale.scale(tree, factor)
    return trees_are_same(scaled, argument(case["output"]))


def unscale(case):
    """Return True if unscaling gives the expected tree. MindSpore's chapter uses its class, and others use `ampscale.unscale`."""
    tree, factor = argument(case["input"]), argument(case["scale"])
    if case["chapter"] == "mindspore":
        return trees_are_same(ampscale.StaticLossScaler(factor).unscale(tree), argument(case["output"]))
    return trees_are_same(ampscale.unscale(tree, factor, case.get("dtype")), argument(case["output"]))


def all_finite(case):
    """Return True if `all_finite` returns the expected flag."""
    check = mindspore.all_finite if case["chapter"] == "mindspore" else ampscale.all_finite
    return bool(check(argument(case["tree"]))) == case["finite"]


def check(case):
    """Return True if quotient and flag are as expected, as new arrays and in place, or with Paddle's `unscale_`."""
    tree, factor = argument(case["input"]), argument(case["scale"])
    if case["chapter"] == "paddle":
        return check_with_paddle(tree, factor, case)
    unscaled, finite = ampscale.unscale_and_check(tree, factor)
    written, flag = ampscale.unscale_and_check(tree, factor, out=tree)
    expected = argument(case["output"]) if "output" in case else unscaled
    return (
        bool(finite) == bool(flag) == case["finite"]
        and written is tree
        and trees_are_same(unscaled, expected)
        and trees_are_same(written, expected)
    )


def check_with_paddle(gradients, factor, case):
    optimizer = ampscale.optimizers.SGD(linear([np.zeros_like(gradient) for gradient in leaves(gradients)]))
    for parameter, gradient in zip(optimizer.parameters, leaves(gradients), strict=True):
        parameter.grad = gradient
    scaler = ampscale.GradScaler(init_loss_scaling=factor)
    scaler.unscale_(optimizer)
    unscaled = [parameter.grad for parameter in optimizer.parameters]
    return scaler.step(optimizer) == case["finite"] and (
        "output" not in case or trees_are_same(unscaled, leaves(argument(case["output"])))
    )


def global_norm(case):
    """Return True if the global norm is as expected."""
    return alike(ampscale.global_norm(argument(case["input"])), array(case["norm"]))


def local_norms(case):
    """Return True if the norm and the size of each array are as expected."""
    tree = argument(case["input"])
    return alike(ampscale.local_norms(tree), array(case["norm"])) and alike(norms.sizes(tree), array(case["sizes"]))


def clip(case):
    """Return True if the clipped gradients, and the norm before clipping, are as expected."""
    clipped, norm = ampscale.clip_by_global_norm(argument(case["input"]), argument(case["max_norm"]))
    return trees_are_same(clipped, argument(case["output"])) and alike(norm, array(case["norm"]))


def measure(case):
    """Return True if the statistics, and with a scale the flag of the division that follows them, are as expected."""
    tree, expected = argument(case["tree"]), array(case["statistics"])
    if "scale" not in case:
        return alike(ampscale.measure(tree), expected)
    _, finite, measured = ampscale.unscale_check_and_measure(tree, argument(case["scale"]))
    return bool(finite) == case["finite"] and alike(measured, expected)


def histogram(case):
    """Return True if the number of values of each exponent that occurs is as expected."""
    rows = np.asarray(ampscale.exponent_histogram(argument(case["tree"])))
    return [{str(index + LOWEST): int(row[index]) for index in np.flatnonzero(row)} for row in rows] == case["counts"]


def error(case):
    """Return True if a call raises an error of the expected type."""
    module = module_of(case["chapter"])
    name, _, method = case["call"].partition(".")
    kwargs = rule_arguments(case["arguments"]) if name == "LossScaleRule" else arguments(case["arguments"])
    function = getattr(module, name)
    if name in ("TrainOneStepWithLossScaleCell", "MFTrainOneStepCell"):
        network = linear([np.zeros(1, np.float32)])
        function = partial(function, network=network, optimizer=ampscale.optimizers.SGD(network))
    if method:
        function = getattr(function(**arguments(case.get("constructor", {}))), method)
    try:
        function(**kwargs)
    except (ValueError, TypeError) as error:
        return type(error).__name__ == case["error"]
    return False


def module_of(chapter):
    """Return the module that defines the names of a chapter."""
    if chapter == "torch":
        pytest.importorskip("torch")
        return importlib.import_module("ampscale.frameworks.torch")
    return mindspore if chapter == "mindspore" else ampscale


def step(case):
    """Return True if the outputs that the test vector lists for each step are as expected."""
    network = linear([array(parameter) for parameter in case["parameters"]])
    settings = case["optimizer"]
    kwargs = {"learning_rate": argument(settings["learning_rate"])}
    if "momentum" in settings:
        kwargs["momentum"] = argument(settings["momentum"])
    optimizer = getattr(ampscale.optimizers, settings["name"])(network, **kwargs)
    outputs = {"train_step": pure_step, "GradScaler": paddle_step}.get(case["cell"], cell_step)(case, network, optimizer)
    inputs = [[array(gradient) for gradient in gradients] for gradients in case["gradients"]]  # equal to the gradients
    return [
        {name: matches(actual[name], value) for name, value in expected.items()}
        for actual, expected in zip(map(outputs, inputs), case["expect"], strict=True)
    ] == [dict.fromkeys(expected, True) for expected in case["expect"]]


def matches(actual, expected):
    """Return True if an output (an array or a tree, a flag, the name of a status, or None) is as expected."""
    if expected is None:
        return actual is None
    if isinstance(expected, bool):
        return bool(actual) == expected
    if isinstance(expected, str):
        return ampscale.StepStatus(int(actual)).name == expected
    return trees_are_same(actual, argument(expected))


def pure_step(case, network, optimizer):
    """Return a function that runs `train_step` on the inputs of a step, and returns the outputs by name."""
    rule = ampscale.LossScaleRule(**rule_arguments(case["rule"]))
    limit = argument(case["max_norm"]) if "max_norm" in case else None
    state = ampscale.init_train_state(network.params, optimizer, rule)

    def outputs(inputs):
        nonlocal state
        state, report = ampscale.train_step(network, optimizer, rule, state, inputs, max_norm=limit)
        return {**report._asdict(), "parameters": state.params}

    return outputs


def paddle_step(case, network, optimizer):
    """Return a function that runs Paddle's scaler on the inputs of a step, and returns the outputs by name."""
    scaler = ampscale.GradScaler(**arguments(case["arguments"]))

    def outputs(inputs):
        network.backward(inputs, seed=scaler.scale(np.asarray(1.0, np.float32)))
        old_count = int(optimizer.state.count)
        scaler.minimize(optimizer, scaler.scale(network(inputs)))
        applied = int(optimizer.state.count) > old_count
        return {"applied": applied, "scale": np.float32(scaler.get_loss_scaling()), "parameters": network.params}

    return outputs


def cell_step(case, network, optimizer):
    """Return a function that calls a training cell on the inputs of a step, and returns the outputs by name."""
    kwargs = arguments(case.get("arguments", {}))
    if "scale_sense" in case:
        sense = case["scale_sense"]
        if "class" in sense:
            kwargs["scale_sense"] = getattr(ampscale, sense["class"])(**arguments(sense["arguments"]))
        else:
            kwargs["scale_sense"] = argument(sense)
    train = getattr(ampscale, case["cell"])(network, optimizer, **kwargs)

    def outputs(inputs):
        return {**train(inputs)._asdict(), "parameters": network.params, "ema_params": getattr(train, "ema_params", None)}

    return outputs


def replicas(case):
    """Return True if all replicas take the expected decision, given the flags or gradients of each replica."""
    if "gradients" in case:
        return all(on_ranks(lambda rank, gradients: step_of_replica(case, rank, gradients), case["gradients"]))
    decisions = []
    for flags in case["flags"]:
        results = on_ranks(lambda rank, flag: bool(rank.agree(np.asarray(flag), None, []).finite), flags)
        assert len(set(results)) == 1
        decisions.append(results[0])
    if "".join("+" if finite else "-" for finite in decisions) != case["finite"]:
        return False
    return "rule" not in case or run(case, decisions)[0] == [float.fromhex(scale) for scale in case["scale"]]


def step_of_replica(case, rank, gradients):
    """Return True if a replica's decision, and its gradients and norm if the test vector has them, are as expected."""
    with np.errstate(all="ignore"):
        mean = rank.mean([array(gradient) for gradient in gradients])
    unscaled, finite, norm = ampscale.unscale_check_and_norm(mean, argument(case["scale"]))
    return (
        bool(rank.agree(finite, None, []).finite) == case["finite"]
        and ("output" not in case or trees_are_same(unscaled, argument(case["output"])))
        and ("norm" not in case or alike(norm, array(case["norm"])))
    )


def calls(case):
    """Return True if the calls give the expected results with torch's class and with Paddle's."""
    pytest.importorskip("torch")
    loops = [Loop(f"ampscale-{name}", case) for name in ("torch-scaler", "paddle")]
    return all(loop.run(call) for loop in loops for call in case["calls"])


FUNCTIONS = (
    trace, scale, unscale, all_finite, check, global_norm, local_norms, clip, measure, histogram, error, step, replicas, calls,
)  # fmt: skip
KINDS = {function.__name__: function for function in FUNCTIONS}
VECTORS = defaultdict(list)
for vector in cases():
    VECTORS[vector["chapter"], vector["kind"]].append(vector)


def holds(case):
    """Return True if a test vector holds. Errors name the test vector in a note."""
    try:
        return KINDS[case["kind"]](case)
    except Exception as error:
        error.add_note(case["id"])
        raise


@pytest.mark.parametrize(("chapter", "kind"), VECTORS)
def test_vectors_hold(chapter, kind):
    """The assertion lists the ids of the test vectors that do not hold."""
    assert [case["id"] for case in VECTORS[chapter, kind] if not holds(case)] == []
