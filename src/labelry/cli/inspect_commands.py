"""labelry inspect, tree, topics, similar, explain and report: commands that look at a model."""

from __future__ import annotations

from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typer import Argument, Option

from labelry.cli import options
from labelry.cli.model_commands import Model, check_replaceable, label_of, load_model, output
from labelry.cli.options import print_json, print_table, progress_shown, say, stoppable
from labelry.cli.reading import Reading, reads_data
from labelry.progress import visible

if TYPE_CHECKING:
    from labelry.data import Dataset
    from labelry.estimators.base import LabelRanker
    from labelry.tagging.explanation import Explanation

PICTURES = (".svg", ".png", ".pdf")


def inspect(model: Model, json: options.Json = False) -> None:
    """Show what a model directory holds, without reading its arrays.

    Example: labelry inspect tagger.labelry
    """
    from labelry.memory import human
    from labelry.storage import modelfile

    found = modelfile.inspect(model)
    if json:
        print_json(found)
        return
    about = found["about"]
    say(
        f"{found['system']}, {found['n_labels'] or 0:,} labels, {human(found['size_bytes'])}, "
        f"made by labelry {found['labelry_version']} (format {found['format_version']})"
    )
    arrays = [
        (name, f"{array['dtype']} {tuple(array['shape'])} {human(array['bytes'])}")
        for name, array in found["arrays"].items()
    ]
    parameters = [(name, str(value)) for name, value in found["parameters"].items()]
    print_table(_about_rows(about), title="about", frame=False)
    print_table(parameters, title="parameters", frame=False)
    print_table(arrays, title="arrays", frame=False)
    print_table(_training_rows(found.get("training")), title="training", frame=False)


def _about_rows(about: dict[str, Any]) -> list[tuple[str, str]]:
    """Return what there is to show of the training and of the card."""
    source, card = about["source"], about["card"]
    hashed = source["sha256"] and f"sha256 {source['sha256']}"
    rows = [
        ("title", card["title"]),
        ("description", card["description"]),
        *(("example", example) for example in card["examples"]),
        ("trained", f"{about['trained']}, by labelry {about['labelry_version']}"),
        ("on", f"{about['rows']:,} rows"),
        ("file", ", ".join(filter(None, [source["file"], source["format"], hashed]))),
        ("text", " + ".join(source["text_columns"])),
        ("labels", source["label_column"]),
        ("label separator", source["label_separator"]),
    ]
    return [(name, value) for name, value in rows if value]


def _training_rows(record: dict[str, Any] | None) -> list[tuple[str, str]]:
    from labelry.memory import human

    if record is None:
        return []
    if "damaged" in record:
        return [(record["damaged"], "")]
    rows = [
        (p["name"], f"{p['seconds']:.1f} s, +{human(p['rise_bytes'])}") for p in record["phases"]
    ]
    return [*rows, ("in all", f"{record['seconds']:.1f} s, {human(record['peak_bytes'])}")]


def tree(
    model: Model,
    form: Annotated[
        Literal["outline", "json", "dot", "newick"],
        Option(
            "--format",
            help="outline shows the top; json, dot (Graphviz) and newick the whole tree.",
        ),
    ] = "outline",
    depth: Annotated[int, Option(help="Levels that the outline or picture shows.", min=1)] = 2,
    names: Annotated[int, Option(help="Labels to name for each node.", min=1)] = 4,
    out: Annotated[
        Path | None,
        options.out_option(
            "File to write; .svg, .png or .pdf is a picture.", show_default="terminal"
        ),
    ] = None,
    force: options.Force = False,
) -> None:
    """Show the tree of labels of a model: each node with its most frequent labels.

    Example: labelry tree linear-tree.labelry --depth 1
    """
    from labelry.ranking.ranker import HasTree, supports
    from labelry.trees import text_outline, to_graphviz, to_json, to_newick

    ranker = load_model(model, None)
    if not supports(ranker, HasTree):
        raise ValueError(f"{model} holds a {ranker.system} model, which has no tree")
    found = ranker.fitted_.tree
    labels, counts = ranker.classes_.tolist(), ranker.label_counts_
    size = {"max_depth": depth, "n_names": names}
    if out is not None and out.suffix.lower() in PICTURES:
        from labelry.report.pictures import tree_picture

        save_picture(tree_picture(found, labels, counts, **size), out, force)
        return
    texts = {
        "outline": lambda: text_outline(found, [*map(visible, labels)], counts, **size),
        "json": lambda: to_json(found, labels) + "\n",
        "dot": lambda: to_graphviz(found, labels),
        "newick": lambda: to_newick(found, labels) + "\n",
    }
    with output(out, force) as target:
        target.write(texts[form]())


