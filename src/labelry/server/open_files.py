"""How many files a process may have open; each connection is one."""

from __future__ import annotations

import resource
import sys

_OTHERS = 64  # that a worker may need besides its connections: model, figures, pipes


def most_connections() -> int:
    """How many connections this process can have open, with files left for the rest of its work."""
    return _limits()[0] - _OTHERS


def allow_connections(n: int) -> None:
    """Raise the limit of this process, and of workers that it starts, for `n` connections.

    If possible, for as many again: who comes too much can then be told so.

    Raises
    ------
    ValueError
        If the system does not allow so many.
    """
    soft, hard = _limits()
    if n + _OTHERS > hard:
        raise ValueError(
            f"max_connections must be at most {hard - _OTHERS}, as this system allows {hard} open "
            f"files (ulimit -Hn); got {n}"
        )
    wanted = min(2 * n + _OTHERS, hard)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, _raw()[1]))


def _limits() -> tuple[int, int]:
    soft, hard = (sys.maxsize if n == resource.RLIM_INFINITY else n for n in _raw())
    return soft, hard


def _raw() -> tuple[int, int]:
    return resource.getrlimit(resource.RLIMIT_NOFILE)
