"""
Command and parameter classes of the command line.

An error is one line on stderr that suggests the nearest name, the help of a command ends with examples, and the shell
completes names.
"""

import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any

import click
from click.core import augment_usage_errors
from click.shell_completion import CompletionItem

from ..parsing import excerpt

LONGEST_NAME = 100  # characters that are compared with known names
JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON and nothing else.")


class Command(click.Command):
    """Command that reports an error in one line."""

    def main(self, *args: Any, standalone_mode: bool = True, **extra: Any) -> Any:
        """Run the command and exit. An error is printed in one line on stderr; the exit code of a usage error is 2."""
        options: dict[str, Any] = {**extra, "standalone_mode": False}
        if not standalone_mode:
            return super().main(*args, **options)
        try:
            sys.exit(super().main(*args, **options))
        except click.ClickException as error:
            click.echo(_message(error), err=True)
            sys.exit(error.exit_code)
        except click.Abort:
            click.echo("Aborted!", err=True)
            sys.exit(1)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse *args*. Reject an option that is given twice, because click would use only its last value."""
        with augment_usage_errors(ctx):
            _, _, params = self.make_parser(ctx).parse_args(list(args))
            for param, count in Counter(params).items():
                if count > 1 and not param.multiple:
                    names = " or ".join([*param.opts, *param.secondary_opts])
                    raise click.UsageError(f"{names} was given {count} times; give it once")
            return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> None:
        """Invoke the callback and drop its result, so that `main` only returns an exit code."""
        with augment_usage_errors(ctx):
            super().invoke(ctx)


def command(*lines: str, short_help: str | None = None) -> Callable[[Callable[..., None]], click.Command]:
    """Return a decorator that makes a function a `Command`. Its help ends with the examples *lines*."""
    return click.command(cls=Command, short_help=short_help, epilog=examples(*lines))


class Name(click.ParamType):  # type: ignore[type-arg]  # older releases of click take no argument here
    """
    Parameter type for one of several known names. Errors call the parameter *name*, such as "format".

    An error suggests the nearest known name or, if none is near, ends with *otherwise*; by default with all known names.
    *nearest* maps unknown names to the known names that are suggested for them.
    """

    def __init__(self, name: str, known: Iterable[str], otherwise: str = "", nearest: Mapping[str, str] | None = None) -> None:
        self.name, self.known, self.nearest = name, tuple(known), nearest or {}
        self.otherwise = otherwise or f"known {name}s are {', '.join(self.known)}"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return *value* if it is a known name."""
        if value not in self.known:
            remedy = suggestion(self.nearest.get(value, value), self.known, self.otherwise)
            raise click.UsageError(f"unknown {self.name} {excerpt(value)}; {remedy}", ctx)
        return value

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the names that start with *incomplete*."""
        return [CompletionItem(name) for name in self.known if name.startswith(incomplete)]


def suggestion(name: str, known: Iterable[str], otherwise: str) -> str:
    """Return "did you mean torch?" with the nearest of the *known* names, or *otherwise* if none is near."""
    matches = get_close_matches(name[:LONGEST_NAME].lower(), list(known), n=1)
    return f"did you mean {matches[0]}?" if matches else otherwise


def flag(name: str) -> str:
    """Return the option of a parameter, such as "--log-format"."""
    return "--" + name.replace("_", "-")


def with_flags(message: str) -> str:
    """Replace the names of arguments in a message of the library, as in "specify scale_column", by those of options."""
    return re.sub(r"(?<=specify )\w+|\bstep_pattern\b", lambda match: flag(match[0]), message)


@contextmanager
def usage_errors(*others: type[Exception]) -> Iterator[None]:
    """Report an OSError, a ValueError or one of *others* that the block raises as a usage error."""
    types: tuple[type[Exception], ...] = (OSError, ValueError, *others)
    try:
        yield
    except types as error:
        raise click.UsageError(with_flags(str(error))) from None


def with_options(*options: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a decorator that adds *options* to a command, in this order."""

    def decorate(command: Any) -> Any:
        for option in reversed(options):  # the decorator that is applied last adds the first option
            command = option(command)
        return command

    return decorate


def examples(*commands: str) -> str:
    """Return the epilog of a command's help, which lists *commands* as examples."""
    return "\n  ".join(["\b\nExamples:", *commands])


def _message(error: click.ClickException) -> str:
    """Return the message of an error in one line, with the command and a remedy; or the help, if arguments are missing."""
    context = getattr(error, "ctx", None)
    path = context.command_path if context else "ampscale"
    if type(error).__name__ == "NoArgsIsHelpError":  # in click since 8.2; its message is the help
        return error.message
    if isinstance(error, click.NoSuchOption):
        nearest = f"did you mean {error.possibilities[0]}?" if error.possibilities else f"see {path} --help"
        return f"{path}: no such option {error.option_name}; {nearest}"
    lines = (line.strip() for line in error.format_message().splitlines())
    message = " ".join(filter(None, lines))
    if not message.endswith("..."):  # these dots are the end of an excerpt
        message = message.rstrip(".")
    remedy = f"; see {path} --help" if isinstance(error, click.MissingParameter) else ""
    return f"{path}: {message}{remedy}"
