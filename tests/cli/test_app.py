"""The command line: imports, commands of other packages, errors, help and shell completion."""

import importlib.metadata
import io
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import click
import numpy as np
import pytest
from cli.run_samples import write_run
from click.testing import CliRunner
from safetensors.numpy import save_file

import ampscale
from ampscale import cli
from ampscale.cli import app
from ampscale.cli.app import main

COMMANDS = ["compare", "convert", "demo", "diagnose", "doctor", "identify", "presets", "report", "simulate", "suggest", "watch"]
TOO_LONG = f"simulate torch --trace x --picture {'x' * 300}.svg"
LOADED = []  # names of the entry points that were loaded
greet = click.Command("greet", callback=lambda: click.echo("Hello."), help="Print a greeting.", short_help="Print a greeting.")


class Point(importlib.metadata.EntryPoint):
    """Entry point that records that it was loaded."""

    def load(self):
        LOADED.append(self.name)
        return super().load()


@pytest.fixture
def third_party(monkeypatch):
    """Return a function that registers commands of other packages by name and import path."""

    def register(**commands):
        LOADED.clear()
        points = importlib.metadata.EntryPoints(Point(name, target, app.GROUP) for name, target in commands.items())
        monkeypatch.setattr(app, "entry_points", points.select)

    return register


def invoke(*arguments):
    """Return the exit code and all output of `ampscale` with these arguments."""
    result = CliRunner().invoke(main, arguments)
    return result.exit_code, result.output


def python(*arguments, **settings):
    """Run Python in a new process."""
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=120, **settings)


def test_help_imports_no_optional_package():
    """Each command imports the packages that it needs when it runs."""
    heavy = {"matplotlib", "sklearn", "rich", "autograd", "scipy"}
    code = f"import sys, atexit\natexit.register(lambda: print('imported', {heavy} & set(sys.modules)))\n"
    done = python("-c", code + "from ampscale.cli.app import main\nmain(['--help'])")
    assert done.returncode == 0, done.stderr
    assert "demo" in done.stdout
    assert done.stdout.splitlines()[-1] == "imported set()"


@pytest.mark.parametrize(
    ("missing", "module", "arguments", "message"),
    [
        ("click", "ampscale.cli.app", "--help", 'click is not installed: pip install "ampscale[cli]"'),
        ("click", "ampscale.cli.app", "conform --list", "conform is not installed: pip install ampscale-conformance"),
        ("sklearn", "ampscale.cli.demo.digits", "demo", 'sklearn is not installed: pip install "ampscale[demo]"'),
    ],
)
def test_missing_package_exits_with_2_and_names_what_to_install(monkeypatch, capsys, missing, module, arguments, message):
    """There is no traceback. The suite installs click, so `conform` does not require the extra."""
    monkeypatch.setitem(sys.modules, missing, None)
    monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setattr(sys, "argv", ["ampscale", *arguments.split()])
    with pytest.raises(SystemExit, match="2"):
        cli.main()
    assert capsys.readouterr() == ("", f"ampscale: {message}\n")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize(
    ("redirection", "message"), [("> /dev/full", "ampscale: [Errno 28] No space left on device\n"), ("| :", "")]
)
def test_failed_write_is_reported_in_one_line(redirection, message):
    """The exit code is 1. A broken pipe ends a command without a message."""
    bash = ["bash", "-o", "pipefail", "-c", f"{sys.executable} -m ampscale presets {redirection}"]
    done = subprocess.run(bash, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", message)


@pytest.mark.parametrize(
    ("stdout", "run", "message"),
    [
        (io.StringIO(), lambda: signal.default_int_handler(signal.SIGINT, None), "^Aborted!$"),
        (io.StringIO(), lambda: main(TOO_LONG.split()), r"^ampscale: \[Errno 36\] File name too long: '/.*$"),
        (None, str, "^ampscale: stdout must be open$"),
    ],
    ids=["interrupt", "error", "no stdout"],
)
def test_error_outside_of_a_command_is_reported_in_one_line(monkeypatch, stdout, run, message):
    """The interrupt or error can come before click runs, as during imports, or from `doctor`, which does not use click."""
    monkeypatch.setattr(sys, "stdout", stdout)
    monkeypatch.setattr(cli, "_run", run)
    with pytest.raises(SystemExit, match=message):
        cli.main()


def test_characters_that_stdout_cannot_encode_are_escaped(tmp_path):
    """On Windows, files and pipes have an encoding such as cp1252, which lacks the blocks of `watch`."""
    write_run(tmp_path / "run.jsonl", 40)
    environment = os.environ | {"PYTHONIOENCODING": "cp1252"}
    done = python("-m", "ampscale", "watch", str(tmp_path / "run.jsonl"), "--once", env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert r"\u2588" in done.stdout


def test_commands_of_other_packages_are_listed_and_run(third_party):
    """All commands are sorted by name. A command of ampscale takes precedence."""
    third_party(greet="cli.test_app:greet", convert="cli.test_app:greet")
    code, text = invoke("--help")
    listed = text.partition("Commands:\n")[2].partition("\n\n")[0].splitlines()
    assert (code, [line.split()[0] for line in listed]) == (0, sorted([*COMMANDS, "greet"]))
    assert "greet     Print a greeting." in text
    assert invoke()[1] == text
    assert invoke("greet") == (0, "Hello.\n")


def test_command_of_a_package_is_loaded_only_when_it_is_named_or_listed(third_party):
    """Other commands do not import the package, and it cannot replace a command of ampscale."""
    third_party(greet="cli.test_app:greet", presets="cli.test_app:greet")
    assert "mindspore" in invoke("presets")[1]
    assert invoke("--version") == (0, f"ampscale, version {ampscale.__version__}\n")
    assert LOADED == []
    invoke("greet")
    assert LOADED == ["greet"]
    invoke("--help")
    assert LOADED == ["greet", "greet"]


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("no.such.module:command", "cannot be loaded: ModuleNotFoundError: No module named 'no'"),
        ("cli.test_app:nothing", "cannot be loaded: AttributeError: module 'cli.test_app' has no attribute 'nothing'"),
        ("cli.test_app:LOADED", "must be a click command, got list"),
    ],
)
def test_command_that_cannot_be_loaded_is_reported_in_one_line(third_party, target, reason):
    """The error is the same for any arguments. `ampscale --help` lists the reason and the other commands."""
    third_party(broken=target, greet="cli.test_app:greet")
    for arguments in ([], ["--help"], ["--option", "word"]):
        assert invoke("broken", *arguments) == (1, f"ampscale: the command broken {reason}\n")
    code, text = invoke("--help")
    assert code == 0
    assert "  broken    the command broken " in text
    assert "  greet     Print a greeting." in text


