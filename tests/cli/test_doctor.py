"""`ampscale doctor`: its report with all libraries, with NumPy only, without click, and with problems."""

import json
import os
import subprocess
import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest
from backends.third_party.wheels import install

import ampscale
from ampscale.backends.cpu.fused import KernelChoice
from ampscale.cli import doctor

FACTS = ["backend", "package", "installed", "imported", "version", "devices", "float16", "bfloat16", "gradients", "usable"]
FACTS += ["why_not"]
NAMES = ["numpy", "cupy", "torch", "jax", "generic"]
UNKNOWN = dict.fromkeys(("version", "devices", "float16", "bfloat16", "gradients"))


def run(*arguments, folder=None, paths=None, flags=("-m", "ampscale"), **environment):
    """Run `ampscale` in a new process with the working directory *folder*."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("AMPSCALE")}
    if paths is not None:
        variables["PYTHONPATH"] = os.pathsep.join(map(str, paths))
    options = {"capture_output": True, "text": True, "timeout": 240, "cwd": folder, "env": {**variables, **environment}}
    return subprocess.run([sys.executable, *flags, *arguments], **options)


def examined(*arguments, **options):
    """Return the JSON report and the exit code of `ampscale doctor`."""
    done = run("doctor", "--json", *arguments, **options)
    assert "Traceback" not in done.stderr
    return json.loads(done.stdout), done.returncode


def row(facts, name):
    """Return the facts about one backend."""
    (result,) = (row for row in facts["backends"] if row["backend"] == name)
    return result


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    """Return flags and paths for a Python without site-packages, but with this package and its two dependencies."""
    folder = tmp_path_factory.mktemp("bare")
    for name in ("numpy", "array_api_compat", "ampscale"):
        package = Path(find_spec(name).origin).parent
        (folder / name).symlink_to(package)
        if (libraries := package.with_name(f"{name}.libs")).is_dir():
            (folder / libraries.name).symlink_to(libraries)
    return {"flags": ("-S", "-W", "error", "-m", "ampscale"), "paths": (folder,)}


@pytest.fixture(scope="module")
def facts(bare):
    """Return the facts that are reported without optional packages."""
    report, status = examined(**bare)
    assert status == 0
    return report


def beside(bare, *folders):
    """Return *bare* with the packages that were installed into *folders*."""
    return {**bare, "paths": (*bare["paths"], *folders)}


@pytest.mark.slow
def test_report_has_all_installed_libraries(tmp_path):
    """NumPy is the default, and alone already imported. The versions are those of the installed distributions."""
    facts, status = examined(folder=tmp_path)
    assert status == 0
    assert [row["backend"] for row in facts["backends"]] == NAMES
    assert (facts["ampscale"], facts["python"]) == (ampscale.__version__, sys.version.partition(" ")[0])
    assert facts["chosen"] == {"name": "numpy", "source": "default"}
    assert facts["problems"] == []
    for name in ("numpy", "torch", "jax"):
        entry = row(facts, name)
        if find_spec(name) is None:
            assert (entry["installed"], entry["why_not"]) == (False, "not installed")
            continue
        assert entry["version"] == version(name)
        assert entry["devices"][0].startswith("cpu")
        assert [entry[key] for key in ("installed", "float16", "bfloat16", "gradients", "usable")] == [True] * 5
        assert entry["imported"] is (name == "numpy")


def test_doctor_requires_no_optional_package(facts):
    """Without these packages, facts about their libraries are null, and each library has a reason why it is not usable."""
    assert list(facts) == ["ampscale", "python", "chosen", "kernels", "cuda_kernels", "backends", "problems"]
    assert facts["kernels"] == {"name": "numpy", "reason": "numba cannot be used: No module named 'numba'"}
    assert facts["cuda_kernels"] is None
    assert [list(row) for row in facts["backends"]] == [FACTS] * len(NAMES)
    for name in ("cupy", "torch", "jax"):
        absent = {"backend": name, "package": None, "installed": False, "imported": False}
        assert row(facts, name) == absent | UNKNOWN | {"usable": False, "why_not": "not installed"}
    numpy_facts = {"devices": ["cpu"], "float16": True, "bfloat16": False, "gradients": False, "usable": True, "why_not": None}
    assert {name: row(facts, "numpy")[name] for name in numpy_facts} == numpy_facts
    assert row(facts, "generic")["why_not"] == "creates no arrays"


def test_text_has_the_facts_of_the_json(facts):
    """The text has a table, and a remark on each backend that is not usable, in 80 columns."""
    lines = doctor.text(facts).splitlines()
    assert all(line.isprintable() for line in lines)
    summary = f"ampscale {facts['ampscale']} python {facts['python']} chosen numpy by default"
    assert " ".join(" ".join(lines[:5]).split()) == f"{summary} kernels numpy ({facts['kernels']['reason']})"
    assert max(map(len, lines)) <= 80
    header, *rows = lines[6:-5]
    assert lines[-5:] == ["", *(f"{backend['backend']}: {backend['why_not']}" for backend in facts["backends"][1:])]
    assert header.split() == ["backend", "version", "imported", *FACTS[5:10]]
    assert rows[0].split() == ["numpy", row(facts, "numpy")["version"], "yes", "cpu", "yes", "no", "no", "yes"]
    assert [line.split() for line in rows[1:-1]] == [[name, "-", "no", *"----", "no"] for name in ("cupy", "torch", "jax")]
    assert rows[-1].split() == ["generic", *"------", "no"]
    assert [line[header.index("usable") :] for line in rows] == ["yes", *["no"] * 4]


def test_kernels_for_cuda_tensors_are_reported(monkeypatch):
    """The text names the library whose kernels are used, and the reason for this choice."""
    pytest.importorskip("torch")
    from ampscale.backends.torch import cuda_launches

    monkeypatch.setattr(doctor, "load", lambda _: SimpleNamespace(devices=lambda: ("cpu", "cuda:0")))
    for module, name in ((None, "torch"), (cuda_launches, "cupy")):
        monkeypatch.setattr(cuda_launches, "kernel_choice_host", lambda module=module: KernelChoice(module, "a reason"))
        report = {"ampscale": "1", "python": "3", "chosen": {"name": "numpy", "source": "default"}, "kernels": {"name": None}}
        report |= {"cuda_kernels": doctor._cuda_kernels(), "backends": [], "problems": []}
        assert f"cuda kernels  {name} (a reason)" in doctor.text(report)


def test_imported_is_true_for_earlier_imports_only(bare, pebbles, tmp_path):
    """A library that another library imports while the report is made is not reported as imported."""
    code = "import pebbles\nfrom ampscale.cli.doctor import main\nmain(['--json'])"
    (tmp_path / "cupy.py").write_text("import torch\nclass ndarray:\n    pass\n")
    (tmp_path / "torch.py").write_text("class Tensor:\n    pass\n")
    facts = json.loads(run(**beside(bare, pebbles, tmp_path) | {"flags": ("-S", "-c", code)}).stdout)
    imported = {backend["backend"]: backend["imported"] for backend in facts["backends"]}
    assert imported == {"numpy": True, "cupy": False, "torch": False, "jax": False, "generic": None, "pebbles": True}


@pytest.mark.clause("BACKENDS-wrong-value")
def test_unusable_choice_is_a_problem(bare, tmp_path):
    """The exit code is 1, and the problem is the error that a program would get. An invalid file is a problem, too."""
    done = run("doctor", AMPSCALE_BACKEND="torch", **bare)
    assert (done.returncode, done.stderr) == (1, "")
    text = " ".join(done.stdout.split())
    assert " chosen torch by AMPSCALE_BACKEND " in text
    assert " problem: AMPSCALE_BACKEND must name a backend that can be used, got 'torch'. Backends: " in text
    (tmp_path / "ampscale.toml").write_text("backend = ")
    facts, status = examined(folder=tmp_path, **bare)
    assert (status, facts["chosen"]) == (1, {"name": None, "source": None})
    assert row(facts, "numpy")["usable"] is True
    (problem,) = facts["problems"]
    assert str(tmp_path / "ampscale.toml") in problem


@pytest.fixture(scope="module")
def pebbles(tmp_path_factory):
    """Install a package whose backend works."""
    folder = tmp_path_factory.mktemp("pebbles")
    return install(folder, "ampscale-pebbles", ["pebbles = ampscale_pebbles"], "pebbles.py", "ampscale_pebbles.py")


@pytest.mark.clause("BACKENDS-third-party")
def test_backend_of_a_package_is_listed(bare, pebbles):
    """It can be chosen. Its float16 arrays cannot be added, so float16 is not supported."""
    facts, status = examined(AMPSCALE_BACKEND="pebbles", **beside(bare, pebbles))
    assert (status, facts["chosen"]["name"]) == (0, "pebbles")
    expected = ["pebbles", "ampscale-pebbles 0.1", True, False, "0.3", ["pile"], False, False, False, True, None]
    assert row(facts, "pebbles") == dict(zip(FACTS, expected, strict=True))


@pytest.mark.clause("BACKENDS-failure-reported")
def test_failing_backend_of_a_package_is_a_problem(bare, pebbles, tmp_path):
    """The exit code is 1, and the problem names the package and the reason. Other backends are usable."""
    quarry = install(tmp_path, "ampscale-quarry", ["quarry = ampscale_quarry"], "quarry.py", "ampscale_quarry.py")
    facts, status = examined(**beside(bare, pebbles, quarry))
    assert status == 1
    entry = row(facts, "quarry")
    assert [entry[name] for name in ("package", "installed", "version", "usable")] == ["ampscale-quarry 0.1", True, "1.0", False]
    assert entry["why_not"] == "failed: ImportError: needs quarry 2, got 1.0"
    assert facts["problems"] == ["the backend 'quarry' of ampscale-quarry 0.1 failed: ImportError: needs quarry 2, got 1.0"]
    assert row(facts, "pebbles")["usable"] is True


@pytest.mark.clause("BACKENDS-failure-reported")
def test_backend_of_a_package_with_a_reserved_name_is_a_problem(bare, tmp_path):
    """The backend of ampscale is used. A backend whose library is not installed is not a problem."""
    install(tmp_path, "ampscale-quarry", ["quarry = ampscale_quarry"], "ampscale_quarry.py")
    install(tmp_path, "ampscale-impostor", ["generic = impostor"])
    facts, status = examined(**beside(bare, tmp_path))
    assert (status, row(facts, "quarry")["why_not"]) == (1, "not installed")
    assert [row["backend"] for row in facts["backends"]] == [*NAMES[:-1], "quarry", "generic"]
    assert row(facts, "generic")["package"] is None
    assert facts["problems"] == ["ampscale-impostor 0.1 registers the backend 'generic', which ampscale reserves"]


def test_broken_library_is_listed_with_the_reason(bare, tmp_path):
    """The library is a problem only because it is chosen. Its output at import does not appear on stdout."""
    (tmp_path / "jax.py").write_text("print('hello')\nraise OSError('no such driver')")
    facts, status = examined(AMPSCALE_BACKEND="jax", **beside(bare, tmp_path))
    entry = row(facts, "jax")
    assert (entry["installed"], entry["usable"], entry["why_not"]) == (True, False, "failed: OSError: no such driver")
    (problem,) = facts["problems"]
    assert (status, problem.partition(",")[0]) == (1, "AMPSCALE_BACKEND must name a backend that can be used")
