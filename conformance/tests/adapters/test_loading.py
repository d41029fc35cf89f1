"""An adapter is found by its name, and what is not found is said with what was wanted and what there is."""

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
def here(tmp_path, monkeypatch):
    """An empty current directory; what is imported from it is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    known = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - known:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]
    importlib.invalidate_caches()


def refused(name):
    """The words in which a name is refused."""
    with pytest.raises(NotFound) as caught:
        find(name)
    return str(caught.value)


@pytest.mark.parametrize("name", ["ADAPTER", "Held.adapter", "Adapter", "make", "CALLED"])
def test_an_adapter_is_found_in_a_module(here, name):
    """It lies in a package of the current directory; a class or a function is called, and what has an info is not."""
    (here / "pack").mkdir()
    (here / "pack" / "inner.py").write_text(f"""{CLASS}
    def __call__(self):
        raise ValueError

class Held:
    adapter = Adapter()

def make():
    return Adapter()

ADAPTER = CALLED = Adapter()
""")
    found = find(f"pack.inner:{name}")
    assert type(found) is sys.modules["pack.inner"].Adapter
    assert (find(f"pack.inner:{name}") is found) == (name not in ("Adapter", "make"))
    assert (find(name_of(found)) is found) == (name not in ("Adapter", "make"))
    assert sys.path.count(str(here)) == 1


def test_an_adapter_is_found_in_a_given_folder(here):
    """Where the current directory is another one."""
    (here / "other").mkdir()
    (here / "other" / "elsewhere.py").write_text(CLASS)
    assert find("elsewhere:Adapter", here / "other").info.name == "mine"


@pytest.mark.parametrize(
    ("text", "name", "wanted"),
    [
        ("", "absent:ADAPTER", "absent:ADAPTER: no module absent in "),
        ("", "there.is.none:ADAPTER", "no module there.is"),
        ("import unheard_of", "there:ADAPTER", "importing there raised ModuleNotFoundError: No module named 'unheard_of'"),
        ("import there.sub", "there:ADAPTER", "importing there raised ModuleNotFoundError"),
        ("x = 1\n1 / 0", "there:ADAPTER", "importing there raised ZeroDivisionError: division by zero ("),
        ("def broken(:", "there:ADAPTER", "importing there raised SyntaxError"),
        ("raise SystemExit(3)", "there:ADAPTER", "importing there raised SystemExit: 3"),
        ("a = b = 1\n_c = 2", "there:ADAPTER", "there has no ADAPTER; it has a, b"),
        ("", "there:ADAPTER", "there has no ADAPTER; it has no public name"),
        ("ADAPTER = 3", "there:ADAPTER", "expected an adapter with an ImplementationInfo as info, got 3 with the info None"),
        ("class ADAPTER:\n    info = 'mine'", "there:ADAPTER", "with the info 'mine'"),
        ("def ADAPTER(name): ...", "there:ADAPTER", "calling it without arguments raised TypeError: "),
        ("", "there:", "expected an adapter as pkg.mod:NAME, got 'there:'"),
        ("", ":ADAPTER", "expected an adapter as pkg.mod:NAME, got ':ADAPTER'"),
        ("", "there", "no installed adapter is named 'there' (installed: "),
    ],
)
def test_what_is_no_adapter_is_refused(here, text, name, wanted):
    """In words that say what was wanted, and what came."""
    (here / "there.py").write_text(text)
    assert wanted in refused(name)


def test_an_error_names_the_line_that_raised_it(here):
    """The last one outside of Python's own import machinery; an interrupt is none, and ends what is going on."""
    (here / "failing.py").write_text("\n\nraise OSError('no device')\n")
    assert refused("failing:ADAPTER").endswith(f"OSError: no device ({here / 'failing.py'}, line 3)")
    (here / "stopped.py").write_text("raise KeyboardInterrupt\n")
    with pytest.raises(KeyboardInterrupt):
        find("stopped:ADAPTER")


# --- installed ones ---


@pytest.fixture
def package(here):
    """A package that brings two adapters, one of which has a name that is taken."""
    folder = here / "strange-1.5.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: strange\nVersion: 1.5\n")
    (folder / "entry_points.txt").write_text(
        f"[{GROUP}]\nzebra = strange.inner:ADAPTER\nape = strange.inner:Adapter\ntorch = strange:NO\n"
    )
    (here / "strange").mkdir()
    (here / "strange" / "__init__.py").write_text("")
    (here / "strange" / "inner.py").write_text(CLASS + "ADAPTER = Adapter()\n")
    sys.path.insert(0, str(here))
    return here


@pytest.mark.usefixtures("package")
def test_installed_adapters_are_listed_in_order():
    """Those that ship, then the others by name; none is imported for it, and none takes a name that ships."""
    found = installed()
    assert [entry.name for entry in found][: len(SHIPPED)] == list(SHIPPED)
    assert [(entry.name, entry.dist.name) for entry in found[len(SHIPPED) :]] == [("ape", "strange"), ("zebra", "strange")]
    assert next(entry.value for entry in found if entry.name == "torch") == SHIPPED["torch"]
    assert "strange" not in sys.modules
    assert find("zebra") is sys.modules["strange.inner"].ADAPTER
    assert "ape, zebra); an adapter in a module is written pkg.mod:NAME" in refused("zebras")
