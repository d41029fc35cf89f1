"""The command line is light, takes commands from other packages, and says what it lacks."""

import importlib.metadata
import os
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

import ampscale
from ampscale.cli import app
from ampscale.cli.app import main

LOADED = []  # the entry points of `brought` that were loaded
shouts = click.Command("shouts", callback=lambda: click.echo("Heard."), help="Say something.", short_help="Say something.")


class Point(importlib.metadata.EntryPoint):
    """An entry point that remembers that it was loaded."""

    def load(self):
        LOADED.append(self.name)
        return super().load()


@pytest.fixture
def brought(monkeypatch):
    """Sets the commands that other packages bring: names, and the objects that they stand for."""

    def bring(**commands):
        LOADED.clear()
        points = importlib.metadata.EntryPoints(Point(name, target, app.GROUP) for name, target in commands.items())
        monkeypatch.setattr(app, "entry_points", points.select)

    return bring


def invoke(*arguments):
    """The exit code and all output of `ampscale` with these arguments."""
    result = CliRunner().invoke(main, arguments)
    return result.exit_code, result.output


def python(code):
    """What a fresh Python does with *code*."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)


def test_help_imports_neither_matplotlib_nor_sklearn():
    """What a command needs is imported when it runs."""
    heavy = {"matplotlib", "sklearn", "rich", "autograd", "scipy"}
    done = python(
        "import sys\nfrom ampscale.cli.app import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit as end:\n    assert end.code == 0\n"
        f"print('imported', sorted({heavy} & set(sys.modules)))"
    )
    assert done.returncode == 0, done.stderr
    assert "demo" in done.stdout
    assert done.stdout.splitlines()[-1] == "imported []"


@pytest.mark.parametrize(
    ("module", "command", "extra"),
    [("click", "--help", "cli"), ("sklearn", "demo", "demo")],
)
def test_a_missing_package_is_one_line_that_names_the_extra(module, command, extra):
    """No traceback: the package, and what to type."""
    done = python(f"import sys\nsys.modules['{module}'] = None\nfrom ampscale.cli.app import main\nmain(['{command}'])")
    assert done.returncode == 1
    assert done.stderr.splitlines() == [f'ampscale: {module} is not installed: pip install "ampscale[{extra}]"']
    assert done.stdout == ""


def test_python_m_is_the_same_command():
    """``python -m ampscale --version`` prints what ``ampscale --version`` does: the version of the package."""
    done = subprocess.run([sys.executable, "-m", "ampscale", "--version"], capture_output=True, text=True, timeout=120)
    assert done.stdout == f"ampscale, version {ampscale.__version__}\n"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("presets > /dev/full", "ampscale: [Errno 28] No space left on device\n"),
        ("doctor > /dev/full", "ampscale: [Errno 28] No space left on device\n"),
        ("presets >&-", "ampscale: stdout must be open\n"),
        (f"simulate torch --trace x --picture {'x' * 300}.svg", "ampscale: [Errno 36] File name too long: '/"),
        ("doctor | :", ""),
    ],
)
def test_what_the_system_refuses_to_write_is_one_line(command, said):
    """The exit code is not 0; a reader that has gone ends a command in silence."""
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", f"{sys.executable} -m ampscale {command}"], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 1
    assert done.stderr.startswith(said)
    assert (done.stderr.count("\n"), done.stdout) == (1 if said else 0, "")


def test_commands_of_other_packages_are_listed_and_run(brought):
    """In the order of their names among the library's own, each with its short help."""
    brought(shouts="cli.test_app:shouts", convert="cli.test_app:shouts")
    code, text = invoke("--help")
    names = [line.split()[0] for line in text.partition("Commands:\n")[2].splitlines() if line.startswith("  ")]
    assert code == 0
    assert names == ["compare", "convert", "demo", "doctor", "identify", "presets", "shouts", "simulate"]
    assert "shouts    Say something." in text
    assert invoke("shouts") == (0, "Heard.\n")


def test_a_command_is_loaded_only_when_it_is_named_or_listed(brought):
    """Other commands do not pay for it, and a name of the library's own is never looked for elsewhere."""
    brought(shouts="cli.test_app:shouts", presets="cli.test_app:shouts")
    assert "mindspore" in invoke("presets")[1]
    assert invoke("--version")[0] == 0
    assert LOADED == []
    invoke("shouts")
    assert LOADED == ["shouts"]
    invoke("--help")
    assert LOADED == ["shouts", "shouts"]


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("no.such.module:command", "cannot be loaded: ModuleNotFoundError: No module named 'no'"),
        ("cli.test_app:nothing", "cannot be loaded: AttributeError: module 'cli.test_app' has no attribute 'nothing'"),
        ("cli.test_app:LOADED", "must be a click command, got list"),
    ],
)
def test_a_command_that_cannot_be_loaded_is_one_line(brought, target, reason):
    """Whatever its arguments are; `ampscale --help` lists it with the reason, and the other commands work."""
    brought(broken=target, shouts="cli.test_app:shouts")
    for arguments in ([], ["--help"], ["--option", "word"]):
        assert invoke("broken", *arguments) == (1, f"ampscale: the command broken {reason}\n")
    code, text = invoke("--help")
    assert code == 0
    assert "  broken    the command broken " in text
    assert "  shouts    Say something." in text


def test_a_failing_command_names_its_package(brought, monkeypatch):
    """With the version, where the entry point is of an installed distribution."""
    brought(broken="no.such.module:command")
    monkeypatch.setattr(Point, "dist", importlib.metadata.distribution("click"))
    told = f"the command broken of click {importlib.metadata.version('click')} cannot be loaded"
    assert told in invoke("broken")[1]


def test_conform_without_the_suite_says_what_to_install(brought):
    """It is not listed then; any other unknown name is an error of usage."""
    brought()
    assert invoke("conform", "--impl", "x") == (1, "ampscale: conform is not installed: pip install ampscale-conformance\n")
    assert "conform" not in invoke("--help")[1]
    code, text = invoke("conforms")
    assert (code, "No such command 'conforms'" in text) == (2, True)


def test_a_wrong_option_is_refused_before_anything_is_written(tmp_path):
    """Exit code 2, and a line that names the option; a file is no folder to write to."""
    out, file = tmp_path / "demo", tmp_path / "file"
    file.touch()
    for option, value in (("--steps", "0"), ("--steps", "1.5"), ("--seed", "-1"), ("--mode", "fast"), ("--out", str(file))):
        code, text = invoke("demo", "--out", str(out), option, value)
        assert (code, option in text) == (2, True)
        assert not out.exists()
