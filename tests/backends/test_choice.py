"""Choice of the library of new arrays: by the arguments, else by the context, the environment or a file; NumPy by default."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import array_api_compat.numpy
import array_api_strict
import numpy as np
import pytest
from backends.third_party.wheels import python

import ampscale
from ampscale.backends import register_backend, use_backend
from ampscale.backends.choice import _UNSET, _context, configured

RULE = ampscale.LossScaleRule()
SOURCES = ("use_backend()", "environment", "ampscale.toml", "pyproject.toml")
BACKENDS = "'numpy': can be used; 'cupy': .*; 'torch': .*; 'jax': .*; 'strict': can be used; 'generic': creates no arrays$"


@pytest.fixture(autouse=True)
def no_configuration(known_backends, make_backend, monkeypatch, tmp_path):
    """Provide an empty working directory, a context and an environment without a choice, and a backend called "strict"."""
    _context.set(_UNSET)
    known_backends._loaded["strict"] = make_backend("strict")
    monkeypatch.delenv("AMPSCALE_BACKEND", raising=False)
    monkeypatch.chdir(tmp_path)
    yield
    _context.set(_UNSET)


def chosen():
    """Return the name of the library that creates arrays, either NumPy or array_api_strict."""
    namespace = array_api_compat.array_namespace(RULE.init().scale)
    assert ampscale.get_namespace() is namespace
    return {array_api_compat.numpy: "numpy", array_api_strict: "strict"}[namespace]


# --- precedence ---


def configure(source, name, monkeypatch, folder):
    if source == "use_backend()":
        use_backend(name)
    elif source == "environment":
        monkeypatch.setenv("AMPSCALE_BACKEND", name)
    else:
        table = "[tool.ampscale]\n" if source == "pyproject.toml" else ""
        (folder / source).write_text(f'{table}backend = "{name}"\n')


@pytest.mark.clause("BACKENDS-precedence")
@pytest.mark.parametrize("source", SOURCES)
def test_sources_have_precedence_over_later_ones(source, monkeypatch, tmp_path):
    """The order is context, environment, ampscale.toml, pyproject.toml. `configured` also returns the source."""
    configure(source, "strict", monkeypatch, tmp_path)
    for other in SOURCES[SOURCES.index(source) + 1 :]:
        configure(other, "numpy", monkeypatch, tmp_path)
    assert chosen() == "strict"
    name = {"environment": "AMPSCALE_BACKEND", "use_backend()": source}.get(source, str(tmp_path / source))
    assert configured() == ("strict", name)


@pytest.mark.clause("BACKENDS-precedence")
def test_numpy_is_the_default(monkeypatch):
    """An empty environment variable counts as unset."""
    assert configured() == ("numpy", "default")
    assert chosen() == "numpy"
    monkeypatch.setenv("AMPSCALE_BACKEND", "")
    assert chosen() == "numpy"


@pytest.mark.clause("BACKENDS-arrays-decide")
def test_array_arguments_have_precedence_over_every_choice():
    """The array may be in a tree, or be the argument `like`."""
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
def test_trees_without_arrays_use_the_configured_backend(make_backend):
    """A tree with an array uses the backend of the array."""
    register_backend(make_backend("counter", all_finite=lambda _: "counted", global_norm=lambda _: "summed"))
    with use_backend("counter"):
        assert ampscale.all_finite([None, {}]) == "counted"
        assert ampscale.global_norm(None) == "summed"
        assert array_api_compat.is_numpy_array(ampscale.global_norm([np.ones(1)]))


# --- contexts ---


@pytest.mark.clause("BACKENDS-context")
def test_with_blocks_restore_the_previous_choice():
    """Blocks may be nested, contain another call, or raise an error. A call without a block applies until the next call."""
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


def test_choices_can_be_entered_only_once_and_only_while_current():
    """Entering a choice twice, or after another choice was made, raises an error and leaves the current choice unchanged."""
    choice = use_backend("strict")
    with (
        choice,
        pytest.raises(RuntimeError, match=r"result of use_backend\(\) can be entered only once, .*; call use_backend\(\) again"),
    ):
        choice.__enter__()
    for late in (choice, use_backend("strict")):
        use_backend("numpy")
        with pytest.raises(RuntimeError, match="can be entered only once"), late:
            pass
        assert chosen() == "numpy"


def choosing(name):
    """Yield within a ``with`` block, so that blocks of two generators need not be nested."""
    with use_backend(name):
        yield


@pytest.mark.clause("BACKENDS-context")
def test_exiting_the_outer_choice_first_raises():
    """The error leaves the current choice unchanged."""
    outer, inner = choosing("strict"), choosing("numpy")
    next(outer)
    next(inner)
    with pytest.raises(RuntimeError, match="must be exited in the thread or task that entered it, inner blocks first"):
        outer.close()
    assert chosen() == "numpy"
    inner.close()
    assert chosen() == "strict"


@pytest.mark.clause("BACKENDS-context")
def test_choices_cannot_be_entered_or_exited_in_another_thread():
    """Each thread has its own context."""
    choice = use_backend("strict")
    with ThreadPoolExecutor() as threads:
        with pytest.raises(RuntimeError, match="can be entered only once"):
            threads.submit(choice.__enter__).result()
        with choice, pytest.raises(RuntimeError, match="must be exited in the thread or task that entered it"):
            threads.submit(choice.__exit__, None, None, None).result()
    assert chosen() == "numpy"


@pytest.mark.clause("BACKENDS-context")
def test_choices_do_not_affect_other_threads():
    """A new thread starts without a choice."""
    with use_backend("strict"), ThreadPoolExecutor(1) as thread:
        assert thread.submit(chosen).result() == "numpy"
    with ThreadPoolExecutor(1) as thread:
        thread.submit(use_backend, "strict").result()
        assert [thread.submit(chosen).result(), chosen()] == ["strict", "numpy"]


@pytest.mark.clause("BACKENDS-context")
def test_choices_do_not_affect_other_asyncio_tasks():
    """A task starts with the choice of the context that created it."""

    async def choose(name):
        initial = chosen()
        use_backend(name)
        await asyncio.sleep(0)
        return initial, chosen()

    async def both():
        with use_backend("strict"):
            return [*await asyncio.gather(choose("numpy"), choose("strict")), chosen()]

    assert asyncio.run(both()) == [("strict", "numpy"), ("strict", "strict"), "strict"]
    assert chosen() == "numpy"


# --- files ---


@pytest.mark.clause("BACKENDS-precedence")
def test_the_nearest_configuration_file_has_precedence(tmp_path, monkeypatch):
    """The search goes from the working directory upwards, and skips a pyproject.toml without a table for ampscale."""
    inner = tmp_path / "inner" / "most"
    inner.mkdir(parents=True)
    monkeypatch.chdir(inner)
    (tmp_path / "ampscale.toml").write_text('backend = "numpy"')
    (inner.parent / "pyproject.toml").write_text('[tool.ampscale]\nbackend = "strict"\n[tool.other]\nbackend = 3')
    (inner / "pyproject.toml").write_text('[project]\nname = "mine"')
    assert configured() == ("strict", str(inner.parent / "pyproject.toml"))
    monkeypatch.chdir(tmp_path)
    assert configured() == ("numpy", str(tmp_path / "ampscale.toml"))


def test_configuration_files_are_read_once_for_each_folder(tmp_path):
    """Editing a file during a run does not switch the library. An invalid file is read again, so that it can be corrected."""
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
        ("ampscale.toml", 'bakend = "torch"', ValueError, r"{} must set only 'backend' for ampscale, got \['bakend'\]"),
        (
            "ampscale.toml",
            '[tool.ampscale]\nbackend = "torch"',
            ValueError,
            r"{} must set only 'backend' for ampscale, got \['tool'\]",
        ),
        ("ampscale.toml", "backend = torch", ValueError, r"{} must be readable TOML: .* \(at line 1, column 11\)"),
        ("ampscale.toml", b'backend = "\xff"', ValueError, "{} must be readable TOML: 'utf-8' codec"),
        ("ampscale.toml", 'backend = "nunpy"', ValueError, "{} must name a backend .*, got 'nunpy'. Backends: " + BACKENDS),
        ("pyproject.toml", "[tool.ampscale]\nbackend = true", TypeError, "backend in {} must be a str, got True"),
        ("pyproject.toml", '[tool.ampscale]\nscale = 1\n"" = 2', ValueError, r"{} must set only .*, got \['', 'scale'\]"),
        ("pyproject.toml", 'tool.ampscale = "torch"', TypeError, "ampscale in {} must be a table, got 'torch'"),
        ("pyproject.toml", "tool = 1", TypeError, "tool in {} must be a table, got 1"),
    ],
)
def test_errors_name_the_invalid_file(file, content, error, message, tmp_path):
    """Keys, values or the TOML syntax are invalid. Calls with an array argument do not read the file."""
    (tmp_path / file).write_bytes(content if isinstance(content, bytes) else content.encode())
    for call in (ampscale.get_namespace, RULE.init, lambda: ampscale.all_finite([])):
        with pytest.raises(error, match=message.format(tmp_path / file)):
            call()
    assert ampscale.all_finite([np.ones(1)])


def test_a_removed_working_directory_is_ignored(tmp_path, monkeypatch):
    """The default, NumPy, applies."""
    folder = tmp_path / "removed"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    assert chosen() == "numpy"


# --- invalid values ---


@pytest.mark.clause("BACKENDS-wrong-value")
@pytest.mark.parametrize("name", ["nunpy", "generic", "", "Torch"])
def test_errors_about_unknown_names_list_all_backends(name, monkeypatch):
    """The message starts with the source of the name, and states which backends can be used. The previous choice remains."""
    monkeypatch.setenv("AMPSCALE_BACKEND", "unknown")
    with pytest.raises(ValueError, match=f"^AMPSCALE_BACKEND must name .* got 'unknown'. Backends: {BACKENDS}"):
        RULE.init()
    use_backend("strict")
    with pytest.raises(ValueError, match=rf"^use_backend\(\) must name .* used, got '{name}'. Backends: {BACKENDS}"):
        use_backend(name)
    assert chosen() == "strict"


@pytest.mark.clause("BACKENDS-wrong-value")
def test_names_that_are_not_str_raise():
    """The message lists the names of all backends."""
    for name in (None, 3, np, ["torch"]):
        with pytest.raises(TypeError, match="name must be a str, one of numpy, cupy, torch, jax, strict, generic, got "):
            use_backend(name)


@pytest.mark.clause("BACKENDS-wrong-value")
def test_backends_without_devices_cannot_be_chosen(make_backend):
    """An example is CuPy without a GPU. The driver may also raise an error."""
    register_backend(make_backend("stranded", devices=tuple))
    register_backend(make_backend("wrecked", devices=lambda: 1 // 0))
    reasons = "'stranded': finds no device; .*'wrecked': failed: ZeroDivisionError: .*division"
    for name in ("stranded", "wrecked"):
        with pytest.raises(ValueError, match=f"got '{name}'. Backends: .*; {reasons}"):
            use_backend(name)


# --- imports, in a new interpreter ---

CODE = """
import array_api_strict, sys, types, numpy as np, ampscale

