"""labelry demo: a real tagger from start to finish."""

from __future__ import annotations

import os
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from labelry.cli import options
from labelry.cli.inspect_commands import page_on
from labelry.cli.model_commands import output, print_measures
from labelry.cli.options import kept_if_interrupted, progress_shown, stoppable

if TYPE_CHECKING:
    from labelry import Tagger
    from labelry.data.icd import Classification

_EXAMPLES = 5  # held-out documents that are shown
_SHOWN = 3  # labels and words of each
_WIDTH = 60  # characters of a description
_OVERALL = ("P", "nDCG", "PSP", "R", "ECE")
_CARD: dict[str, Any] = {
    "title": "ICD-10-CM",
    "description": "Finds the labels of a medical phrase in the classification of diseases.",
    "examples": (
        "Acute bronchitis with asthma",
        "High blood pressure with heart failure",
        "Sprain of the left ankle",
    ),
}


def demo(
    full_codes: Annotated[
        bool,
        Option("--full-codes", help="Use all 46,881 codes as labels, not the 1,918 categories."),
    ] = False,
    quality: Annotated[
        str, Option(help="Quality of the tagger, as for labelry train: balanced or best.")
    ] = "balanced",
    out: Annotated[
        Path, options.out_option("Model directory to write. An existing one is replaced.")
    ] = Path("icd10.labelry"),
    serve: Annotated[
        bool, Option("--serve", help="Serve the tagger at a local address afterwards.")
    ] = False,
    seed: options.Seed = 0,
    jobs: options.Jobs = None,
) -> None:
    """Train, evaluate and try a tagger of medical phrases.

    Its labels are the categories of ICD-10-CM, the classification of diseases. The package
    simple-icd-10-cm contains the data, so the command downloads nothing.

    Example: labelry demo --out icd10.labelry --serve
    """
    from labelry import Tagger, memory
    from labelry.data.icd import icd10cm
    from labelry.progress import phase, recorded

    with progress_shown(quiet=False), recorded():
        with phase("reading ICD-10-CM"):
            data = icd10cm(full_codes=full_codes, random_state=seed)
        unseen = len(data.titles) - data.train.n_labels
        typer.echo(
            f"ICD-10-CM: {data.train.n_rows:,} documents for training, {data.test.n_rows:,} for "
            f"testing, {len(data.titles):,} labels"
            f"{f', {unseen} of them without a document' if unseen else ''}."
        )
        tagger = Tagger(quality=quality, random_state=seed, n_jobs=jobs)  # type: ignore[arg-type]
        start = time.perf_counter()
        stoppable(tagger.fit, data.train, names=data.titles)
        seconds = time.perf_counter() - start
        typer.echo(
            f"Trained in {seconds:.1f} s, with at most {memory.human(memory.peak())} of memory.\n"
        )
        tagger.set_card(**_CARD).set_params(n_jobs=None).save(out, force=True)
    report = out.with_name(f"{out.name.removesuffix('.labelry')}-report.html")
    with progress_shown(quiet=False), kept_if_interrupted(lambda: f"the tagger is in {out}"):
        _evaluate(tagger, data)
        stoppable(_show_examples, tagger, data)
        with output(report, force=True) as file:
            file.write(page_on(tagger, out, data.test, "ICD-10-CM, a quarter of its documents"))
    own = Path(sys.executable).parent / "labelry"  # not always on the search path
    labelry = "labelry" if shutil.which("labelry") or not own.exists() else os.path.relpath(own)
    typer.echo(
        f"\nThe tagger is in {out}, and a report on it is in {report}. Try the tagger:\n"
        f'  {labelry} explain {out} "pain in the left knee"\n'
        f"  {labelry} serve {out}        # prints an address to open"
    )
    if serve:
        from labelry.cli.serve_command import serve as start_server

        start_server(out)


def _evaluate(tagger: Tagger, data: Classification) -> None:
    from labelry.evaluation.evaluate import evaluate

    typer.echo("On the test documents, in percent (R: share of the right labels that are found):")
    found = stoppable(evaluate, tagger, data.test, by_frequency=True)
    bins = found.pop("by_frequency")
    shown = {name: value for name, value in found.items() if name.split("@")[0] in _OVERALL}
    shown["by_frequency"] = {
        f"{group} labels": {name: value for name, value in values.items() if name[:2] == "R@"}
        for group, values in bins.items()
    }
    print_measures(shown)


def _show_examples(tagger: Tagger, data: Classification) -> None:
    """Show documents spread over the test rows, with their best labels and words."""
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    texts, names = data.test.texts or [], data.test.label_names or []
    step = max(1, len(texts) // _EXAMPLES)
    for row in range(step // 2, len(texts), step):
        truth = {names[j] for j in data.test.Y[[row]].indices.tolist()}
        console.print()
        console.print(Text(texts[row], style="bold"))
        found = tagger.predict([texts[row]], k=_SHOWN)[0]
        for label, probability in found:
            mark = "*" if label in truth else " "
            title = data.titles[label][:_WIDTH]
            console.print(Text(f" {mark} {probability:6.1%}  {label:8} {title}"))
        if not found:
            console.print("   no known word")
            continue
        best = found[0][0]
        words = tagger.explain(texts[row], best, n=_SHOWN).supporting
        said = ", ".join(f"{word} {value:+.2f}" for word, value in words)
        why = said or "none; similar documents have this label"
        console.print(Text(f"   words for {best}: {why}"), soft_wrap=True)
    console.print("\n* the right label")