def save_picture(picture: Any, out: Path, force: bool) -> None:
    """Write a figure to a file that appears only when it is complete."""
    from labelry.data.streams import open_output

    if out.suffix.lower() not in PICTURES:
        raise ValueError(f"a picture's name must end in {', '.join(PICTURES)}; got {out.name}")
    check_replaceable(out, force)
    with open_output(out) as stream:
        picture.savefig(stream, format=out.suffix[1:].lower())


def topics(
    model: Model,
    k: Annotated[int, Option("-k", help="Words and labels of each topic.", min=1)] = 8,
    most: Annotated[int | None, Option(help="Topics to show, largest first.", min=1)] = None,
    out: Annotated[
        Path | None, options.out_option("Picture to write: a .svg, .png or .pdf file.")
    ] = None,
    force: options.Force = False,
    json: options.Json = False,
) -> None:
    """Show the topics of a moments model: share, words and labels of each, largest first.

    Example: labelry topics moments.labelry -k 5 --most 10
    """
    from labelry.ranking.ranker import HasTopics, supports

    ranker: Any = load_model(model, None)
    if not supports(ranker, HasTopics):
        raise ValueError(f"{model} holds a {ranker.system} model, which has no topics")
    if out is not None:
        from labelry.report.pictures import topic_picture

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
    rows = []
    for row in found:
        texts = (" ".join(map(str, row[part])) for part in ("words", "labels"))
        rows.append((str(row["topic"]), f"{100 * row['share']:.2f} %", *texts))
    print_table(rows, "topic", "share", "words", "labels")


