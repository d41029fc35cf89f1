"""Run a command of the command line in this process, and read its output."""

import json

import pytest
from click.testing import CliRunner


class Runner:
    """Runner of one command."""

    def __init__(self, command):
        self.command = command

    def invoke(self, *arguments, columns=80):
        """Return the result. An unexpected exception is raised."""
        texts = [str(argument) for argument in arguments]
        return CliRunner(env={"COLUMNS": str(columns)}).invoke(self.command, texts, catch_exceptions=False)

    def printed(self, *arguments, columns=80, code=0):
        """Return the lines on stdout. Check the exit code, that the first line is not empty, and that none ends with a space."""
        result = self.invoke(*arguments, columns=columns)
        assert result.exit_code == code, result.output
        lines = result.stdout.splitlines()
        assert lines[0] != ""
        assert not any(line.endswith(" ") for line in lines)
        return lines

    def report(self, *arguments, code=0):
        """Return the parsed JSON output, which must not contain NaN or Infinity."""
        return json.loads("\n".join(self.printed(*arguments, "--json", code=code)), parse_constant=pytest.fail)

    def error(self, *arguments):
        """Return the text printed to stderr on a usage error: any notes on a log, then one line with the message."""
        result = self.invoke(*arguments)
        assert (result.exit_code, result.stdout) == (2, "")
        assert result.stderr.splitlines()[-1].startswith(f"{self.command.name}: ")
        return result.stderr
