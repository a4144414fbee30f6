"""labelry demo: a real tagger from start to finish."""

from __future__ import annotations

import os
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Option

from labelry.cli import options
from labelry.cli.inspect_commands import page_on
from labelry.cli.model_commands import output, print_measures
from labelry.cli.options import kept_if_interrupted, progress_shown, stoppable

if TYPE_CHECKING:
    from labelry import Tagger
    from labelry.data.icd import Classification

_EXAMPLES = 5  # held-out phrases that are shown
_SHOWN = 3  # labels and words of each
_WIDTH = 60  # characters of a title
_OVERALL = ("P", "nDCG", "PSP", "R", "ECE")


def demo(
    full_codes: Annotated[
        bool, Option("--full-codes", help="All 46,881 codes in place of the 1,918 categories.")
    ] = False,
    quality: Annotated[
        str, Option(help="Quality of the tagger, as in labelry train: balanced or best.")
    ] = "balanced",
    out: Annotated[
        Path, options.out_option("Model directory to write; an existing one is replaced.")
    ] = Path("icd10.labelry"),
    serve: Annotated[
        bool, Option("--serve", help="Then serve the tagger at a local address.")
    ] = False,
    seed: options.Seed = 0,
    jobs: options.Jobs = None,
) -> None:
    """Train, evaluate and try a tagger that finds the ICD-10-CM codes of medical phrases.

    The classification comes with the package simple-icd-10-cm, so nothing is downloaded.

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
            f"ICD-10-CM: {data.train.n_rows:,} phrases to learn from, {data.test.n_rows:,} to test "
            f"on, {len(data.titles):,} codes"
            f"{f', {unseen} of them without a phrase' if unseen else ''}."
        )
        tagger = Tagger(quality=quality, random_state=seed, n_jobs=jobs)  # type: ignore[arg-type]
        start = time.perf_counter()
        stoppable(tagger.fit, data.train, names=data.titles)
        seconds = time.perf_counter() - start
        typer.echo(
            f"Trained in {seconds:.1f} s, with at most {memory.human(memory.peak())} of memory.\n"
        )
        tagger.set_params(n_jobs=None).save(out, force=True)
    report = out.with_name(f"{out.name.removesuffix('.labelry')}-report.html")
    with progress_shown(quiet=False), kept_if_interrupted(lambda: f"the tagger is in {out}"):
        _evaluate(tagger, data)
        stoppable(_show_examples, tagger, data)
        with output(report, force=True) as file:
            file.write(page_on(tagger, out, data.test, "ICD-10-CM, a quarter of its phrases"))
    own = Path(sys.executable).parent / "labelry"  # not always on the search path
    labelry = "labelry" if shutil.which("labelry") or not own.exists() else os.path.relpath(own)
    typer.echo(
        f"\nThe tagger is saved, and a report on it is in {report}. Try it:\n"
        f'  {labelry} explain {out} "pain in the left knee"\n'
        f"  {labelry} serve {out}        # then open the address that it prints"
    )
    if serve:
        from labelry.cli.serve_command import serve as start_server

        start_server(out)


def _evaluate(tagger: Tagger, data: Classification) -> None:
    from labelry.evaluation.evaluate import evaluate

    typer.echo("On phrases that it has not seen, in percent (R: right codes that are found):")
    found = stoppable(evaluate, tagger, data.test, by_frequency=True)
    bins = found.pop("by_frequency")
    shown = {name: value for name, value in found.items() if name.split("@")[0] in _OVERALL}
    shown["by_frequency"] = {
        f"{group} codes": {name: value for name, value in values.items() if name[:2] == "R@"}
        for group, values in bins.items()
    }
    print_measures(shown)


def _show_examples(tagger: Tagger, data: Classification) -> None:
    """Show phrases from all over the test rows, with the best labels and their words."""
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
        best = found[0][0]
        words = tagger.explain(texts[row], best, n=_SHOWN).supporting
        said = ", ".join(f"{word} {value:+.2f}" for word, value in words)
        why = said or "no words, but similar phrases"
        console.print(Text(f"   for {best} speak: {why}"), soft_wrap=True)
    console.print("\n* the right code")