def test_error_of_a_command_that_cannot_be_loaded_names_its_package(third_party, monkeypatch):
    third_party(broken="no.such.module:command")
    monkeypatch.setattr(Point, "dist", importlib.metadata.distribution("click"))
    message = f"the command broken of click {importlib.metadata.version('click')} cannot be loaded"
    assert message in invoke("broken")[1]


def test_conform_without_the_suite_names_the_package(third_party):
    """The exit code is 2, and the command is not listed."""
    third_party()
    assert invoke("conform", "--impl", "x") == (2, "ampscale: conform is not installed: pip install ampscale-conformance\n")
    assert "conform" not in invoke("--help")[1]


def test_invalid_option_is_rejected_before_anything_is_written(tmp_path):
    """The exit code is 2, and the message names the option."""
    out, file = tmp_path / "demo", tmp_path / "file"
    file.touch()
    for option, value in (("--steps", "0"), ("--steps", "1.5"), ("--seed", "-1"), ("--mode", "fast"), ("--out", str(file))):
        code, text = invoke("demo", "--out", str(out), option, value)
        assert code == 2
        assert option in text
        assert not out.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("comprae", "ampscale: no such command 'comprae'; did you mean compare?"),
        ("conforms", "ampscale: no such command 'conforms'; did you mean conform?"),
        ("z" * 999, f"ampscale: no such command '{'z' * 76}...; see ampscale --help"),
        ("--verison", "ampscale: no such option --verison; did you mean --version?"),
        ("presets pytorch", "ampscale presets: unknown preset 'pytorch'; did you mean torch?"),
        ("presets zzz", "ampscale presets: unknown preset 'zzz'; ampscale presets lists all"),
        ("presets --json=x", "ampscale presets: Option '--json' does not take a value"),
        ("convert in.json --to", "ampscale convert: Option '--to' requires an argument"),
        ("presets --jsn", "ampscale presets: no such option --jsn; did you mean --json?"),
        ("simulate torch --tarce x", "ampscale simulate: no such option --tarce; did you mean --trace?"),
        ("simulate torch --zzz", "ampscale simulate: no such option --zzz; see ampscale simulate --help"),
        ("simulate torch --every --events", "ampscale simulate: --every or --events was given 2 times; give it once"),
        ("doctor --jsn", "ampscale doctor: no such option or argument --jsn; did you mean --json?"),
        ("doctor torch", "ampscale doctor: no such option or argument torch; see ampscale doctor --help"),
        ("doctor --json x", "ampscale doctor: no such option or argument x; see ampscale doctor --help"),
        ("convert in.json --form torch", "ampscale convert: no such option --form; did you mean --from?"),
        ("demo --sede 1", "ampscale demo: no such option --sede; did you mean --seed?"),
        ("identify --scale 8", "ampscale identify: no such option --scale; did you mean --scales?"),
        ("simulate", "ampscale simulate: Missing argument 'RULE'; see ampscale simulate --help"),
    ],
)
def test_usage_error_is_one_line_with_the_nearest_name(arguments, message):
    """The exit code is 2, and nothing is printed on stdout."""
    result = CliRunner().invoke(main, arguments.split())
    assert (result.exit_code, result.stdout, result.stderr) == (2, "", f"{message}\n")


