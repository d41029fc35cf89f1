"""Every vector of spec/ holds in this package, bit for bit."""

import importlib
from collections import defaultdict
from functools import partial

import numpy as np
import pytest
from ranks import on_ranks
from spec.loops import PaddleLoop, TorchLoop, called
from strategies import alike
from vectors import argument, arguments, array, cases, rule_arguments

import ampscale
from ampscale.core import norms
from ampscale.core.trees import leaves, map_leaves
from ampscale.frameworks import mindspore


def trees_are_same(got, wanted):
    """Whether two trees have the same structure and the same bits."""
    equal = []
    map_leaves(lambda want, have: equal.append(alike(have, want)), wanted, got)
    return all(equal)


# --- one function a kind: what it does, and whether the expected came out ---


def trace(case):
    """Overflow flags in, scales out; `raises_at` is the first step, counted from 0, in which the published scaler would raise."""
    flags = [sign == "+" for sign in case["finite"]]
    scales, raises = run(case, flags)
    if "preset" in case:
        preset = ampscale.presets.PRESETS[case["preset"]["name"]].rule(**arguments(case["preset"]["settings"]))
        if preset != ampscale.LossScaleRule(**rule_arguments(case["rule"])):
            return False
    return scales == [float.fromhex(scale) for scale in case["scale"]] and next(iter(raises), None) == case.get("raises_at")


def run(case, flags):
    """The scales along some flags, and the steps that stop: of a rule, or of a documented class, which does not stop."""
    if "rule" not in case:
        read, move = driver_of(case["chapter"], case["class"], arguments(case["arguments"]))
        scales = [read()]
        for finite in flags:
            move(finite)
            scales.append(read())
        return scales, []
    rule = ampscale.LossScaleRule(**rule_arguments(case["rule"]))
    states, stops = [rule.init()], []
    for step, finite in enumerate(flags):
        if rule.would_raise(states[-1], finite):
            stops.append(step)
        states.append(rule.update(states[-1], finite))
    return [float(state.scale) for state in states], stops


def driver_of(chapter, name, given):
    """How to read and to move the scale of a documented class."""
    if chapter == "torch":
        return torch_driver(given)
    made = getattr(ampscale, name)(**given)
    if name in ("StaticLossScaler", "DynamicLossScaler"):
        return lambda: float(made.scale_value), lambda finite: made.adjust(np.asarray(finite))
    if name in ("DynamicLossScaleManager", "FixedLossScaleManager"):
        return made.get_loss_scale, lambda finite: made.update_loss_scale(not finite)
    if name in ("DynamicLossScaleUpdateCell", "FixedLossScaleUpdateCell"):
        scale = np.asarray(made.get_loss_scale(), np.float32)
        return lambda: float(scale), lambda finite: made(scale, np.asarray(not finite))
    optimizer = ampscale.optimizers.SGD(linear([np.zeros(1, np.float32)]))

    def move(finite):
        optimizer.parameters[0].grad = np.asarray([1.0 if finite else np.inf], np.float32)
        made.minimize(optimizer, None)

    return made.get_loss_scaling, move


def torch_driver(given):
    torch = pytest.importorskip("torch")
    scaler, parameter = module_of("torch").GradScaler(**given), torch.zeros(1, requires_grad=True)
    scaler.scale(parameter)

    def move(finite):
        parameter.grad = torch.tensor([1.0 if finite else float("inf")])
        scaler.step(torch.optim.SGD([parameter]))
        scaler.update()

    return scaler.get_scale, move


def scale(case):
    """The product, in the chapter's class."""
    given, factor = argument(case["input"]), argument(case["scale"])
    classes = {"mindspore": ampscale.StaticLossScaler, "paddle": partial(ampscale.GradScaler, True)}
    made = classes.get(case["chapter"])
    scaled = made(factor).scale(given) if made else ampscale.scale(given, factor)
    return trees_are_same(scaled, argument(case["output"]))


