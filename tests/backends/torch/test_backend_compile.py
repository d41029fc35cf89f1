"""torch.compile takes the machine, the verbs and a whole step in one graph, and what it makes of them gives the same bits."""

import shutil
import sys

import pytest
from libraries import load
from strategies import same

import ampscale
from ampscale.backends import network_of
from ampscale.core.trees import leaves

torch = pytest.importorskip("torch", reason="needs torch")

LIBRARY = load("torch")
pytestmark = pytest.mark.filterwarnings(  # of torch's own, and of array_api_compat's caches
    "ignore:Dynamo detected a call to a `functools.lru_cache`:UserWarning",
    "ignore:`torch.jit.script_method` is deprecated:DeprecationWarning",
)

NEEDS_COMPILER = pytest.mark.skipif(not shutil.which("g++"), reason="needs a C++ compiler, g++")
RULE = ampscale.LossScaleRule(growth_interval=2)
PATTERNS = {"float16": torch.int16, "bfloat16": torch.int16, "float32": torch.int32, "float64": torch.int64}


class Linear(torch.nn.Linear):
    """A module that returns its loss."""

    def forward(self, inputs, targets):
        """The mean square error: shape ()."""
        return torch.nn.functional.mse_loss(super().forward(inputs), targets)


@pytest.fixture(autouse=True)
def compiled_anew():
    """No test finds what another has compiled."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    yield
    torch._dynamo.reset()


def compiled(function, compiler):
    """A function in one graph, or not at all."""
    return torch.compile(function, fullgraph=True, backend=compiler)


def graphs():
    """How many graphs have been compiled since the test began."""
    return torch._dynamo.utils.counters["stats"]["unique_graphs"]


def patterns(dtype, subnormal, seed=0):
    """All kinds of numbers of a format, or its subnormal numbers alone."""
    pattern = PATTERNS[dtype]
    kind, limits = getattr(torch, dtype), torch.iinfo(pattern)
    low, high = (
        (1, int(torch.tensor(torch.finfo(kind).tiny, dtype=kind).view(pattern))) if subnormal else (limits.min, limits.max)
    )
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(low, high, (257,), generator=generator, dtype=torch.int64).to(pattern).view(kind)


def equal(left, right):
    """Whether two trees hold the same tensors, bit for bit."""
    return same(LIBRARY.to_numpy(left), LIBRARY.to_numpy(right))


def loss_fn(params, inputs, targets):
    """The mean square error: shape ()."""
    return ((inputs @ params["w"] + params["b"] - targets) ** 2).mean()


def parameters():
    """Weights, and a bias of 16 bits."""
    generator = torch.Generator().manual_seed(0)
    return {"w": torch.randn(3, 2, generator=generator), "b": torch.zeros(2, dtype=torch.float16)}


def batches():
    """Inputs and targets of four steps, of which the third overflows."""
    generator = torch.Generator().manual_seed(1)
    for step in range(4):
        inputs, targets = torch.randn(8, 3, generator=generator), torch.randn(8, 2, generator=generator)
        yield (inputs * float("inf") if step == 2 else inputs), targets


def step_of(network, optimizer):
    """A functional step of a network, or of a module, and the state to start from."""
    rule = ampscale.LossScaleRule(init_scale=2.0**10, growth_interval=2)
    state = ampscale.init_train_state(network_of(network).params, optimizer, rule)
    return lambda state, *inputs: ampscale.train_step(network, optimizer, rule, state, *inputs, max_norm=1.0), state


def both(step, state, compiler):
    """Pairs of state and report, compiled and eager, step by step."""
    quick, left, right = compiled(step, compiler), state, state
    for inputs in batches():
        left, right = quick(left, *inputs), step(right, *inputs)
        yield left, right
        left, right = left[0], right[0]


@pytest.mark.clause("BACKENDS-bit-identical", "MACHINE-pure")
@NEEDS_COMPILER
def test_the_machine_in_one_graph():
    """The same states, also where a factor is no power of two: nothing is multiplied by a reciprocal, or fused."""
    rule = ampscale.LossScaleRule(
        growth_factor=1.1,
        backoff_factor=1 / 1.1,
        growth_interval=1,
        hysteresis=2,
        divide_on_backoff=True,
        float64_factor=True,
        max_scale=2.0**17,
        min_scale=2.0**15,
    )
    update, state = compiled(rule.update, "inductor"), rule.init(like=torch.ones(1))
    for finite in (True, True, False, False, True, False, False, True, True):
        wanted = rule.update(state, torch.tensor(finite))
        state = update(state, torch.tensor(finite))
        assert equal(state, wanted)
    assert graphs() == 1


@pytest.mark.clause("BACKENDS-bit-identical", "OVERFLOW-same-everywhere")
@NEEDS_COMPILER
def test_unscaling_in_one_graph():
    """All formats at once, infinities and subnormal numbers among them; the flag is the eager one. No scale compiles anew."""
    unscale_and_check = compiled(ampscale.unscale_and_check, "inductor")
    ampscale.unscale_and_check([torch.ones(1)], 1.0)
    for seed, factor in enumerate((3.0, 2.0**-3, 2.0**16 + 1)):
        tree = {dtype: [patterns(dtype, subnormal, seed) for subnormal in (False, True)] for dtype in PATTERNS}
        tree |= {"none": None, "one": torch.tensor(7.0)}
        result = unscale_and_check(tree, torch.tensor(factor))
        assert equal(result, ampscale.unscale_and_check(tree, torch.tensor(factor)))
    assert graphs() == 1


@pytest.mark.clause("OVERFLOW-both-sides", "SCALING-round-once", "NORMS-global")
@NEEDS_COMPILER
def test_16_bit_values_are_rounded_within_a_graph():
    """Before they are unscaled, and before they are looked at, where a compiler would go on with float32."""

    def twice(tree, factor):
        scaled = ampscale.scale(tree, factor)
        again = ampscale.unscale_check_and_norm(scaled, factor), ampscale.global_norm(scaled)
        return list(map(ampscale.all_finite, scaled)), again, ampscale.unscale_and_check(tree, factor)

    twice_compiled = compiled(twice, "inductor")
    formats = torch.float16, torch.bfloat16
    for of_largest, factor, finite in ((1, 2.0, False), (1 / 3, 1.7, True), (0, 1 / 3, True), (1, 0.5, True)):
        tree = [torch.full((33,), torch.finfo(dtype).max * of_largest or 1.0, dtype=dtype) for dtype in formats]
        outcome = twice_compiled(tree, torch.tensor(factor))
        assert equal(outcome, twice(tree, torch.tensor(factor)))
        assert outcome[0] == [finite, finite]
    quotients, flag = outcome[-1]
    assert all(torch.isinf(quotient).all() for quotient in quotients)
    assert not flag


@pytest.mark.clause("BACKENDS-bit-identical", "OVERFLOW-in-place", "SCALING-scale")
def test_unscaling_by_a_number_and_in_place_in_one_graph():
    """A number is a constant of the graph; a tensor is for a scale that moves. A scaled loss of 16 bits is differentiated."""
    unscale_and_check = compiled(ampscale.unscale_and_check, "aot_eager")
    tree = [torch.tensor([1.0, -7.0]), (torch.tensor([2.0], dtype=torch.float16),)]
    wanted = ampscale.unscale_and_check(tree, 3.0)
    assert equal(unscale_and_check(tree, 3.0), wanted)
    assert equal(unscale_and_check(tree, 3.0, out=tree), wanted)
    assert equal(tree, wanted[0])
    weights = torch.tensor([2.0, -3.0], dtype=torch.bfloat16, requires_grad=True)
    scaled = compiled(lambda weights, factor: ampscale.scale([(weights * weights).sum()], factor)[0], "aot_eager")
    scaled(weights, torch.tensor(8.0)).backward()
    assert weights.grad.tolist() == [32, -48]


@pytest.mark.clause("BACKENDS-bit-identical", "BACKENDS-no-host-sync", "STEP-order", "STEP-skip")
def test_a_whole_step_in_one_graph():
    """States and reports are the eager ones, over an overflow, with clipping and master weights; one graph does for all."""
    network = ampscale.Network(loss_fn, parameters())
    step, state = step_of(network, ampscale.optimizers.Momentum(network, [0.1, 0.05], nesterov=True))
    applied = []
    for (after, report), (wanted, wanted_report) in both(step, state, "aot_eager"):
        assert equal(after, wanted)
        assert equal(list(report), list(wanted_report))
        applied.append(bool(report.applied))
    assert applied == [True, True, False, True]
    assert graphs() == 1


@pytest.mark.clause("STEP-network", "STEP-order")
def test_a_step_with_a_module_in_one_graph(monkeypatch):
    """
    Where torch is told to follow its own differentiation; the module's parameters stay.

    What is imported meanwhile does not compile it anew.
    """
    module = Linear(3, 2)
    before = {name: parameter.detach().clone() for name, parameter in module.named_parameters()}
    step, state = step_of(module, ampscale.optimizers.AdamW(network_of(module), 0.1))
    with torch._dynamo.config.patch(trace_autograd_ops=True):
        for (after, report), (wanted, wanted_report) in both(step, state, "aot_eager"):
            assert equal(after, wanted)
            assert equal(list(report), list(wanted_report))
            monkeypatch.setitem(sys.modules, f"imported_after_{int(after.attempted)}_steps", sys)
    assert graphs() == 1
    assert equal(dict(module.named_parameters()), before)


@NEEDS_COMPILER
def test_a_step_follows_its_state_and_not_its_network(monkeypatch):
    """
    A network that is a global variable, and whose own parameters the state began with: the graph reads the state's.

    The gradient of the 16-bit bias overflows in the fourth step, and only in its 16 bits.
    """
    network = ampscale.Network(loss_fn, parameters())
    optimizer = ampscale.optimizers.SGD(network, 0.1)
    monkeypatch.setitem(globals(), "NETWORK", network)
    monkeypatch.setitem(globals(), "OPTIMIZER", optimizer)
    state = ampscale.init_train_state(network.params, optimizer, RULE)
    outcomes = list(both(step_of_a_global_network, state, "inductor"))
    for (after, report), (wanted, wanted_report) in outcomes:
        for one, other in zip(leaves(after.params), leaves(wanted.params), strict=True):
            torch.testing.assert_close(one, other)
        assert equal([report.applied, after.scaler], [wanted_report.applied, wanted.scaler])
    assert [bool(report.applied) for (_, report), _ in outcomes] == [True, True, False, False]


def step_of_a_global_network(state, *inputs):
    """As a script has it."""
    return ampscale.train_step(NETWORK, OPTIMIZER, RULE, state, *inputs)


NETWORK = OPTIMIZER = None
