"""torch.compile: update rules, functions and whole steps compile into one graph, and the results have the same bits."""

import shutil
import sys

import pytest
from libraries import load
from strategies import DTYPES, bit_patterns

import ampscale
from ampscale.backends import network_of
from ampscale.core.trees import leaves

torch = pytest.importorskip("torch", reason="needs torch")

pytestmark = pytest.mark.filterwarnings(  # warnings about torch itself, and about the caches of array_api_compat
    "ignore:Dynamo detected a call to a `functools.lru_cache`:UserWarning",
    "ignore:`torch.jit.script_method` is deprecated:DeprecationWarning",
)

LIBRARY = load("torch")
equal = LIBRARY.same
NEEDS_COMPILER = pytest.mark.skipif(not shutil.which("g++"), reason="needs a C++ compiler, g++")
RULE = ampscale.LossScaleRule(growth_interval=2)


class Linear(torch.nn.Linear):
    """Module that returns its loss."""

    def forward(self, inputs, targets):
        return torch.nn.functional.mse_loss(super().forward(inputs), targets)


@pytest.fixture(autouse=True)
def empty_cache():
    """Remove the compiled code of other tests."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    yield
    torch._dynamo.reset()


def compiled(function, compiler):
    """Compile a function into one graph; raise an error if that is not possible."""
    return torch.compile(function, fullgraph=True, backend=compiler)


def graphs():
    return torch._dynamo.utils.counters["stats"]["unique_graphs"]


def loss_fn(params, inputs, targets):
    return ((inputs @ params["w"] + params["b"] - targets) ** 2).mean()


def parameters():
    """Return weights and a float16 bias."""
    generator = torch.Generator().manual_seed(0)
    return {"w": torch.randn(3, 2, generator=generator), "b": torch.zeros(2, dtype=torch.float16)}


def batches():
    """Yield inputs and targets of four steps; the third step overflows."""
    generator = torch.Generator().manual_seed(1)
    for step in range(4):
        inputs, targets = torch.randn(8, 3, generator=generator), torch.randn(8, 2, generator=generator)
        yield (inputs * float("inf") if step == 2 else inputs), targets


def step_and_state(network, optimizer):
    """Return the training step of a network or module, and the initial state."""
    rule = ampscale.LossScaleRule(init_scale=2.0**10, growth_interval=2)
    state = ampscale.init_train_state(network_of(network).params, optimizer, rule)
    return lambda state, *inputs: ampscale.train_step(network, optimizer, rule, state, *inputs, max_norm=1.0), state


def compiled_and_eager(step, state, compiler):
    """Yield for each step the state and report of the compiled function, and the state and report of the eager function."""
    compiled_step = compiled(step, compiler)
    compiled_state = state
    eager_state = state
    for inputs in batches():
        results = compiled_step(compiled_state, *inputs), step(eager_state, *inputs)
        yield results
        (compiled_state, _), (eager_state, _) = results


@pytest.mark.slow
@pytest.mark.clause("BACKENDS-bit-identical", "MACHINE-pure")
@NEEDS_COMPILER
def test_update_compiles_into_one_graph():
    """States are equal although no factor is a power of two: the compiler fuses nothing and uses no reciprocal."""
    rule = ampscale.LossScaleRule(
        growth_factor=1.1, backoff_factor=1 / 1.1, growth_interval=1, hysteresis=2, divide_on_backoff=True,
        float64_factor=True, max_scale=2.0**17, min_scale=2.0**15,
    )  # fmt: skip
    update = compiled(rule.update, "inductor")
    state = rule.init(like=torch.ones(1))
    for finite in (True, True, False, False, True, False, False, True, True):
        expected = rule.update(state, torch.tensor(finite))
        state = update(state, torch.tensor(finite))
        assert equal(state, expected)
    assert graphs() == 1


@pytest.mark.slow
@pytest.mark.clause("BACKENDS-bit-identical", "OVERFLOW-same-everywhere")
@NEEDS_COMPILER
def test_unscale_and_check_compiles_into_one_graph():
    """Values include infinities and subnormal numbers of all formats. Another scale causes no recompilation."""
    unscale_and_check = compiled(ampscale.unscale_and_check, "inductor")
    ampscale.unscale_and_check([torch.ones(1)], 1.0)  # caches the owner of tensors, which would otherwise cause a recompilation
    tree = {name: LIBRARY.put(bit_patterns(name)[1:]) for name in DTYPES} | {"none": None, "one": torch.tensor(7.0)}
    for factor in (3.0, 2.0**-3, 2.0**16 + 1):
        result = unscale_and_check(tree, torch.tensor(factor))
        assert equal(result, ampscale.unscale_and_check(tree, torch.tensor(factor)))
    assert graphs() == 1


@pytest.mark.slow
@pytest.mark.clause("OVERFLOW-both-sides", "SCALING-round-once", "NORMS-global")
@NEEDS_COMPILER
def test_16_bit_values_are_rounded_in_a_graph():
    """A compiler that fused the operations without rounding would check float32 results. In the last case, quotients overflow."""

    def scale_and_unscale(tree, factor):
        scaled = ampscale.scale(tree, factor)
        results = ampscale.unscale_check_and_norm(scaled, factor), ampscale.global_norm(scaled)
        return list(map(ampscale.all_finite, scaled)), results, ampscale.unscale_and_check(tree, factor)

    compiled_function = compiled(scale_and_unscale, "inductor")
    largest = {dtype: torch.finfo(dtype).max for dtype in (torch.float16, torch.bfloat16)}
    ones = dict.fromkeys(largest, 1.0)
    thirds = {dtype: value / 3 for dtype, value in largest.items()}
    for values, factor, finite in ((largest, 2.0, False), (thirds, 1.7, True), (ones, 1 / 3, True), (largest, 0.5, True)):
        tree = [torch.full((33,), value, dtype=dtype) for dtype, value in values.items()]
        results = compiled_function(tree, torch.tensor(factor))
        assert equal(results, scale_and_unscale(tree, torch.tensor(factor)))
        assert results[0] == [finite, finite]
    quotients, flag = results[-1]
    assert all(torch.isinf(quotient).all() for quotient in quotients)
    assert not flag


@pytest.mark.slow
@pytest.mark.clause("BACKENDS-bit-identical", "OVERFLOW-in-place", "SCALING-scale")
def test_unscaling_by_a_number_and_in_place_compiles():
    """A Python number is a constant of the graph. A compiled function of a bfloat16 loss can be differentiated."""
    unscale_and_check = compiled(ampscale.unscale_and_check, "aot_eager")
    tree = [torch.tensor([1.0, -7.0]), (torch.tensor([2.0], dtype=torch.float16),)]
    expected = ampscale.unscale_and_check(tree, 3.0)
    assert equal(unscale_and_check(tree, 3.0), expected)
    assert equal(unscale_and_check(tree, 3.0, out=tree), expected)
    assert equal(tree, expected[0])
    weights = torch.tensor([2.0, -3.0], dtype=torch.bfloat16, requires_grad=True)
    scaled = compiled(lambda weights, factor: ampscale.scale([(weights * weights).sum()], factor)[0], "aot_eager")
    scaled(weights, torch.tensor(8.0)).backward()
    assert weights.grad.tolist() == [32, -48]


@pytest.mark.clause("BACKENDS-bit-identical", "BACKENDS-no-host-sync", "STEP-order", "STEP-skip")
def test_train_step_compiles_into_one_graph():
    """States and reports equal the eager ones, with an overflow, clipping and master weights."""
    network = ampscale.Network(loss_fn, parameters())
    step, state = step_and_state(network, ampscale.optimizers.Momentum(network, [0.1, 0.05], nesterov=True))
    applied = []
    for (new_state, report), (expected, expected_report) in compiled_and_eager(step, state, "aot_eager"):
        assert equal(new_state, expected)
        assert equal(list(report), list(expected_report))
        applied.append(bool(report.applied))
    assert applied == [True, True, False, True]
    assert graphs() == 1


@pytest.mark.slow
@pytest.mark.clause("STEP-network", "STEP-order")
def test_train_step_of_a_module_compiles_into_one_graph(monkeypatch):
    """`trace_autograd_ops` is required. The module is unchanged. Importing other modules between steps does not recompile."""
    module = Linear(3, 2)
    original = {name: parameter.detach().clone() for name, parameter in module.named_parameters()}
    step, state = step_and_state(module, ampscale.optimizers.AdamW(network_of(module), 0.1))
    with torch._dynamo.config.patch(trace_autograd_ops=True):
        for (new_state, report), (expected, expected_report) in compiled_and_eager(step, state, "aot_eager"):
            assert equal(new_state, expected)
            assert equal(list(report), list(expected_report))
            monkeypatch.setitem(sys.modules, f"imported_after_{int(new_state.attempted)}_steps", sys)
    assert graphs() == 1
    assert equal(dict(module.named_parameters()), original)


@pytest.mark.slow
@NEEDS_COMPILER
def test_graphs_read_the_parameters_of_the_state(monkeypatch):
    """The network keeps the initial parameters. The inputs of step 3 are infinite; in step 4, only the float16 bias overflows."""
    network = ampscale.Network(loss_fn, parameters())
    optimizer = ampscale.optimizers.SGD(network, 0.1)
    monkeypatch.setitem(globals(), "NETWORK", network)
    monkeypatch.setitem(globals(), "OPTIMIZER", optimizer)
    state = ampscale.init_train_state(network.params, optimizer, RULE)
    steps = list(compiled_and_eager(step_of_a_global_network, state, "inductor"))
    for (new_state, report), (expected, expected_report) in steps:
        for left, right in zip(leaves(new_state.params), leaves(expected.params), strict=True):
            torch.testing.assert_close(left, right)
        assert equal([report.applied, new_state.scaler], [expected_report.applied, expected.scaler])
    assert [bool(report.applied) for (_, report), _ in steps] == [True, True, False, False]


def step_of_a_global_network(state, *inputs):
    """Run a training step of global variables, as scripts do."""
    return ampscale.train_step(NETWORK, OPTIMIZER, RULE, state, *inputs)


NETWORK = OPTIMIZER = None  # a test replaces them