def similar(
    model: Model,
    label: Annotated[str, Argument(metavar="LABEL", help="Name of a label.")],
    k: Annotated[int, Option("-k", help="Labels to show.", min=1)] = 10,
    json: options.Json = False,
) -> None:
    """Show the labels most similar to one, by the vectors that the model learnt for labels.

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
    described = ranker.names_ is not None
    texts = ranker.names_.tolist() if described else [""] * len(ranker.classes_)
    description = dict(zip(ranker.classes_.tolist(), texts, strict=True))
    rows = [(str(name), f"{value:.3f}", description[name]) for name, value in pairs]
    print_table(rows, "label", "cosine", "description" if described else "")


@reads_data
def explain(
    model: Model,
    what: Annotated[
        str, Argument(metavar="TEXT|FILE", help="A text, or a file of rows; --row chooses one.")
    ],
    label: Annotated[
        str | None, Option(help="Label to explain.", show_default="the k best")
    ] = None,
    k: Annotated[int, Option("-k", help="Best labels to explain.", min=1)] = 3,
    n: Annotated[int, Option("-n", help="Words for and against to show.", min=1)] = 10,
    row: Annotated[int, Option(help="Row of FILE, from 0.", min=0)] = 0,
    json: options.Json = False,
    *,
    reading: Reading,
) -> None:
    """Show the words of a text for and against its best labels.

    Example: labelry explain tagger.labelry "acute pain in left knee" -k 1
    """
    from labelry.ranking.ranker import Explains, supports

    ranker = load_model(model, reading.jobs)
    if not supports(ranker, Explains):
        raise ValueError(
            f"{model} holds a {ranker.system} model; only a tagger or a linear tree can explain "
            "its labels"
        )
    x = _row(ranker, what, row, reading)
    if label is None:
        best = stoppable(ranker.topk_ids, x, k)[0][0]
        labels = ranker.classes_[best[best >= 0]].tolist()
        if not labels:
            raise ValueError("there is no label to explain: the model knows no word of the text")
    else:
        labels = [label_of(ranker, label)]
    one = x[0] if ranker.text_features_ is not None else x
    explanations = [stoppable(ranker.explain, one, each, n) for each in labels]
    if json:
        print_json({"explanations": [found._asdict() for found in explanations]})
        return
    for found in explanations:
        _print_explanation(found)


def _row(ranker: LabelRanker, what: str, row: int, reading: Reading) -> Any:
    """Return the text, or one row of the file, as a batch of one row."""
    path = Path(what)
    if len(what) > 255 or not path.exists() or path.is_dir():
        if ranker.text_features_ is None:
            raise ValueError(f"the model was trained on feature vectors: give a file, got {what!r}")
        return [what]
    before = 0
    for block in reading.unlabelled_blocks(path, ranker):
        if row < before + block.n_rows:
            return block.rows[row - before : row - before + 1]
        before += block.n_rows
    raise ValueError(f"{path} has {before} rows: --row must be below that, got {row}")


def _print_explanation(found: Explanation) -> None:
    sure = "not a candidate" if found.probability is None else f"{found.probability:.3f}"
    sides = (
        [(str(feature), f"{value:+.3f}") for feature, value in side]
        for side in (found.supporting, found.opposing)
    )
    rows = [(*a, *b) for a, b in zip_longest(*sides, fillvalue=("", ""))]
    print_table(rows, "for", "", "against", "", title=f"{found.label}: {sure}")
    say(f"other words {found.rest:+.3f}, bias {found.bias:+.3f}: margin {found.margin:+.3f}")
    if found.scores:
        said = ", ".join(f"{name} {score:.3f}" for name, score in found.scores.items())
        say(f"scores: {said}")


@reads_data
def report(
    model: Model,
    data: options.Labelled,
    out: Annotated[Path, options.out_option("HTML file to write.")],
    names: Annotated[
        Path | None,
        Option(
            metavar="FILE",
            help="Descriptions of labels, as in labelry train.",
            show_default="those of the training",
        ),
    ] = None,
    seed: options.Seed = 0,
    force: options.Force = False,
    quiet: options.Quiet = False,
    *,
    reading: Reading,
) -> None:
    """Write a report on a model as one HTML file that can be mailed.

    It says how good the model is and what to do next, and shows every label, thresholds,
    confused labels, examples, and a map of the labels.

    Example: labelry report tagger.labelry test.jsonl.gz --out report.html
    """
    from labelry.data.names import read_names

    with output(out, force) as target, progress_shown(quiet):
        ranker = load_model(model, reading.jobs)
        dataset = reading.read(data, model=ranker)
        descriptions = None if names is None else read_names(names)
        target.write(page_on(ranker, model, dataset, data.name, descriptions, seed))
    if not quiet:
        say(f"the report is in {out}; open it in a browser", err=True)


def page_on(
    ranker: LabelRanker,
    model: Path,
    dataset: Dataset,
    data_name: str,
    descriptions: dict[str, str] | None = None,
    seed: int = 0,
) -> str:
    """Return the report on a model that is saved in a directory."""
    from labelry.report.page import report_page
    from labelry.storage import modelfile

    found = modelfile.inspect(model)
    return stoppable(
        report_page,
        ranker,
        dataset,
        model_name=model.resolve().name,
        data_name=data_name,
        descriptions=descriptions,
        training=found.get("training"),
        size_bytes=found["size_bytes"],
        seed=seed,
    )