@pytest.fixture
def _files(tmp_path, monkeypatch):
    """Write the files that the examples in the help read, and make their folder the working directory."""
    monkeypatch.chdir(tmp_path)
    scaler = {"scale": 8.0, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 4, "_growth_tracker": 3}
    torch = pytest.importorskip("torch", reason="needs torch")
    torch.save({"scaler": scaler}, "checkpoint.pt")
    np.savez("gradients.npz", w=np.ones(2))
    save_file({"w": np.ones(2)}, "gradients.safetensors")
    write_run(Path("run.jsonl"))
    lines = (f" iteration {step:8d}/  9 | loss scale: 8.0 | number of skipped iterations:   0 |" for step in range(1, 9))
    Path("train.log").write_text("\n".join(lines))


@pytest.mark.usefixtures("_files")
@pytest.mark.parametrize("command", [None, *COMMANDS])
def test_help_fits_80_columns_and_ends_with_examples_that_run(command, monkeypatch):
    """There are at least two examples. Those of `demo` (slow) and of `watch` (requires a terminal) are only parsed."""
    monkeypatch.setenv("COLUMNS", "80")
    code, text = invoke(*filter(None, [command]), "--help")
    assert code == 0
    assert max(map(len, text.splitlines())) <= 80
    examples = [shlex.split(line) for line in text.replace("examples:", "Examples:").partition("Examples:\n")[2].splitlines()]
    assert len(examples) >= 2
    for program, name, *arguments in examples:
        assert (program, name) == ("ampscale", command or name)
        Path("scaler.json").write_text('{"scale": 8.0, "growth_tracker": 0, "hysteresis_tracker": 1}')
        if name in ("demo", "watch"):
            main.commands[name].make_context(name, arguments)
        else:
            assert invoke(name, *arguments)[0] == 0, arguments


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("ampscale com", {"compare"}),
        ("ampscale presets tor", {"torch", "torch_sharded_cpu"}),
        ("ampscale simulate megatr", {"megatron"}),
        ("ampscale compare torch padd", {"paddle", "paddle_document", "paddle_amp_scaler", "paddle_static", "paddle_static_old"}),
        ("ampscale convert in.pt --from fl", {"flax"}),
        ("ampscale convert in.pt --to deep", {"deepspeed", "deepspeed_fp16_optimizer"}),
        ("ampscale identify --log-format meg", {"megatron"}),
        ("ampscale simulate torch --over", {"--overflow-above"}),
        ("ampscale simulate my_rule.js", {"my_rule.js"}),
    ],
)
def test_shell_completes_names(line, expected):
    """Commands, presets, formats and options are completed, and a RULE that is not a preset as a file name."""
    variables = {"_AMPSCALE_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(len(line.split()) - 1)}
    result = CliRunner().invoke(main, env=variables, prog_name="ampscale")
    assert {item.partition(",")[2] for item in result.output.splitlines()} == expected


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_help_documents_shell_completion(shell):
    """The source command that the help shows prints a script for the shell."""
    assert f"_AMPSCALE_COMPLETE={shell}_source ampscale" in invoke("--help")[1]
    result = CliRunner().invoke(main, env={"_AMPSCALE_COMPLETE": f"{shell}_source"}, prog_name="ampscale")
    assert "_AMPSCALE_COMPLETE" in result.stdout
