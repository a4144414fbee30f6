"""The command line. Heavy imports wait until a command needs them."""

import atexit
import gc
import os
import sys

from labelry.cli.streams import open_streams

__all__ = ["main"]

_INTERRUPTED = 130  # exit code after Ctrl-C, by custom of shells


def main() -> None:
    """Run the command line; Ctrl-C is one line, also while the commands are being imported."""
    atexit.register(gc.freeze)  # a last collection before the process ends would take long
    open_streams()
    try:
        from labelry.cli.app import run

        run()
    except KeyboardInterrupt as interrupt:
        try:
            sys.stderr.write(f"labelry: interrupted; {_kept(interrupt)}\n")
            sys.stdout.flush()
        finally:  # also where the reader of a pipe was interrupted and closed it
            # Python itself would wait for kernels that still run in threads.
            os._exit(_INTERRUPTED)


def _kept(error: BaseException | None) -> str:
    """Return what was done before an interruption, from the notes of the error."""
    while error is not None:
        if notes := getattr(error, "__notes__", None):
            return "; ".join(notes)
        error = error.__context__
    return "no file was changed"
