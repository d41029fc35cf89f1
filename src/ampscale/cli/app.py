"""
Command line. Each command imports what it needs when it runs, so that `ampscale --help` stays light.

Other packages add commands with an entry point of the group `GROUP`, as `ampscale-conformance` does.
"""

from importlib.metadata import EntryPoint, entry_points

from .. import __version__
from .extras import MISSING

try:
    import click
except ModuleNotFoundError:
    raise SystemExit(MISSING.format("click", "cli")) from None

from .compare import compare  # click comes first, so that its absence is reported
from .convert import convert
from .demo.command import demo
from .identify import identify
from .presets import presets
from .simulate import simulate

GROUP = "ampscale.commands"


class Commands(click.Group):
    """The library's commands, and those of other packages, each of which is loaded when it is named or listed."""

    def list_commands(self, context: click.Context) -> list[str]:
        """Return the names of all commands, sorted."""
        return sorted({*super().list_commands(context), *entry_points(group=GROUP).names})

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        """Return the command called *name*, the library's own if it has one; None if there is none."""
        return super().get_command(context, name) or _brought(name)


def _brought(name: str) -> click.Command | None:
    for point in entry_points(group=GROUP, name=name):
        return _loaded(point)
    return _failing(name, "conform is not installed: pip install ampscale-conformance") if name == "conform" else None


def _loaded(point: EntryPoint) -> click.Command:
    """Return the command of an entry point, or one that reports in a single line why it cannot be loaded."""
    try:
        command = point.load()
    except Exception as error:  # noqa: BLE001 - importing another package may raise anything
        return _failing(point.name, f"{_label(point)} cannot be loaded: {type(error).__name__}: {error}")
    if not isinstance(command, click.Command):
        return _failing(point.name, f"{_label(point)} must be a click command, got {type(command).__name__}")
    return command


def _label(point: EntryPoint) -> str:
    return f"the command {point.name} of {point.dist.name} {point.dist.version}" if point.dist else f"the command {point.name}"


def _failing(name: str, message: str) -> click.Command:
    """Return a command that takes any arguments and ends with *message*, which is its help as well."""

    def fail() -> None:
        raise SystemExit(f"ampscale: {message}")

    settings = {"ignore_unknown_options": True, "allow_extra_args": True}
    return click.Command(name, settings, fail, short_help=message, add_help_option=False)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="ampscale")
def main() -> None:
    """Loss scaling for mixed-precision training."""


@main.command(add_help_option=False, context_settings={"ignore_unknown_options": True})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def doctor(arguments: tuple[str, ...]) -> None:
    """Say which array libraries are here, what they can do, and which one is chosen."""
    from .doctor import main as examine

    raise SystemExit(examine(list(arguments)))


for command in (demo, presets, simulate, compare, identify, convert):
    main.add_command(command)
