"""The manifest of the example: what it starts is there, under the names by which it is called."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from distributed.cli import dask_scheduler, dask_worker
from typer.testing import CliRunner

from labelry.cli.app import app

yaml = pytest.importorskip("yaml")

MANIFEST = Path(__file__).parents[3] / "examples" / "kubernetes" / "cluster.yaml"
OBJECTS = list(yaml.safe_load_all(MANIFEST.read_text()))


def pods() -> dict[str, dict[str, Any]]:
    """Templates of pods, by the part that they play."""
    templates = [found["spec"]["template"] for found in OBJECTS if "template" in found["spec"]]
    return {template["metadata"]["labels"]["part"]: template for template in templates}


def command(part: str) -> list[str]:
    (container,) = pods()[part]["spec"]["containers"]
    return container["command"]


def test_objects_fit_together() -> None:
    kinds = [found["kind"] for found in OBJECTS]
    assert kinds == ["Service", "Deployment", "Deployment", "Job", "NetworkPolicy"]
    (service,) = (found for found in OBJECTS if found["kind"] == "Service")
    assert service["spec"]["selector"] == pods()["scheduler"]["metadata"]["labels"]
    (port,) = service["spec"]["ports"]
    address = f"tcp://{service['metadata']['name']}:{port['port']}"
    assert address in command("worker")
    assert address in command("train")
    assert str(port["targetPort"]) in command("scheduler")
    for found in OBJECTS:
        if found["kind"] == "Deployment":
            labels = found["spec"]["template"]["metadata"]["labels"]
            assert found["spec"]["selector"]["matchLabels"] == labels
    for pod in pods().values():
        (container,) = pod["spec"]["containers"]
        mounted = {mount["name"] for mount in container.get("volumeMounts", [])}
        assert mounted == {volume["name"] for volume in pod["spec"].get("volumes", [])}


@pytest.mark.parametrize(
    ("part", "program"), [("scheduler", dask_scheduler), ("worker", dask_worker)]
)
def test_dask_knows_the_options(part: str, program: Any) -> None:
    known = {name for p in program.main.params for name in (*p.opts, *p.secondary_opts)}
    name, *given = command(part)
    assert (name, given[0]) == ("dask", part)
    assert {option for option in given if option.startswith("--")} <= known


def test_labelry_knows_the_options() -> None:
    name, *given = command("train")
    assert name == "labelry"
    done = CliRunner().invoke(app, given)
    # There are no such shards here; an option that it does not know is said first.
    assert "--scheduler is for training from shards" in " ".join(done.output.split())
