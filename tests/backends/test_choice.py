"""Which library new arrays come from: that of the arrays passed in; then the context's, the environment's, a file's, NumPy."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import array_api_compat.numpy
import array_api_strict
import numpy as np
import pytest
from backends.third_party.wheels import python

import ampscale
from ampscale.backends import register_backend, use_backend
from ampscale.backends.choice import _NOTHING, _context, configured

RULE = ampscale.LossScaleRule()
SOURCES = ("use_backend()", "environment", "ampscale.toml", "pyproject.toml")
LIST = "numpy': can be used; 'cupy': .*; 'torch': .*; 'jax': .*; 'strict': can be used; 'generic': makes no arrays of its own$"


@pytest.fixture(autouse=True)
def nothing_chosen(known_backends, make_backend, monkeypatch, tmp_path):
    """An empty folder to work in, a context and an environment that say nothing, and a backend of array_api_strict to choose."""
    _context.set(_NOTHING)
    known_backends._loaded["strict"] = make_backend("strict")
    monkeypatch.delenv("AMPSCALE_BACKEND", raising=False)
    monkeypatch.chdir(tmp_path)
    yield
    _context.set(_NOTHING)


def chosen():
    """The name of the library that new arrays come from."""
    library = array_api_compat.array_namespace(RULE.init().scale)
    assert ampscale.get_namespace() is library
    return {array_api_compat.numpy: "numpy", array_api_strict: "strict"}[library]


# --- what comes before what ---


def say(source, name, monkeypatch, folder):
    """Lets one source choose."""
    if source == "use_backend()":
        use_backend(name)
    elif source == "environment":
        monkeypatch.setenv("AMPSCALE_BACKEND", name)
    else:
        table = "[tool.ampscale]\n" if source == "pyproject.toml" else ""
        (folder / source).write_text(f'{table}backend = "{name}"\n')


@pytest.mark.clause("BACKENDS-precedence")
@pytest.mark.parametrize("source", SOURCES)
def test_a_source_comes_before_those_after_it(source, monkeypatch, tmp_path):
    """The context before the environment, before ampscale.toml, before pyproject.toml; and it says who it is."""
    say(source, "strict", monkeypatch, tmp_path)
    for other in SOURCES[SOURCES.index(source) + 1 :]:
        say(other, "numpy", monkeypatch, tmp_path)
    assert chosen() == "strict"
    who = {"environment": "AMPSCALE_BACKEND", "use_backend()": source}.get(source, str(tmp_path / source))
    assert configured() == ("strict", who)


@pytest.mark.clause("BACKENDS-precedence")
def test_without_a_choice_arrays_are_numpy_s(monkeypatch):
    """An empty variable is no choice."""
    assert configured() == ("numpy", "default")
    assert chosen() == "numpy"
    monkeypatch.setenv("AMPSCALE_BACKEND", "")
    assert chosen() == "numpy"


@pytest.mark.clause("BACKENDS-arrays-decide")
def test_arrays_that_are_passed_in_come_before_every_choice():
    """A choice changes nothing for a call that is given an array, or told what to be like."""
    array = np.ones(2, np.float32)
    with use_backend("strict"):
        results = [
            RULE.init(like=array).scale,
            ampscale.scale([array], 2.0)[0],
            ampscale.all_finite([None, array]),
            ampscale.global_norm({"w": array}),
            ampscale.init_train_state([array], ampscale.optimizers.SGD(ampscale.Network(sum, [array])), RULE).attempted,
        ]
    assert [array_api_compat.is_numpy_array(result) for result in results] == [True] * 5


@pytest.mark.clause("BACKENDS-arrays-decide", "BACKENDS-precedence")
def test_the_chosen_backend_does_the_verbs_of_nothing(make_backend):
    """A tree without arrays is its own."""
    register_backend(make_backend("counter", all_finite=lambda _: "counted", global_norm=lambda _: "summed"))
    with use_backend("counter"):
        assert ampscale.all_finite([None, {}]) == "counted"
        assert ampscale.global_norm(None) == "summed"
        assert array_api_compat.is_numpy_array(ampscale.global_norm([np.ones(1)]))


# --- the context ---


@pytest.mark.clause("BACKENDS-context")
def test_a_with_statement_takes_back_what_it_chose():
    """One inside another, a call inside, and an error on the way; a call alone holds until the next one."""
    use_backend("numpy")
    with use_backend("strict"):
        with use_backend("numpy"):
            assert chosen() == "numpy"
        assert chosen() == "strict"
        use_backend("numpy")
        assert chosen() == "numpy"
    assert chosen() == "numpy"
    use_backend("strict")
    with pytest.raises(KeyError), use_backend("numpy"):
        raise KeyError
    assert chosen() == "strict"


def test_a_choice_is_entered_once_and_where_it_was_made():
    """Entered a second time, or after another choice, it would say that it holds where it does not."""
    choice = use_backend("strict")
    with choice, pytest.raises(RuntimeError, match=r"use_backend\(\) must be entered where it is called, and once"):
        choice.__enter__()
    for late in (choice, use_backend("strict")):
        use_backend("numpy")
        with pytest.raises(RuntimeError, match="must be entered where it is called"), late:
            pass
        assert chosen() == "numpy"


def choosing(name):
    """A generator that chooses while it is open: the next one may be opened before this one is closed."""
    with use_backend(name):
        yield


@pytest.mark.clause("BACKENDS-context")
def test_the_outer_choice_is_not_left_before_the_inner_one():
    """That would put a choice back in force which has been left; it is an error, and changes nothing."""
    outer, inner = choosing("strict"), choosing("numpy")
    next(outer), next(inner)
    with pytest.raises(RuntimeError, match=r"must be left in the thread or task that entered it, the inner one first"):
        outer.close()
    assert chosen() == "numpy"
    inner.close()
    assert chosen() == "strict"


@pytest.mark.clause("BACKENDS-context")
def test_a_choice_is_neither_entered_nor_left_in_another_thread():
    """The other thread's choice is its own."""
    choice = use_backend("strict")
    with ThreadPoolExecutor() as threads:
        with pytest.raises(RuntimeError, match="must be entered where it is called"):
            threads.submit(choice.__enter__).result()
        with choice, pytest.raises(RuntimeError, match="must be left in the thread or task that entered it"):
            threads.submit(choice.__exit__, None, None, None).result()
    assert chosen() == "numpy"


