"""labelry serve."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from typer import Option

from labelry.cli.model_commands import Model
from labelry.cli.options import say
from labelry.errors import MissingExtraError


def serve(
    model: Model,
    host: Annotated[str, Option(help="Address to listen on; 0.0.0.0 for all.")] = "127.0.0.1",
    port: Annotated[
        int, Option(help="Port to listen on; 0 chooses a free one.", min=0, max=65535)
    ] = 8000,
    workers: Annotated[
        int, Option(help="Processes to start; they share the memory of the model.", min=1)
    ] = 1,
    api_key_file: Annotated[
        Path | None,
        Option(
            help="File with the key that clients must send; or set LABELRY_API_KEY.",
            show_default="no key",
        ),
    ] = None,
    max_batch: Annotated[int, Option(help="Largest number of rows in a request.", min=1)] = 256,
    max_body: Annotated[int, Option(help="Largest number of bytes in a request.", min=1)] = 1 << 20,
    timeout: Annotated[float, Option(help="Seconds that a request may take.", max=86_400)] = 10.0,
    max_connections: Annotated[int, Option(help="Most connections of a worker.", min=1)] = 1000,
    access_log: Annotated[
        bool, Option("--access-log", help="Write a line to stderr for each request.")
    ] = False,
) -> None:
    """Serve a model over HTTP. A model directory that is replaced is loaded without a pause.

    Example: labelry serve tagger.labelry --port 8000 --workers 2

    Ask: curl localhost:8000/v1/predict --json '{"text": "pain in the left knee", "k": 3}'
    """
    try:
        from labelry.server.run import serve as run
        from labelry.server.settings import ServerSettings
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package == "labelry":
            raise
        raise MissingExtraError(package, "serve", "labelry serve") from error

    settings = ServerSettings(
        model,
        api_key=_api_key(api_key_file),
        max_batch=max_batch,
        max_body=max_body,
        timeout=timeout,
        max_connections=max_connections,
        access_log=access_log,
    )
    say(f"labelry: loading {model.name}", err=True)

    def ready(address: str, beyond_this_machine: bool) -> None:
        if beyond_this_machine and settings.api_key is None:
            open_to = "whoever can reach this address can use the server, as it has no API key"
            say(f"labelry: {open_to} (--api-key-file)", err=True)
        say(f"serving {model.name} at {address} (API: {address}/docs; stop with Ctrl-C)")

    run(settings, host, port, workers, ready)


def _api_key(file: Path | None) -> str | None:
    if file is None:
        return os.environ.get("LABELRY_API_KEY")
    try:
        return file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"cannot read the API key from {file}: {error}") from error
