"""The command line. Heavy imports wait until a command needs them."""

from labelry.cli.app import main

__all__ = ["main"]