def unscale(case):
    """The quotient, in the chapter's class."""
    given, factor = argument(case["input"]), argument(case["scale"])
    if case["chapter"] == "mindspore":
        return trees_are_same(ampscale.StaticLossScaler(factor).unscale(given), argument(case["output"]))
    return trees_are_same(ampscale.unscale(given, factor, case.get("dtype")), argument(case["output"]))


def all_finite(case):
    """The flag."""
    check = mindspore.all_finite if case["chapter"] == "mindspore" else ampscale.all_finite
    return bool(check(argument(case["tree"]))) == case["finite"]


def check(case):
    """The quotient and the flag: as new arrays and in place, or through Paddle's unscale_."""
    given, factor = argument(case["input"]), argument(case["scale"])
    if case["chapter"] == "paddle":
        return checked_by_paddle(given, factor, case)
    unscaled, finite = ampscale.unscale_and_check(given, factor)
    written, again = ampscale.unscale_and_check(given, factor, out=given)
    wanted = argument(case["output"]) if "output" in case else unscaled
    return (
        bool(finite) == bool(again) == case["finite"]
        and written is given
        and trees_are_same(unscaled, wanted)
        and trees_are_same(written, wanted)
    )


def checked_by_paddle(gradients, factor, case):
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
    """The norm of all."""
    return alike(ampscale.global_norm(argument(case["input"])), array(case["norm"]))


def local_norms(case):
    """The norm and the size of each."""
    given = argument(case["input"])
    return alike(ampscale.local_norms(given), array(case["norm"])) and alike(norms.sizes(given), array(case["sizes"]))


def clip(case):
    """The clipped gradients, and the norm before."""
    clipped, norm = ampscale.clip_by_global_norm(argument(case["input"]), argument(case["max_norm"]))
    return trees_are_same(clipped, argument(case["output"])) and alike(norm, array(case["norm"]))


def error(case):
    """The error, from the named call."""
    module = module_of(case["chapter"])
    name, _, method = case["call"].partition(".")
    given = rule_arguments(case["arguments"]) if name == "LossScaleRule" else arguments(case["arguments"])
    called = getattr(module, name)
    if name in NEEDS_NETWORK:
        network = linear([np.zeros(1, np.float32)])
        called = bound(called, network, ampscale.optimizers.SGD(network))
    if method:
        called = getattr(called(**arguments(case.get("constructor", {}))), method)
    try:
        called(**given)
    except (ValueError, TypeError) as error:
        return type(error).__name__ == case["error"]
    return False


def module_of(chapter):
    """Where the names of a chapter are."""
    if chapter == "torch":
        pytest.importorskip("torch")
        return importlib.import_module("ampscale.frameworks.torch")
    return mindspore if chapter == "mindspore" else ampscale


NEEDS_NETWORK = {"TrainOneStepWithLossScaleCell", "MFTrainOneStepCell"}


def bound(called, network, optimizer):
    return lambda **given: called(**{"network": network, "optimizer": optimizer, **given})


def linear(weights):
    """The network of the vectors: loss = sum(w * x) in float32, so that the gradients are its data."""

    def loss(params, data):
        with np.errstate(all="ignore"):
            products = [np.sum(w.astype(np.float32) * x.astype(np.float32)) for w, x in zip(params, data, strict=True)]
            return np.asarray(sum(products, start=np.float32(0)))

    def vjp(params, data):
        def pullback(seed):
            with np.errstate(all="ignore"):
                return [(x.astype(np.float32) * np.float32(seed)).astype(w.dtype) for w, x in zip(params, data, strict=True)]

        return loss(params, data), pullback

    return ampscale.Network(loss, weights, vjp)


def step(case):
    """Whole steps, every output that the vector names."""
    network = linear([array(parameter) for parameter in case["parameters"]])
    settings = case["optimizer"]
    rates = {"learning_rate": argument(settings["learning_rate"])}
    if "momentum" in settings:
        rates["momentum"] = argument(settings["momentum"])
    optimizer = getattr(ampscale.optimizers, settings["name"])(network, **rates)
    outputs = {"train_step": pure, "GradScaler": paddle}.get(case["cell"], cell)(case, network, optimizer)
    data = [[array(gradient) for gradient in gradients] for gradients in case["gradients"]]
    return [
        {name: matches(got[name], wanted) for name, wanted in expected.items()}
        for got, expected in zip(map(outputs, data), case["expect"], strict=True)
    ] == [dict.fromkeys(expected, True) for expected in case["expect"]]


