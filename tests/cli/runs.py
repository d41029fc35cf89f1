"""Runs a command of the command line in this process, and reads what it says."""

import json

from click.testing import CliRunner


class Runs:
    """One command."""

    def __init__(self, command):
        self.command = command

    def invoke(self, *arguments, columns=80):
        """The command's result; an exception of its own comes through."""
        words = [str(word) for word in arguments]
        return CliRunner(env={"COLUMNS": str(columns)}).invoke(self.command, words, catch_exceptions=False)

    def printed(self, *arguments, columns=80, code=0):
        """The lines on stdout, of which the first says something and none ends in a blank."""
        result = self.invoke(*arguments, columns=columns)
        assert result.exit_code == code, result.output
        lines = result.stdout.splitlines()
        assert lines[0] != ""
        assert not any(line.endswith(" ") for line in lines)
        return lines

    def report(self, *arguments, code=0):
        """The JSON of a command, read by a reader that knows no NaN and no Infinity."""
        return json.loads("\n".join(self.printed(*arguments, "--json", code=code)), parse_constant=_refuse)

    def refused(self, *arguments):
        """What a command that is used wrongly says, with exit code 2 and an empty stdout."""
        result = self.invoke(*arguments)
        assert (result.exit_code, result.stdout) == (2, "")
        return " ".join(result.stderr.split())


def _refuse(constant):
    raise ValueError(constant)
