"""`ampscale doctor` says what is here: with all libraries, with none, without click, and where something is wrong."""

import json
import os
import subprocess
import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest
from backends.third_party.wheels import install

import ampscale
from ampscale.cli.doctor import main as examine

FACTS = ["backend", "package", "installed", "imported", "version", "devices", "float16", "bfloat16", "gradients", "usable"]
FACTS += ["why_not"]
NAMES = ["numpy", "cupy", "torch", "jax", "generic"]
UNKNOWN = dict.fromkeys(("version", "devices", "float16", "bfloat16", "gradients"))


def run(*arguments, folder=None, paths=None, flags=("-m", "ampscale"), **environment):
    """What `ampscale` does in a fresh interpreter that works in *folder*."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("AMPSCALE")}
    if paths is not None:
        variables["PYTHONPATH"] = os.pathsep.join(map(str, paths))
    return subprocess.run(
        [sys.executable, *flags, *arguments],
        capture_output=True,
        text=True,
        timeout=240,
        cwd=folder,
        env={**variables, **environment},
    )


def examined(*arguments, **how):
    """The facts, and the exit status."""
    done = run("doctor", "--json", *arguments, **how)
    assert "Traceback" not in done.stderr
    return json.loads(done.stdout), done.returncode


def row(facts, name):
    """What is said about one backend."""
    (found,) = (row for row in facts["backends"] if row["backend"] == name)
    return found


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    """The flags and the path of a Python that has this package and its two dependencies, and no site-packages."""
    folder = tmp_path_factory.mktemp("bare")
    for name in ("numpy", "array_api_compat", "ampscale"):
        package = Path(find_spec(name).origin).parent
        (folder / name).symlink_to(package)
        if (libraries := package.with_name(f"{name}.libs")).is_dir():
            (folder / libraries.name).symlink_to(libraries)
    return {"flags": ("-S", "-W", "error", "-m", "ampscale"), "paths": (folder,)}


def beside(bare, *folders):
    """The same Python, with what was installed into *folders*."""
    return {**bare, "paths": (*bare["paths"], *folders)}


def test_everything_that_is_here_is_found(tmp_path):
    """Each fact about each library, as it can be found out otherwise."""
    facts, status = examined(folder=tmp_path)
    assert status == 0
    assert [row["backend"] for row in facts["backends"]] == NAMES
    assert (facts["ampscale"], facts["python"]) == (ampscale.__version__, sys.version.partition(" ")[0])
    assert facts["chosen"] == {"name": "numpy", "source": "default"}
    assert facts["problems"] == []
    for name in ("numpy", "torch", "jax"):
        found = row(facts, name)
        if find_spec(name) is None:
            assert (found["installed"], found["why_not"]) == (False, "not installed")
            continue
        assert found["version"] == version(name)
        assert found["devices"][0].startswith("cpu")
        assert [found[key] for key in ("installed", "float16", "bfloat16", "gradients", "usable")] == [True] * 5
        assert found["imported"] is (name == "numpy")


def test_it_works_where_nothing_else_is_installed(bare):
    """No array library but NumPy, neither ml_dtypes nor autograd, neither click nor rich: the facts, and the same as text."""
    facts, status = examined(**bare)
    assert status == 0
    assert list(facts) == ["ampscale", "python", "chosen", "backends", "problems"]
    assert [list(row) for row in facts["backends"]] == [FACTS] * len(NAMES)
    for name in ("cupy", "torch", "jax"):
        absent = {"backend": name, "package": None, "installed": False, "imported": False}
        assert row(facts, name) == absent | UNKNOWN | {"usable": False, "why_not": "not installed"}
    here = {"devices": ["cpu"], "float16": True, "bfloat16": False, "gradients": False, "usable": True, "why_not": None}
    assert {name: row(facts, "numpy")[name] for name in here} == here
    assert row(facts, "generic")["why_not"] == "creates no arrays"

    done = run("doctor", **bare)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert all(line.isprintable() for line in lines)
    assert (
        " ".join(" ".join(lines[:4]).split()) == f"ampscale {facts['ampscale']} python {facts['python']} chosen numpy by default"
    )
    header, *rows = lines[5:]
    starts = [header.index(column) for column in header.split()]
    for line, backend in zip(rows, facts["backends"], strict=True):
        cells = [line[start:end].strip() for start, end in zip(starts, [*starts[1:], None], strict=True)]
        assert cells == [cell_of(backend, name) for name in header.split()]


def cell_of(backend, name):
    """How a fact looks in the table."""
    if name == "usable":
        return "yes" if backend["usable"] else f"no: {backend['why_not']}"
    value = backend[name]
    if isinstance(value, bool):
        return "yes" if value else "no"
    return (", ".join(value) if isinstance(value, list) else value) or "-"


def test_what_was_imported_before_is_told_apart(bare, pebbles, tmp_path):
    """Asked from a program, it says what that had imported; a library may import another one while it is examined."""
    code = "import pebbles\nfrom ampscale.cli.doctor import main\nmain(['--json'])"
    (tmp_path / "cupy.py").write_text("import torch\nclass ndarray:\n    pass\n")
    (tmp_path / "torch.py").write_text("class Tensor:\n    pass\n")
    facts = json.loads(run(**beside(bare, pebbles, tmp_path) | {"flags": ("-S", "-c", code)}).stdout)
    imported = {each["backend"]: each["imported"] for each in facts["backends"]}
    assert imported == {"numpy": True, "cupy": False, "torch": False, "jax": False, "generic": None, "pebbles": True}


def test_a_wrong_option_is_refused(capsys):
    """Exit status 2, and a line that says how it is used."""
    for arguments in (["--jsn"], ["torch"], ["--json", "torch"]):
        with pytest.raises(SystemExit, match="2"):
            examine(arguments)
        told = capsys.readouterr()
        assert "usage: ampscale doctor [-h] [--json]" in told.err
        assert told.out == ""


def test_the_source_of_the_choice_is_named(bare, tmp_path):
    """The variable, or the path of the file, which the variable comes before."""
    file = tmp_path / "ampscale.toml"
    file.write_text('backend = "numpy"')
    for variables, source in (({}, str(file)), ({"AMPSCALE_BACKEND": "numpy"}, "AMPSCALE_BACKEND")):
        facts, status = examined(folder=tmp_path, **variables, **bare)
        assert (facts["chosen"], status) == ({"name": "numpy", "source": source}, 0)


@pytest.mark.clause("BACKENDS-wrong-value")
def test_a_choice_that_cannot_be_used_is_a_problem(bare, tmp_path):
    """Exit status 1, the error that a program would get, and the rest of the facts; so it is where the file is broken."""
    facts, status = examined(AMPSCALE_BACKEND="torch", **bare)
    assert status == 1
    assert facts["chosen"] == {"name": "torch", "source": "AMPSCALE_BACKEND"}
    (problem,) = facts["problems"]
    assert problem.startswith("AMPSCALE_BACKEND must name a backend that can be used, got 'torch'. Backends: ")
    (tmp_path / "ampscale.toml").write_text("backend = ")
    facts, status = examined(folder=tmp_path, **bare)
    assert status == 1
    assert facts["chosen"] == {"name": None, "source": None}
    assert row(facts, "numpy")["usable"] is True
    done = run("doctor", folder=tmp_path, **bare)
    (problem,) = facts["problems"]
    assert str(tmp_path / "ampscale.toml") in problem
    assert (done.returncode, done.stdout.splitlines()[-1]) == (1, f"problem: {problem}")


@pytest.fixture(scope="module")
def pebbles(tmp_path_factory):
    """A package whose backend works."""
    folder = tmp_path_factory.mktemp("pebbles")
    return install(folder, "ampscale-pebbles", ["pebbles = ampscale_pebbles"], "pebbles.py", "ampscale_pebbles.py")


@pytest.fixture(scope="module")
def quarry(tmp_path_factory):
    """A package whose backend fails."""
    folder = tmp_path_factory.mktemp("quarry")
    return install(folder, "ampscale-quarry", ["quarry = ampscale_quarry"], "quarry.py", "ampscale_quarry.py")


@pytest.mark.clause("BACKENDS-third-party")
def test_a_package_s_backend_is_among_the_others(bare, pebbles):
    """With the package that brings it. Its float16 can be stored, but nothing can be added up: that is no support."""
    facts, status = examined(AMPSCALE_BACKEND="pebbles", **beside(bare, pebbles))
    assert (status, facts["chosen"]["name"]) == (0, "pebbles")
    expected = ["pebbles", "ampscale-pebbles 0.1", True, False, "0.3", ["pile"], False, False, False, True, None]
    assert row(facts, "pebbles") == dict(zip(FACTS, expected, strict=True))


@pytest.mark.clause("BACKENDS-failure-reported")
def test_a_package_s_backend_that_fails_is_a_problem(bare, pebbles, quarry):
    """Exit status 1, the package and the reason; the others are as they were."""
    facts, status = examined(**beside(bare, pebbles, quarry))
    assert status == 1
    found = row(facts, "quarry")
    assert [found[name] for name in ("package", "installed", "version", "usable")] == ["ampscale-quarry 0.1", True, "1.0", False]
    assert found["why_not"] == "failed: ImportError: needs quarry 2, got 1.0"
    assert facts["problems"] == ["the backend 'quarry' of ampscale-quarry 0.1 failed: ImportError: needs quarry 2, got 1.0"]
    assert row(facts, "pebbles")["usable"] is True


@pytest.mark.clause("BACKENDS-failure-reported")
def test_a_package_that_takes_a_name_of_ours_is_a_problem(bare, tmp_path):
    """Ours stays, and the package is told of; a package's backend without its library is not installed, and no problem."""
    install(tmp_path, "ampscale-quarry", ["quarry = ampscale_quarry"], "ampscale_quarry.py")
    facts, status = examined(**beside(bare, tmp_path))
    assert (status, row(facts, "quarry")["why_not"]) == (0, "not installed")
    install(tmp_path, "ampscale-impostor", ["generic = impostor"])
    facts, status = examined(**beside(bare, tmp_path))
    assert status == 1
    assert [row["backend"] for row in facts["backends"]] == [*NAMES[:-1], "quarry", "generic"]
    assert row(facts, "generic")["package"] is None
    assert facts["problems"] == ["ampscale-impostor 0.1 brings a backend called 'generic', which is taken"]


def test_a_library_that_is_broken_is_listed_with_the_reason(bare, tmp_path):
    """No problem as long as nobody chooses it. What it prints does not get between the facts."""
    (tmp_path / "jax.py").write_text("print('hello')\nraise OSError('no such driver')")
    facts, status = examined(**beside(bare, tmp_path))
    assert (status, facts["problems"]) == (0, [])
    found = row(facts, "jax")
    assert (found["installed"], found["usable"], found["why_not"]) == (True, False, "failed: OSError: no such driver")
    _, status = examined(AMPSCALE_BACKEND="jax", **beside(bare, tmp_path))
    assert status == 1