@pytest.mark.clause("BACKENDS-context")
def test_a_thread_does_not_see_another_s_choice():
    """It begins without one."""
    with use_backend("strict"), ThreadPoolExecutor(1) as thread:
        assert thread.submit(chosen).result() == "numpy"
    with ThreadPoolExecutor(1) as thread:
        thread.submit(use_backend, "strict").result()
        assert [thread.submit(chosen).result(), chosen()] == ["strict", "numpy"]


@pytest.mark.clause("BACKENDS-context")
def test_a_task_does_not_see_another_s_choice():
    """Tasks begin with the choice of where they were started, and then have their own."""

    async def look(name):
        before = chosen()
        use_backend(name)
        await asyncio.sleep(0)
        return before, chosen()

    async def both():
        with use_backend("strict"):
            return [*await asyncio.gather(look("numpy"), look("strict")), chosen()]

    assert asyncio.run(both()) == [("strict", "numpy"), ("strict", "strict"), "strict"]
    assert chosen() == "numpy"


# --- files ---


@pytest.mark.clause("BACKENDS-precedence")
def test_the_nearest_file_that_names_a_backend_is_read(tmp_path, monkeypatch):
    """From the working directory upwards; a pyproject.toml that does not speak of this package is passed by."""
    inner = tmp_path / "inner" / "most"
    inner.mkdir(parents=True)
    monkeypatch.chdir(inner)
    (tmp_path / "ampscale.toml").write_text('backend = "numpy"')
    (inner.parent / "pyproject.toml").write_text('[tool.ampscale]\nbackend = "strict"\n[tool.other]\nbackend = 3')
    (inner / "pyproject.toml").write_text('[project]\nname = "mine"')
    assert configured() == ("strict", str(inner.parent / "pyproject.toml"))
    monkeypatch.chdir(tmp_path)
    assert configured() == ("numpy", str(tmp_path / "ampscale.toml"))


def test_a_file_is_read_once_for_each_folder(tmp_path):
    """
    A run does not move to another library midway because somebody edits a file.

    One that was refused is read again: mended, it counts.
    """
    file = tmp_path / "ampscale.toml"
    file.write_text("backend =")
    with pytest.raises(ValueError, match=r"ampscale\.toml must be readable TOML"):
        chosen()
    file.write_text('backend = "strict"')
    assert chosen() == "strict"
    file.write_text('backend = "numpy"')
    assert chosen() == "strict"


@pytest.mark.clause("BACKENDS-wrong-value")
@pytest.mark.parametrize(
    ("file", "content", "error", "message"),
    [
        ("ampscale.toml", "backend = 3", TypeError, "backend in {} must be a str, got 3"),
        ("ampscale.toml", 'bakend = "torch"', ValueError, "{} must set nothing but backend for ampscale, got bakend"),
        ("ampscale.toml", '[tool.ampscale]\nbackend = "torch"', ValueError, "{} must set nothing but backend .*, got tool"),
        ("ampscale.toml", "backend = torch", ValueError, r"{} must be readable TOML: .* \(at line 1, column 11\)"),
        ("ampscale.toml", b'backend = "\xff"', ValueError, "{} must be readable TOML: 'utf-8' codec"),
        ("ampscale.toml", 'backend = "nunpy"', ValueError, "{} must name a backend .*, got 'nunpy'. There are '" + LIST),
        ("pyproject.toml", "[tool.ampscale]\nbackend = true", TypeError, "backend in {} must be a str, got True"),
        ("pyproject.toml", '[tool.ampscale]\nscale = 1\n"" = 2', ValueError, "{} must set nothing but backend .*, got , scale"),
        ("pyproject.toml", 'tool.ampscale = "torch"', TypeError, "ampscale in {} must be a table, got 'torch'"),
        ("pyproject.toml", "tool = 1", TypeError, "tool in {} must be a table, got 1"),
    ],
)
def test_a_wrong_file_is_named(file, content, error, message, tmp_path):
    """Keys, types and TOML itself: the error says in which file what is wrong. Arrays that are passed in do not ask."""
    (tmp_path / file).write_bytes(content if isinstance(content, bytes) else content.encode())
    for ask in (ampscale.get_namespace, RULE.init, lambda: ampscale.all_finite([])):
        with pytest.raises(error, match=message.format(tmp_path / file)):
            ask()
    assert ampscale.all_finite([np.ones(1)])


