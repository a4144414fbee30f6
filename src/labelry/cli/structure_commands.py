"""labelry tree | topics | similar: what a model has learnt about its labels."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from labelry.cli import options
from labelry.cli.model_commands import Model, label_of, load_model, output
from labelry.cli.options import print_json, stoppable

if TYPE_CHECKING:
    from labelry.estimator import LabelRanker

PICTURES = (".svg", ".png", ".pdf")


class TreeFormat(StrEnum):
    """How a tree is written."""

    outline = "outline"
    json = "json"
    dot = "dot"
    newick = "newick"


def tree(
    model: Model,
    form: Annotated[
        TreeFormat, typer.Option("--format", help="The whole tree: json, dot (Graphviz), newick.")
    ] = TreeFormat.outline,
    depth: Annotated[
        int, typer.Option(help="Levels that the outline or picture shows.", min=1)
    ] = 2,
    names: Annotated[int, typer.Option(help="Labels named for each node.", min=1)] = 4,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="File to write; .svg, .png or .pdf draws.", show_default="terminal"
        ),
    ] = None,
    force: options.Force = False,
) -> None:
    """Show the tree of labels of a model: each node with its most frequent labels.

    Example: labelry tree linear-tree.labelry --depth 1
    """
    from labelry.trees import text_outline, to_graphviz, to_json, to_newick

    ranker = load_model(model, None)
    found = getattr(ranker, "tree_", None)
    if found is None:
        raise ValueError(f"{model} holds a {ranker.system} model, which has no tree")
    labels, counts = ranker.classes_.tolist(), ranker.label_counts_
    if out is not None and out.suffix.lower() in PICTURES:
        from labelry.report.tree_picture import tree_picture

        save_picture(
            tree_picture(found, labels, counts, max_depth=depth, n_names=names), out, force
        )
        return
    texts = {
        TreeFormat.outline: lambda: text_outline(
            found, labels, counts, max_depth=depth, n_names=names
        ),
        TreeFormat.json: lambda: to_json(found, labels) + "\n",
        TreeFormat.dot: lambda: to_graphviz(found, labels),
        TreeFormat.newick: lambda: to_newick(found, labels) + "\n",
    }
    with output(out, force) as target:
        target.write(texts[form]())


def save_picture(picture: Any, out: Path, force: bool) -> None:
    """Write a figure to a file that appears only when it is complete."""
    from labelry.data.streams import open_output

    if out.suffix.lower() not in PICTURES:
        raise ValueError(f"a picture's name must end in {', '.join(PICTURES)}; got {out.name}")
    if out.exists() and not force:
        raise ValueError(f"{out} already exists; use --force to replace it")
    with open_output(out) as stream:
        picture.savefig(stream, format=out.suffix[1:].lower())


def topics(
    model: Model,
    k: Annotated[int, typer.Option("-k", help="Words and labels of each topic.", min=1)] = 8,
    most: Annotated[
        int | None, typer.Option("--most", help="Topics to show, largest first.", min=1)
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Draw them: a .svg, .png or .pdf file.")
    ] = None,
    force: options.Force = False,
    json: options.Json = False,
) -> None:
    """Show the topics of a moments model: share, words and labels of each, largest first.

    Example: labelry topics moments.labelry -k 5 --most 10
    """
    from labelry.systems.moments import Moments

    ranker = load_model(model, None)
    if not isinstance(ranker, Moments):
        raise ValueError(f"{model} holds a {ranker.system} model, which has no topics")
    if out is not None:
        from labelry.report.topic_picture import topic_picture

        save_picture(topic_picture(ranker, n_topics=most or 12, k=k), out, force)
        return
    share = ranker.topic_proportions_
    words, labels = ranker.topic_words(k)[0].tolist(), ranker.topic_labels(k)[0].tolist()
    found = [
        {"topic": int(t), "share": float(share[t]), "words": words[t], "labels": labels[t]}
        for t in (-share).argsort(kind="stable")[:most].tolist()
    ]
    if json:
        print_json({"topics": found})
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("topic", "share", "words", "labels")
    for row in found:
        texts = (" ".join(map(str, row[part])) for part in ("words", "labels"))
        table.add_row(str(row["topic"]), f"{100 * row['share']:.2f} %", *texts)
    Console().print(table)


def similar(
    model: Model,
    label: Annotated[str, typer.Argument(metavar="LABEL", help="Name of a label.")],
    k: Annotated[int, typer.Option("-k", help="Labels to show.", min=1)] = 10,
    json: options.Json = False,
) -> None:
    """Show the labels most like one, by the vectors that the model learnt for them.

    Example: labelry similar tagger.labelry knee -k 5
    """
    ranker = load_model(model, None)
    own = label_of(ranker, label)
    labels, cosines = stoppable(ranker.similar_labels, own, k)
    pairs = list(zip(labels.tolist(), cosines.tolist(), strict=True))
    if json:
        found = [{"label": name, "cosine": round(value, 6)} for name, value in pairs]
        print_json({"label": own, "similar": found})
        return
    from rich.console import Console
    from rich.table import Table

    titles = dict(zip(ranker.classes_.tolist(), _titles(ranker), strict=True))
    table = Table("label", "cosine", "name" if any(titles.values()) else "")
    for name, value in pairs:
        table.add_row(str(name), f"{value:.3f}", titles[name])
    Console().print(table)


def _titles(ranker: LabelRanker) -> list[str]:
    """What the names of labels stand for, where a model was told."""
    names = getattr(ranker, "names_", None)
    return [""] * len(ranker.classes_) if names is None else names.tolist()
