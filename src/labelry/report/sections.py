"""The sections of a report. A section that does not apply to a model raises `LeftOut`."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from labelry._version import __version__
from labelry.arrays import I64
from labelry.estimators.base import LabelRanker
from labelry.linalg.parallel import resolve_jobs
from labelry.memory import human, peak
from labelry.metrics.ranking import BIN_NAMES, frequency_bins
from labelry.progress import phase
from labelry.report import figures
from labelry.report.examples import Example, examples, marked, strong_features
from labelry.report.label_map import label_map
from labelry.report.label_table import label_table
from labelry.report.map_canvas import map_canvas
from labelry.report.markup import Content, Element, add, element, isolated, shortened, table
from labelry.report.measures import CONFIDENCE, CUTOFFS, RESAMPLES, by_threshold, label_spectrum
from labelry.report.mistakes import confusions
from labelry.report.subject import LeftOut, Subject, counted, quiet
from labelry.report.verdict import headline, next_steps
from labelry.tagging.explanation import Explanation

_PAIRS = 15  # most pairs of confused labels
_PARAMETER = 60  # most characters of a parameter value
_TEXT = 700  # most characters of an example
_TRUE = 8  # most true labels that are listed for an example
_BIN_ROWS = {"tail": "at most 5", "torso": "6 to 50", "head": "more than 50"}


def accuracy(subject: Subject) -> list[Content]:
    values, intervals = subject.measures.values, subject.measures.intervals
    sure = table(
        f"In percent. Intervals: {CONFIDENCE} % by the bootstrap over rows, {RESAMPLES:,} samples.",
        ["Measure", "Value", "Interval", ""],
        [
            [
                name,
                _percent(values[name], 2),
                _interval_text(both),
                figures.bar_mark(values[name] / 100),
            ]
            for name, both in intervals.items()
        ],
        numbers=(1, 2),
    )
    others = table(
        "In percent, at k labels a row.",
        ["Measure", *(f"k = {k}" for k in CUTOFFS)],
        [
            [name, *(_percent(values[f"{name}@{k}"], 2) for k in CUTOFFS)]
            for name in ("nDCG", "R", "micro-F1", "macro-F1", "coverage")
        ],
        numbers=(1, 2, 3),
    )
    note = quiet(
        "P@k: share of right labels among the best k. PSP@k: the same where rare labels count "
        "more, over what is possible. R: share of a row's right labels that is found. Coverage: "
        "share of the labels that is found somewhere. Labels that the model never saw count as "
        "missed."
    )
    return [note, element("div", sure, others, class_="pair")]


def by_cutoff(subject: Subject) -> list[Content]:
    if subject.names.n_known < 2:
        raise LeftOut("the model knows one label only")
    curve = subject.measures.curve
    n = len(curve["P"])
    ticks = sorted({k for k in (1, 5, 10, 15, 20) if k < n} | {n})
    x = figures.Axis(f"Labels predicted per {subject.unit} (k)", 1, n, [(k, str(k)) for k in ticks])
    chart = figures.share_chart(x, range(1, n + 1), {"Precision": curve["P"], "Recall": curve["R"]})
    return [quiet("With more labels, more of the right ones are found, and more are wrong."), chart]


def thresholds(subject: Subject) -> list[Content]:
    curve, own = subject.measures.by_threshold, subject.model.threshold
    if curve is None:
        raise LeftOut(f"the scores of {subject.model.system} are no probabilities here")
    x = figures.percent_axis("Threshold of the probability, percent")
    names = ("Precision", "Recall", f"{subject.unit.capitalize()}s")
    chart = figures.share_chart(x, curve[0].tolist(), dict(zip(names, curve[1:], strict=True)))
    listed = sorted({*range(10, 100, 20), round(100 * own)})
    rows = by_threshold(subject.ranked, [t / 100 for t in listed]).T.tolist()
    cells = [
        [
            f"{t:.0f} %" + (" (the model's)" if round(t) == round(100 * own) else ""),
            *map(_percent, row),
        ]
        for t, *row in rows
    ]
    note = quiet(
        "Labels from a threshold on. Precision: how many of them are right; recall: how many of "
        f"the right labels are among them; {names[2].lower()}: how many get a label at all."
    )
    head = ["Threshold", "Precision", "Recall", f"{names[2]} with a label"]
    numbers = table("In percent.", head, cells, numbers=(1, 2, 3))
    return [note, element("div", chart, numbers, class_="pair")]


def by_frequency(subject: Subject) -> list[Content]:
    truth = subject.ranked.truth
    bins = frequency_bins(subject.model.label_counts_, n_labels=truth.n_labels)
    of_model = np.bincount(bins[: subject.names.n_known], minlength=len(BIN_NAMES))
    of_data = np.bincount(bins[truth.Y.indices], minlength=len(BIN_NAMES))
    found, rows = [], []
    for i, name in enumerate(BIN_NAMES):
        recalls = [(f"R@{k}", subject.measures.by_frequency[name][f"R@{k}"]) for k in CUTOFFS]
        found.append((f"{name}: {_BIN_ROWS[name]}", recalls))
        cells = (f"{of_model[i]:,}", f"{of_data[i]:,}", *(_percent(value) for _, value in recalls))
        rows.append([f"{name}, {_BIN_ROWS[name]}", *cells])
    note = quiet(
        "Share of the right labels found among the best 1, 3 and 5, by how often a label was seen."
    )
    head = ["Rows in training", "Labels", "True here", *(f"R@{k}" for k in CUTOFFS)]
    figure = element("figure", figures.frequency_chart(found))
    numbers = table("In percent.", head, rows, numbers=range(1, 6))
    return [note, element("div", figure, numbers, class_="pair")]


def calibration(subject: Subject) -> list[Content]:
    totals = subject.measures.calibration
    if totals is None:
        raise LeftOut(f"the scores of {subject.model.system} are no probabilities here")
    if not totals[0].any():
        raise LeftOut("no label was predicted")
    error = subject.measures.values["ECE"]
    note = quiet(
        "How many of the labels with a probability are right, of the best five each time. On the "
        "dashed line probabilities are what they say; the mean distance (ECE) is "
        f"{error:.2f} points. Larger dots: more predictions."
    )
    figure = element("figure", figures.calibration_chart(totals))
    return [note, figure]


def embedding(subject: Subject) -> list[Content]:
    found = label_spectrum(subject.model, subject.vectors)
    if found is None or not (found[0] > 0).any():
        raise LeftOut(f"{subject.model.system} has no label embedding")
    values, what = found
    note = quiet(
        f"{what}s of the label embedding, largest first. Where the curve is still high at its "
        "end, more dimensions may help."
    )
    figure = element("figure", figures.spectrum_chart(values, what))
    return [note, figure]


def labels(subject: Subject) -> list[Content]:
    found, n = label_table(subject, _by_frequency(subject))
    said = (
        f"Press a heading to sort. Of a {subject.unit} with R right labels the best R predictions "
        "count. Precision: how many of the predictions of a label are right; recall: how many of "
        f"its {subject.unit}s here are found; F1: the harmonic mean of both; in percent."
    )
    if n < subject.names.n_known:
        said += f" Of {subject.names.n_known:,} labels the {n:,} most frequent are listed."
    return [quiet(said), *found]


def map_of_labels(subject: Subject) -> list[Content]:
    names, counts = subject.names, subject.model.label_counts_
    if subject.vectors is None:
        raise LeftOut(f"{subject.model.system} has no label vectors")
    if names.n_known < 3:
        raise LeftOut("there are fewer than three labels")
    with phase("label map"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # layout methods warn about unusual vectors
        plain = [names.plain(label) for label in range(names.n_known)]
        found = label_map(subject.vectors, counts, plain, subject.rng)
    return [*map_canvas(found, counts, _by_frequency(subject))]


def _by_frequency(subject: Subject) -> I64:
    """Return the labels of the model in the order of the page: the most frequent first."""
    return np.argsort(-np.asarray(subject.model.label_counts_), kind="stable")


def confused(subject: Subject) -> list[Content]:
    names = subject.names
    unit, lost = subject.unit, int((~subject.ranked.known).sum())
    found = confusions(subject.ranked.truth, names.n_known, _PAIRS)
    if not found:
        raise LeftOut("no label was taken for another")
    note = quiet(
        f"The best R predictions of a {unit} with R right labels count. Each right label that is "
        "missed is paired with the wrong label that is ranked highest."
        + (f" {counted(lost, unit)} without a known word are left out." if lost else "")
    )
    rows: list[list[Content]] = [
        [
            names.shown(pair.true),
            names.shown(pair.predicted),
            f"{pair.rows:,} of {pair.of:,}",
            figures.bar_mark(pair.rows / pair.of),
            f"{pair.back:,}",
        ]
        for pair in found
    ]
    rows_name = f"{unit.capitalize()}s"
    head = ["Right label", "Predicted in its place", rows_name, "", "The other way round"]
    caption = f"The {len(found)} pairs with the most {unit}s."
    found_table = table(caption, head, rows, numbers=(2, 4))
    return [note, found_table]


def shown_examples(subject: Subject) -> list[Content]:
    found = examples(subject.model, subject.dataset, subject.ranked, subject.rng)
    if not found:
        raise LeftOut("no row has a label")
    note = (
        f"Drawn at random: {subject.unit}s whose first label is right, near misses (another of the "
        "best five is right) and wrong ones; the first of the file has number 0. "
    )
    if any(example.explanation is not None for example in found):
        note += "Marked: words for the first label. Wavy: words against it."
    else:
        note += f"A {subject.model.system} model does not explain itself, so no words are marked."
    cards = [_example_card(subject, example) for example in found]
    return [quiet(note), element("div", *cards, class_="examples")]


def _example_card(subject: Subject, example: Example) -> Element:
    names, why = subject.names, example.explanation
    card = element(
        "article",
        element("h3", f"{subject.unit.capitalize()} {example.row:,}: {example.kind}"),
        class_="card",
    )
    if example.text is not None:
        text = shortened(example.text, _TEXT)
        parts: list[Content] = [text]
        if why is not None:
            spans = marked(text, why)
            parts = [element("mark", part, class_=kind) if kind else part for part, kind in spans]
        add(card, element("p", element("bdi", *parts), class_="said"))
    elif example.n_features is not None:
        add(card, element("p", f"{example.n_features:,} features that are not zero"))
    add(card, _guesses(subject, example))
    predicted = {label for label, _ in example.predicted}
    missed = [label for label in example.true if label not in predicted]
    if missed:
        add(card, _listed("Right, but not among these: ", [names.shown(m) for m in missed]))
    if why is not None:
        add(card, _words(subject, why))
    return card


def _guesses(subject: Subject, example: Example) -> Element:
    guesses = element("ul", class_="guesses")
    for label, score in example.predicted:
        right = label in example.true
        sign = element("span", "✓" if right else "", class_="right")
        if right:
            sign.attrib |= {"role": "img", "aria-label": "right"}
        said = f"{100 * score:.1f} %" if subject.model.probabilities else f"{score:.3g}"
        number = element("span", said, class_="number")
        add(guesses, element("li", sign, subject.names.shown(label), number))
    return guesses


def _words(subject: Subject, why: Explanation) -> Element:
    said = element("p", class_="small quiet")
    if not (why.supporting or why.opposing):
        return add(said, "No feature of this row speaks for the first label, or against it.")
    for what, side in zip(("For ", " Against "), strong_features(why), strict=True):
        if side:
            add(said, what, element("b", isolated(str(why.label), 40)), ": ")
            words = (f"{_feature(subject, f)} {_signed(value)}" for f, value in side)
            add(said, element("bdi", ", ".join(words)), ".")
    return said


def _feature(subject: Subject, feature: str | int) -> str:
    if isinstance(feature, str):
        return shortened(feature, 40)
    names = subject.dataset.feature_names
    return f"feature {feature}" if names is None else shortened(names[feature], 40)


def _signed(value: float) -> str:
    return f"{value:+.2f}".replace("-", "−")


def _listed(lead: str, items: Sequence[Element]) -> Element:
    found = element("p", lead, class_="small")
    for i, item in enumerate(items[:_TRUE]):
        add(found, "; " if i else "", item)
    more = len(items) - _TRUE
    return add(found, f"; and {more:,} more") if more > 0 else found


def training(subject: Subject) -> list[Content]:
    record = subject.training
    if record is None:
        raise LeftOut("the model has no record of its training; labelry train makes one")
    if "damaged" in record:
        raise LeftOut(record["damaged"])
    longest = max([p["seconds"] for p in record["phases"]] or [0]) or 1
    rows: list[list[Content]] = []
    for p in record["phases"]:
        often = f" ({p['times']} times)" if p["times"] > 1 else ""
        rise = human(p["rise_bytes"]) if p["rise_bytes"] else "–"
        mark = figures.bar_mark(p["seconds"] / longest)
        rows.append([shortened(p["name"], 60) + often, f"{p['seconds']:.1f} s", mark, rise])
    other = max(0.0, record["seconds"] - sum(p["seconds"] for p in record["phases"]))
    rows.append(
        ["everything else", f"{other:.1f} s", figures.bar_mark(other / max(longest, other)), ""]
    )
    note = quiet(
        f"{record['seconds']:,.1f} s in all, reading included, with at most "
        f"{human(record['peak_bytes'])} of memory."
    )
    head = ["Phase", "Time", "", "Raised the peak of memory by"]
    found = table("Phases in the order in which they began.", head, rows, numbers=(1, 3))
    return [note, found]


def _interval_text(interval: tuple[float, float]) -> str:
    return f"{interval[0]:.1f} – {interval[1]:.1f}"


def _percent(value: float, digits: int = 1) -> str:
    return "–" if math.isnan(value) else f"{value:.{digits}f}"


def system(subject: Subject) -> list[Content]:
    """Return what the model is."""
    model = subject.model
    text = model.text_features_
    features = f"{model.n_features_in_:,}" if text is None else f"{text.n_features_out_:,} of texts"
    threads = counted(resolve_jobs(model.n_jobs), "thread")
    facts = {
        "System": model.system,
        "Trained on": f"{model.n_rows_:,} {subject.unit}s, {subject.names.n_known:,} labels",
        "Trained": f"{model.about_.trained} from {model.about_.source.file or 'Python'}",
        "Features": features,
        "Model": "not saved"
        if subject.size_bytes is None
        else f"{human(subject.size_bytes)} on disk",
        "Prediction": f"{1e3 * subject.ranked.seconds / subject.dataset.n_rows:.3g} ms, {threads}",
        "Memory of this run": f"{human(peak())} at most",
        "labelry": __version__,
    } | {name: shortened(repr(value), _PARAMETER) for name, value in _parameters(model).items()}
    rows: list[list[Content]] = [[name, isolated(said, 120)] for name, said in facts.items()]
    return [table("The model and its parameters.", ["", ""], rows)]


def _parameters(model: LabelRanker) -> dict[str, Any]:
    return {name: v for name, v in model.get_params(deep=False).items() if name != "n_jobs"}


# Id, title and function of each section, in the order of the page. Sections of one inner tuple are
# placed side by side.
Sections = tuple[tuple[tuple[str, str, Callable[[Subject], list[Content]]], ...], ...]
SECTIONS: Sections = (
    (("headline", "In short", headline),),
    (("next", "What to do next", next_steps),),
    (("labels", "Labels", labels),),
    (("thresholds", "Thresholds", thresholds),),
    (("label-map", "Label map", map_of_labels),),
    (("confusion", "Most confused labels", confused),),
    (("examples", "Examples", shown_examples),),
    (("calibration", "Calibration", calibration), ("by-k", "Accuracy against k", by_cutoff)),
    (("by-frequency", "Accuracy by label frequency", by_frequency),),
)
# These sections are folded at the end of the page.
FOLDED: Sections = (
    (("accuracy", "All measures", accuracy),),
    (
        ("system", "Model and parameters", system),
        ("spectrum", "Spectrum of the embedding", embedding),
    ),
    (("training", "Training", training),),
)