def test_a_working_directory_that_is_gone_says_nothing(tmp_path, monkeypatch):
    """A run goes on in it."""
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert chosen() == "numpy"


# --- wrong values ---


@pytest.mark.clause("BACKENDS-wrong-value")
@pytest.mark.parametrize("name", ["nunpy", "generic", "", "Torch"])
def test_a_wrong_name_is_answered_by_all_right_ones(name, monkeypatch):
    """With, for each, why it cannot be used here; what was chosen before stays. A message begins with who says the name."""
    monkeypatch.setenv("AMPSCALE_BACKEND", name or "nunpy")
    with pytest.raises(ValueError, match=rf"^AMPSCALE_BACKEND must name .* got '{name or 'nunpy'}'. There are '{LIST}"):
        RULE.init()
    use_backend("strict")
    with pytest.raises(ValueError, match=rf"^use_backend\(\) must name .* used here, got '{name}'. There are '{LIST}"):
        use_backend(name)
    assert chosen() == "strict"


@pytest.mark.clause("BACKENDS-wrong-value")
def test_a_name_is_a_str():
    """Anything else is a TypeError that lists the names."""
    for name in (None, 3, np, ["torch"]):
        with pytest.raises(TypeError, match="name must be a str, one of numpy, cupy, torch, jax, strict, generic, got "):
            use_backend(name)


@pytest.mark.clause("BACKENDS-wrong-value")
def test_a_backend_without_a_device_cannot_be_chosen(make_backend):
    """A CuPy without a GPU is there, and of no use."""
    register_backend(make_backend("stranded", devices=tuple))
    register_backend(make_backend("wrecked", devices=lambda: 1 // 0))
    reasons = "'stranded': finds no device; .*'wrecked': failed: ZeroDivisionError: integer division"
    for name in ("stranded", "wrecked"):
        with pytest.raises(ValueError, match=f"got '{name}'. There are .*; {reasons}"):
            use_backend(name)


# --- what is imported, in a fresh interpreter ---

QUESTIONS = """
import array_api_strict, sys, types, numpy as np, ampscale

def look():
    print([name for name in ("torch", "jax", "cupy") if name in sys.modules])

ampscale.scale(np.ones(2), 2.0), ampscale.LossScaleRule().init(like=np.ones(1)), ampscale.list_backends()
look()
made = ampscale.LossScaleRule().init()[:3]
print(ampscale.get_namespace().__name__, {type(array).__module__.partition(".")[0] for array in made})
look()
try:
    ampscale.use_backend("cupy")
except ValueError as error:
    print(error)
look()
sys.modules["cupy"] = types.ModuleType("cupy")
try:
    ampscale.all_finite(array_api_strict.ones(1))
except RuntimeError as error:
    print(error)
print(ampscale.unscale(np.ones(1), 2.0))
"""


@pytest.mark.clause("BACKENDS-wrong-value", "BACKENDS-never-unasked")
def test_a_library_is_imported_when_it_is_asked_for_by_name(tmp_path):
    """
    The environment's choice is looked at when an array is made without another one to tell, and not before.

    A call imports the library that it names at once. Where that is broken, the reason is in a list of all backends, which is
    made by looking, not by trying: no other library is imported. It is told for what may be its arrays, and not for others'.
    """
    pytest.importorskip("jax", reason="needs jax")
    (tmp_path / "cupy.py").write_text("raise OSError('libcuda.so: cannot open')")
    done = python(QUESTIONS, tmp_path, AMPSCALE_BACKEND="jax")
    assert done.returncode == 0, done.stderr
    early, made, imported, message, after, failed, halved = done.stdout.splitlines()
    assert (early, made, imported, after) == ("[]", "jax.numpy {'jaxlib'}", "['jax']", "['jax']")
    assert "got 'cupy'. There are 'numpy': can be used; 'cupy': failed: OSError: libcuda.so: cannot open; 'torch': " in message
    assert failed.startswith("the backend 'cupy' failed: ")
    assert halved == "[0.5]"
