"""The command line: `onebasin COMMAND --help` shows an example of each command."""

from onebasin.cli.application import app, main

__all__ = ["app", "main"]
