"""Limits of open files."""

from __future__ import annotations

import resource

import pytest

from labelry.server.protocol import allow_connections, most_connections


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Soft and hard limit, which are not those of the process that tests."""
    found = [1024, 4096]
    monkeypatch.setattr(resource, "getrlimit", lambda _: tuple(found))
    monkeypatch.setattr(resource, "setrlimit", lambda _, new: found.__setitem__(slice(2), new))
    return found


def test_the_limit_is_raised_for_as_many_again(limits: list[int]) -> None:
    allow_connections(1000)
    assert limits == [2064, 4096]
    assert most_connections() == 2000
    allow_connections(10)
    assert limits == [2064, 4096]  # never lowered


def test_as_far_as_the_system_allows(limits: list[int]) -> None:
    allow_connections(4032)
    assert limits == [4096, 4096]
    with pytest.raises(ValueError, match=r"at most 4032, .* 4096 open files .* got 4033"):
        allow_connections(4033)


def test_without_a_limit(limits: list[int]) -> None:
    limits[:] = [resource.RLIM_INFINITY, resource.RLIM_INFINITY]
    allow_connections(1 << 20)
    assert limits == [resource.RLIM_INFINITY] * 2
    assert most_connections() > 1 << 40
    limits[0] = 256
    allow_connections(1000)
    assert limits == [2064, resource.RLIM_INFINITY]
    assert most_connections() == 2000