def matches(got, wanted):
    if wanted is None or isinstance(wanted, bool):
        return got is wanted if wanted is None else bool(got) == wanted
    if isinstance(wanted, str):
        return ampscale.StepStatus(int(got)).name == wanted
    return trees_are_same(got, argument(wanted))


def pure(case, network, optimizer):
    rule = ampscale.LossScaleRule(**rule_arguments(case["rule"]))
    limit = argument(case["max_norm"]) if "max_norm" in case else None
    state = ampscale.init_train_state(network.params, optimizer, rule)

    def outputs(data):
        nonlocal state
        state, report = ampscale.train_step(network, optimizer, rule, state, data, max_norm=limit)
        return {**report._asdict(), "parameters": state.params}

    return outputs


def paddle(case, network, optimizer):
    scaler = ampscale.GradScaler(**arguments(case["arguments"]))

    def outputs(data):
        network.backward(data, seed=scaler.scale(np.asarray(1.0, np.float32)))
        before = int(optimizer.state.count)
        scaler.minimize(optimizer, scaler.scale(network(data)))
        applied = int(optimizer.state.count) > before
        return {"applied": applied, "scale": np.float32(scaler.get_loss_scaling()), "parameters": network.params}

    return outputs


def cell(case, network, optimizer):
    given = arguments(case.get("arguments", {}))
    if "scale_sense" in case:
        sense = case["scale_sense"]
        made = "class" in sense and getattr(ampscale, sense["class"])(**arguments(sense["arguments"]))
        given["scale_sense"] = made or argument(sense)
    made = getattr(ampscale, case["cell"])(network, optimizer, **given)

    def outputs(data):
        return {**made(data)._asdict(), "parameters": network.params, "ema_params": getattr(made, "ema_params", None)}

    return outputs


def replicas(case):
    """What each rank saw, and what all of them decide."""
    if "gradients" in case:
        return all(on_ranks(lambda rank, gradients: agreed(case, rank, gradients), case["gradients"]))
    decisions = []
    for flags in case["flags"]:
        seen = on_ranks(lambda rank, flag: bool(rank.all_finite(np.asarray(flag))), flags)
        assert len(set(seen)) == 1
        decisions.append(seen[0])
    signs = "".join("+" if finite else "-" for finite in decisions)
    if "rule" not in case:
        return signs == case["finite"]
    return signs == case["finite"] and run(case, decisions)[0] == [float.fromhex(scale) for scale in case["scale"]]


def agreed(case, rank, gradients):
    with np.errstate(all="ignore"):
        mean = rank.mean([array(gradient) for gradient in gradients])
    unscaled, finite, norm = ampscale.unscale_check_and_norm(mean, argument(case["scale"]))
    return (
        bool(rank.all_finite(finite)) == case["finite"]
        and ("output" not in case or trees_are_same(unscaled, argument(case["output"])))
        and ("norm" not in case or alike(norm, array(case["norm"])))
    )


def calls(case):
    """Each call in its turn, by torch's class and by Paddle's."""
    return called(case, TorchLoop(case)) and called(case, PaddleLoop(case))


KINDS = {
    function.__name__: function
    for function in (trace, scale, unscale, all_finite, check, global_norm, local_norms, clip, error, step, replicas, calls)
}


VECTORS = defaultdict(list)
for each in cases():
    VECTORS[each["chapter"], each["kind"]].append(each)


def holds(case):
    """Return what the function of its kind returns; an error names the vector."""
    try:
        return KINDS[case["kind"]](case)
    except Exception as error:
        error.add_note(case["id"])
        raise


@pytest.mark.parametrize(("chapter", "kind"), VECTORS)
def test_vectors_hold(chapter, kind):
    """The package does what the vectors state."""
    assert [case["id"] for case in VECTORS[chapter, kind] if not holds(case)] == []
