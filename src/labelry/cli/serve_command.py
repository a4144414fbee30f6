"""labelry serve."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from labelry.cli.model_commands import Model
from labelry.errors import MissingExtraError


def serve(
    model: Model,
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 is all.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(help="Port to listen on; 0 takes a free one.", min=0, max=65535)
    ] = 8000,
    workers: Annotated[
        int, typer.Option(help="Processes; they share the model's memory.", min=1)
    ] = 1,
    api_key_file: Annotated[
        Path | None,
        typer.Option(
            help="File with the key that clients must show; or set LABELRY_API_KEY.",
            show_default="no key",
        ),
    ] = None,
    max_batch: Annotated[int, typer.Option(help="Most rows of a request.", min=1)] = 256,
    max_body: Annotated[int, typer.Option(help="Most bytes of a request.", min=1)] = 1 << 20,
    timeout: Annotated[float, typer.Option(help="Seconds for a request.")] = 10.0,
    max_connections: Annotated[
        int, typer.Option(help="Most connections of a worker.", min=1)
    ] = 1000,
) -> None:
    """Answer requests over HTTP; a model that is replaced is loaded anew, without a pause.

    Example: labelry serve tagger.labelry --port 8000 --workers 2

    Ask: curl localhost:8000/v1/predict --json '{"text": "pain in the left knee", "k": 3}'
    """
    try:
        from labelry.server.run import serve as run
        from labelry.server.settings import Settings
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package == "labelry":
            raise
        raise MissingExtraError(package, "serve", "labelry serve") from error

    settings = Settings(
        model,
        api_key=_api_key(api_key_file),
        max_batch=max_batch,
        max_body=max_body,
        timeout=timeout,
        max_connections=max_connections,
    )
    typer.echo(f"labelry: loading {model.name}", err=True)
    run(settings, host, port, workers, lambda address: _say(model, address))


def _api_key(file: Path | None) -> str | None:
    if file is None:
        return os.environ.get("LABELRY_API_KEY")
    try:
        return file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"cannot read the API key from {file}: {error}") from error


def _say(model: Path, address: str) -> None:
    typer.echo(f"serving {model.name} at {address} (API: {address}/docs; stop with Ctrl-C)")