def print_imported():
    print([name for name in ("torch", "jax", "cupy") if name in sys.modules])

ampscale.scale(np.ones(2), 2.0), ampscale.LossScaleRule().init(like=np.ones(1)), ampscale.list_backends()
print_imported()
arrays = ampscale.LossScaleRule().init()[:3]
print(ampscale.get_namespace().__name__, {type(array).__module__.partition(".")[0] for array in arrays})
print_imported()
try:
    ampscale.use_backend("cupy")
except ValueError as error:
    print(error)
print_imported()
sys.modules["cupy"] = types.ModuleType("cupy")
try:
    ampscale.all_finite(array_api_strict.ones(1))
except RuntimeError as error:
    print(error)
print(ampscale.unscale(np.ones(1), 2.0))
"""


@pytest.mark.clause("BACKENDS-wrong-value", "BACKENDS-never-unasked")
def test_libraries_are_imported_only_if_named(tmp_path):
    """
    The environment variable is read when an array is created without an array argument, not before.

    `use_backend` imports the library that it names. If the import fails, the error lists all backends with reasons, without
    importing other libraries. Later, arrays that may belong to the library raise this error too. NumPy arrays do not.
    """
    pytest.importorskip("jax", reason="needs jax")
    (tmp_path / "cupy.py").write_text("raise OSError('libcuda.so: cannot open')")
    completed = python(CODE, tmp_path, AMPSCALE_BACKEND="jax")
    assert completed.returncode == 0, completed.stderr
    at_first, created, imported, message, after_failure, failure, halved = completed.stdout.splitlines()
    assert (at_first, created, imported, after_failure) == ("[]", "jax.numpy {'jaxlib'}", "['jax']", "['jax']")
    assert "got 'cupy'. Backends: 'numpy': can be used; 'cupy': failed: OSError: libcuda.so: cannot open; 'torch': " in message
    assert failure.startswith("the backend 'cupy' failed: ")
    assert halved == "[0.5]"
