"""Measure the available memory, and refuse work that would not fit."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path

from labelry.errors import MemoryBudgetError

try:
    import resource
except ImportError:  # not on Windows
    resource = None  # type: ignore[assignment]

log = logging.getLogger("labelry")

_CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def available() -> int:
    """Return the bytes that this process may use: free memory, within all limits.

    The limits are those of the container and of the process (``ulimit -v``). Where the system does
    not say how much memory it has, as Windows does not here, it is taken to be unlimited.
    """
    free = sys.maxsize
    if hasattr(os, "sysconf"):
        free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        for line in meminfo.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                free = int(line.split()[1]) * 1024
    for limit in map(Path, _CGROUP_LIMITS):
        if limit.exists() and (text := limit.read_text().strip()).isdigit():
            free = min(free, int(text))
    return min(free, address_space())


def address_space() -> int:
    """Return the bytes of addresses that the limit of the process (``ulimit -v``) leaves it."""
    if resource is None or not hasattr(resource, "RLIMIT_AS"):
        return sys.maxsize
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    used = Path("/proc/self/statm")
    if limit == resource.RLIM_INFINITY or not used.exists():
        return sys.maxsize
    return max(0, limit - int(used.read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE"))


def peak() -> int:
    """Return the peak of memory of this process so far, in bytes; 0 if the system does not say."""
    status = Path("/proc/self/status")
    if status.exists():  # ru_maxrss may include the memory of the parent process
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    if resource is None:
        return 0
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


def human(n_bytes: float) -> str:
    """Return a number of bytes for people: ``1536`` is ``1.5 KiB``.

    >>> human(3 << 30)
    '3.0 GiB'
    """
    for unit in ("B", "KiB", "MiB", "GiB"):
        if n_bytes < 1024:
            return f"{n_bytes:.0f} B" if unit == "B" else f"{n_bytes:.1f} {unit}"
        n_bytes /= 1024
    return f"{n_bytes:.1f} TiB"


def require(n_bytes: int, what: str, remedy: str) -> None:
    """Log how much memory `what` needs; raise an error with the `remedy` if it is too much."""
    log.info("%s needs about %s of memory (%s available)", what, human(n_bytes), human(available()))
    check_fits(n_bytes, what, remedy)


def check_fits(n_bytes: int, what: str, remedy: str) -> None:
    """Raise an error with the `remedy` if `what` needs more memory than there is."""
    free = available()
    if n_bytes > free:
        raise MemoryBudgetError(
            f"{what} needs about {human(n_bytes)} of memory but only {human(free)} is available: "
            f"{remedy}"
        )


def watch(what: str, remedy: str) -> Callable[[int], None]:
    """Return a function that adds up the sizes of the parts of `what`, and raises at the limit.

    It is for input of unknown size: a few megabytes may unpack to terabytes.
    """
    free = available()
    taken = 0

    def take(n_bytes: int) -> None:
        nonlocal taken
        taken += n_bytes
        if taken > free:
            raise MemoryBudgetError(
                f"{what} needs more than the {human(free)} of memory that are available: {remedy}"
            )

    return take
