"""Loading of adapters by name, and the errors for names that cannot be loaded."""

import importlib
import sys

import pytest
from ampscale_conformance.adapters import SHIPPED
from ampscale_conformance.adapters.loading import GROUP, NotFound, find, installed, name_of

CLASS = """
from ampscale_conformance import ImplementationInfo


class Adapter:
    info = ImplementationInfo(name="mine")
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Return an empty current directory; modules imported from it are removed afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    known = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - known:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]
    importlib.invalidate_caches()


def error_of(name):
    """Return the message of the error for a name."""
    with pytest.raises(NotFound) as caught:
        find(name)
    return str(caught.value)


@pytest.mark.parametrize("name", ["ADAPTER", "Namespace.adapter", "Adapter", "make", "CALLED"])
def test_find_loads_an_adapter_from_a_module(folder, name):
    """
    The module is in a package. Classes and functions are called; an object with an info is not.

    The name of the adapter is found, too, and the current directory is added to the import path once.
    """
    (folder / "pack").mkdir()
    (folder / "pack" / "inner.py").write_text(f"""{CLASS}
    def __call__(self):
        raise ValueError

class Namespace:
    adapter = Adapter()

def make():
    return Adapter()

ADAPTER = CALLED = Adapter()
""")
    adapter = find(f"pack.inner:{name}")
    assert type(adapter) is sys.modules["pack.inner"].Adapter
    is_called = name in ("Adapter", "make")
    for same_name in (f"pack.inner:{name}", name_of(adapter)):
        assert (find(same_name) is not adapter) == is_called
    assert sys.path.count(str(folder)) == 1


def test_find_searches_a_given_folder(folder):
    """The folder is not the current one."""
    (folder / "other").mkdir()
    (folder / "other" / "elsewhere.py").write_text(CLASS)
    assert find("elsewhere:Adapter", folder / "other").info.name == "mine"


@pytest.mark.parametrize(
    ("text", "name", "message"),
    [
        ("", "absent:ADAPTER", "absent:ADAPTER: no module absent in "),
        ("", "there.is.none:ADAPTER", "no module there.is"),
        ("", "there.py:ADAPTER", "write the module without .py"),
        ("import unheard_of", "there:ADAPTER", "importing there raised ModuleNotFoundError: No module named 'unheard_of'"),
        ("import there.sub", "there:ADAPTER", "importing there raised ModuleNotFoundError"),
        ("x = 1\n1 / 0", "there:ADAPTER", "importing there raised ZeroDivisionError: division by zero ("),
        ("def broken(:", "there:ADAPTER", "importing there raised SyntaxError"),
        ("raise SystemExit(3)", "there:ADAPTER", "importing there raised SystemExit: 3"),
        ("a = b = 1\n_c = 2", "there:ADAPTER", "module there has no ADAPTER; it has a, b"),
        ("", "there:ADAPTER", "there has no ADAPTER; it has no public name"),
        ("ADAPTER = 3", "there:ADAPTER", "expected an adapter with an ImplementationInfo as info, got 3 with the info None"),
        ("class ADAPTER:\n    info = 'mine'", "there:ADAPTER", "with the info 'mine'"),
        ("def ADAPTER(name): ...", "there:ADAPTER", "there:ADAPTER: a call without arguments raised TypeError: "),
        ("", "there:", "expected an adapter as pkg.mod:NAME, got 'there:'"),
        ("", ":ADAPTER", "expected an adapter as pkg.mod:NAME, got ':ADAPTER'"),
        (
            "",
            "there",
            "no installed adapter is named 'there'; an adapter in a module is written pkg.mod:NAME (installed: ampscale-",
        ),
    ],
)
def test_an_invalid_name_or_module_raises_not_found(folder, text, name, message):
    """The message contains the expected and the actual value."""
    (folder / "there.py").write_text(text)
    assert message in error_of(name)


def test_an_error_names_the_line_that_raised_it(folder):
    """The line is the last one outside Python's import machinery and the suite. A KeyboardInterrupt propagates."""
    (folder / "failing.py").write_text("\n\nraise OSError('no device')\n")
    assert error_of("failing:ADAPTER").endswith(f"OSError: no device ({folder / 'failing.py'}, line 3)")
    (folder / "invalid.py").write_text(
        "import ampscale_conformance\n\nampscale_conformance.ImplementationInfo(name='a', level=7)\n"
    )
    assert error_of("invalid:ADAPTER").endswith(f"got 7 ({folder / 'invalid.py'}, line 3)")
    (folder / "stopped.py").write_text("raise KeyboardInterrupt\n")
    with pytest.raises(KeyboardInterrupt):
        find("stopped:ADAPTER")


# --- installed adapters ---


@pytest.fixture
def package(folder):
    """Create a distribution with three adapters, one of which has the name of a shipped adapter."""
    metadata = folder / "provider-1.5.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: provider\nVersion: 1.5\n")
    (metadata / "entry_points.txt").write_text(
        f"[{GROUP}]\nzebra = provider.inner:ADAPTER\nape = provider.inner:Adapter\ntorch = provider:NO\n"
    )
    (folder / "provider").mkdir()
    (folder / "provider" / "__init__.py").write_text("")
    (folder / "provider" / "inner.py").write_text(CLASS + "ADAPTER = Adapter()\n")
    sys.path.insert(0, str(folder))
    return folder


@pytest.mark.usefixtures("package")
def test_installed_adapters_are_listed_in_order():
    """Shipped adapters come first, then the others by name. None is imported, and none replaces a shipped adapter."""
    entries = installed()
    assert [entry.name for entry in entries][: len(SHIPPED)] == list(SHIPPED)
    assert [(entry.name, entry.dist.name) for entry in entries[len(SHIPPED) :]] == [("ape", "provider"), ("zebra", "provider")]
    assert next(entry.value for entry in entries if entry.name == "torch") == SHIPPED["torch"]
    assert "provider" not in sys.modules


@pytest.mark.usefixtures("package")
def test_an_installed_adapter_is_found_by_its_name():
    """The error for a misspelled name contains the nearest name."""
    assert find("zebra") is sys.modules["provider.inner"].ADAPTER
    assert "named 'zebras'; did you mean zebra? an adapter in a module is written pkg.mod:NAME (" in error_of("zebras")
