"""What is checked before a server starts; tests/cli/test_serve.py has the rest."""

from __future__ import annotations

import pytest

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
