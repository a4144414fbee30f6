"""What is checked before a server starts; tests/cli/test_serve.py has the rest."""

from __future__ import annotations

import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from labelry.errors import LabelryError
from labelry.server import run


def test_a_server_does_not_run_on_numbas_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> None:
        raise ValueError("Threading layer is not initialized.")

    monkeypatch.setattr(run, "threading_layer", none)
    run.check_threads()
    monkeypatch.setattr(run, "threading_layer", lambda: "workqueue")
    with pytest.raises(LabelryError, match=r"'workqueue' is in use.*parallel=True"):
        run.check_threads()


def test_blas_has_one_thread() -> None:
    with threadpool_limits(2):  # sets back afterwards what there was before
        run.hold_blas()
        blas = [each for each in threadpool_info() if each["user_api"] == "blas"]
        assert blas
        assert {each["num_threads"] for each in blas} == {1}


@pytest.mark.parametrize("host", ["", "no.such.host.invalid", "ü.invalid", "a" * 100 + "é", "\0"])
def test_an_address_that_is_none(host: str) -> None:
    with pytest.raises(ValueError, match=r"host is empty|cannot listen on"):
        run.listen(host, 0)


def test_which_addresses_other_machines_reach() -> None:
    for host, expected in (("127.0.0.1", False), ("localhost", False), ("0.0.0.0", True)):
        with run.listen(host, 0) as listener:
            assert run.is_beyond_this_machine(listener) is expected
