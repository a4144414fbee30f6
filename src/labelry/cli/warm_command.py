"""labelry warm: compile kernels before someone waits for them."""

from __future__ import annotations

import json as formats
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, get_args

from typer import Argument

from labelry.cli import options
from labelry.cli.options import print_json, progress_shown, say, stoppable

_LABELS, _DOCUMENTS, _WORDS = 80, 20, 400  # labels, documents of each, words in all; not tuned


def warm(
    model: Annotated[
        Path | None,
        Argument(
            metavar="[MODEL]",
            help="Model directory: compile only what its answers need.",
            show_default="what training, evaluating and serving a tagger of texts need",
        ),
    ] = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Compile kernels beforehand, so that no command or request waits for them.

    labelry compiles a kernel when it is first used, and keeps the result in files: in the folder
    that the environment variable NUMBA_CACHE_DIR names, or beside the installed package. Run this
    command in the image of a container, or in a CI job that keeps that folder.

    Example: labelry warm tagger.labelry
    """
    from labelry.compilation import clock
    from labelry.linalg.kernels import multiply_rows

    with progress_shown(quiet):
        if model is None:
            stoppable(_warm_tagger)
        else:
            stoppable(_warm_model, model)
    place = multiply_rows.stats.cache_path
    if json:
        found = {"kernels": clock().kernels, "seconds": round(clock().seconds, 3)}
        print_json(found | {"cache": str(place)})
    elif not quiet:
        say(
            f"compiled {clock().kernels:,} kernels in {clock().seconds:.0f} s; "
            f"{'they are' if clock().kernels else 'all were already'} in {place}",
            err=True,
        )


def _warm_tagger() -> None:
    """Train, evaluate and serve a tagger of each quality, on documents of random words."""
    from labelry import Tagger
    from labelry.data import read
    from labelry.evaluation.evaluate import evaluate
    from labelry.progress import phase
    from labelry.tagging.tagger import Quality

    with tempfile.TemporaryDirectory(prefix="labelry-warm-") as folder:
        file, out = Path(folder) / "documents.jsonl", Path(folder) / "model"
        file.write_text("".join(_random_lines()))
        dataset = read(file)
        for quality in get_args(Quality):
            with phase(f"trying --quality {quality}"):
                tagger = Tagger(quality=quality, random_state=0).fit(dataset)
                tagger.save(out, force=True)
                evaluate(tagger, dataset, by_frequency=True)
                _warm_model(out)


def _warm_model(path: Path) -> None:
    """Load a model as the server does, which calls each of its methods once."""
    from labelry.progress import phase
    from labelry.server.served import load_served

    with phase(f"asking {path.name}"):
        load_served(path)


def _random_lines() -> Iterator[str]:
    """Yield documents as JSONL."""
    rng = random.Random(0)
    for label in range(_LABELS):
        own = [f"w{rng.randrange(_WORDS)}" for _ in range(6)]
        for _ in range(_DOCUMENTS):
            words = rng.sample(own, 3) + [f"w{rng.randrange(_WORDS)}" for _ in range(3)]
            labels = sorted({f"l{label}", f"l{rng.randrange(_LABELS)}"})
            yield formats.dumps({"text": " ".join(words), "labels": labels}) + "\n"
