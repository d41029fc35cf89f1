"""
Command line. A command imports packages other than click and NumPy when it runs, so that `ampscale --help` is fast.

Other packages add commands with an entry point of the group `GROUP`, as `ampscale-conformance` does.
"""

import sys
from importlib.metadata import EntryPoint, entry_points

from .. import __version__
from ..parsing import excerpt
from .extras import exit_without

try:
    import click
except ModuleNotFoundError:
    if sys.argv[1:2] == ["conform"]:
        exit_without("conform", "ampscale-conformance")  # which also installs click
    exit_without("click")

# These modules import click, so they must be imported after the check above.
from .commands import Command, examples, suggestion
from .compare import compare
from .convert import convert
from .demo.command import demo
from .diagnose import diagnose
from .identify import identify
from .presets import presets
from .report import report
from .simulate import simulate
from .suggest import suggest
from .watch import watch

GROUP = "ampscale.commands"
EPILOG = """\b
Shell completion of commands, options, presets and formats; add the line for
your shell to ~/.bashrc, ~/.zshrc or ~/.config/fish/config.fish:
  bash  eval "$(_AMPSCALE_COMPLETE=bash_source ampscale)"
  zsh   eval "$(_AMPSCALE_COMPLETE=zsh_source ampscale)"
  fish  _AMPSCALE_COMPLETE=fish_source ampscale | source

""" + examples("ampscale presets torch", "ampscale compare torch megatron --set init_scale=2**16 --trace '..x.x'")


class Commands(Command, click.Group):
    """Commands of ampscale and of other packages. A command of another package is imported when it is named or listed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, sorted."""
        return sorted({*super().list_commands(ctx), *entry_points(group=GROUP).names})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command called *cmd_name*; None if there is no such command. Commands of ampscale take precedence."""
        if own_command := super().get_command(ctx, cmd_name):
            return own_command
        if points := list(entry_points(group=GROUP, name=cmd_name)):
            return _loaded(points[0])
        return MISSING_CONFORM if cmd_name == "conform" else None

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the name of the command in *args*, the command, and its arguments. Suggest a name if the command is unknown."""
        try:
            return super().resolve_command(ctx, args)
        except click.NoSuchOption:
            raise
        except click.UsageError:
            remedy = suggestion(args[0], [*self.list_commands(ctx), "conform"], "see ampscale --help")
            raise click.UsageError(f"no such command {excerpt(args[0])}; {remedy}", ctx) from None


def _loaded(point: EntryPoint) -> click.Command:
    """Return the command of an entry point. If it cannot be loaded, return a command that prints the reason in one line."""
    label = f"the command {point.name}" + (f" of {point.dist.name} {point.dist.version}" if point.dist else "")
    try:
        command = point.load()
    except Exception as error:  # noqa: BLE001 - importing another package may raise anything
        return _failing(point.name, f"{label} cannot be loaded: {type(error).__name__}: {error}")
    if not isinstance(command, click.Command):
        return _failing(point.name, f"{label} must be a click command, got {type(command).__name__}")
    return command


def _failing(name: str, message: str, code: int = 1) -> click.Command:
    """Return a command that accepts any arguments, prints *message*, which is also its help, and exits with *code*."""

    def fail() -> None:
        click.echo(f"ampscale: {message}", err=True)
        raise SystemExit(code)

    settings = {"ignore_unknown_options": True, "allow_extra_args": True}
    return click.Command(name, settings, fail, short_help=message, add_help_option=False)


MISSING_CONFORM = _failing("conform", "conform is not installed: pip install ampscale-conformance", 2)


@click.group("ampscale", cls=Commands, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="ampscale")
def main() -> None:
    """Loss scaling for mixed-precision training."""


@main.command(
    short_help="List the installed array libraries.", add_help_option=False, context_settings={"ignore_unknown_options": True}
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def doctor(arguments: tuple[str, ...]) -> None:
    """List the array libraries that are installed, what they can do, and which one is chosen."""
    from .doctor import main as run_doctor

    raise SystemExit(run_doctor(list(arguments)))


for command in (demo, presets, simulate, compare, identify, convert, watch, report, suggest, diagnose):
    main.add_command(command)
