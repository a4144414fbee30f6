"""The sections of a report. A section that does not apply to a model raises `LeftOut`."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from labelry.data.dataset import Dataset
from labelry.estimators.base import LabelRanker
from labelry.memory import human
from labelry.metrics.ranking import BIN_NAMES, frequency_bins
from labelry.progress import phase
from labelry.report import figures
from labelry.report.examples import Example, examples, marked, strong_features
from labelry.report.label_map import LabelMap, label_map
from labelry.report.map_figure import map_figure
from labelry.report.markup import Content, Element, add, element, isolated, shortened, table
from labelry.report.measures import CONFIDENCE, CUTOFFS, RESAMPLES, Measures, Ranked, label_spectrum
from labelry.report.mistakes import FEWEST_ROWS, LabelScore, confusions, extremes
from labelry.report.shown_labels import ShownLabels
from labelry.tagging.explanation import Explanation

_PAIRS = 15  # most pairs of confused labels
_EXTREMES = 10  # labels with the best F1, and as many with the worst
_TEXT = 700  # most characters of an example
_TRUE = 8  # most true labels that are listed for an example
_BIN_ROWS = {"tail": "at most 5", "torso": "6 to 50", "head": "more than 50"}
_LEADER = 30  # most characters of a label in the legend of the map


class LeftOut(Exception):
    """Raised with the reason why a section is left out."""


class Subject(NamedTuple):
    """The data that sections are made from."""

    model: LabelRanker
    dataset: Dataset
    names: ShownLabels
    ranked: Ranked
    measures: Measures
    vectors: NDArray[np.float32] | None
    training: dict[str, Any] | None
    rng: np.random.Generator


def headline(subject: Subject) -> list[Content]:
    """Return the few numbers that matter most."""
    values, intervals = subject.measures.values, subject.measures.intervals
    shown = {
        "First label right": "P@1",
        "Right labels among the best five": "R@5",
        "First label right, rare labels counting more": "PSP@1",
        "Probabilities off by": "ECE",
    }
    cards = [
        (
            what,
            f"{values[name]:.1f} %",
            f"{name}: {_interval_text(intervals[name])}" if name in intervals else name,
        )
        for what, name in shown.items()
        if not math.isnan(values.get(name, math.nan))
    ]
    ms = 1e3 * subject.ranked.seconds / subject.dataset.n_rows
    cards.append(("Time for a row", f"{ms:.2g} ms", "measured in this run"))
    found = element("div", class_="cards")
    for what, value, note in cards:
        small = element("span", note, class_="quiet small")
        add(found, element("div", what, element("b", value), small, class_="card"))
    return [found]


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
    note = _quiet(
        "P@k: share of right labels among the best k. PSP@k: the same where rare labels count "
        "more, over what is possible. R: share of a row's right labels that is found. Coverage: "
        "share of the labels that is found somewhere. Labels that the model never saw count as "
        "missed."
    )
    return [note, element("div", sure, others, class_="pair")]


def by_cutoff(subject: Subject) -> list[Content]:
    if subject.names.n_known < 2:
        raise LeftOut("the model knows one label only")
    note = _quiet("More labels a row: more of the right ones are found, more of them are wrong.")
    chart = figures.cutoff_chart(subject.measures.curve)
    return [note, element("figure", chart)]


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
    note = _quiet(
        "Share of the right labels found among the best 1, 3 and 5, by how often a label was seen."
    )
    head = ["Rows in training", "Labels", "True here", *(f"R@{k}" for k in CUTOFFS)]
    figure = element("figure", figures.frequency_chart(found))
    numbers = table("In percent.", head, rows, numbers=range(1, 6))
    return [note, figure, numbers]


def calibration(subject: Subject) -> list[Content]:
    totals = subject.measures.calibration
    if totals is None:
        raise LeftOut(f"the scores of {subject.model.system} are no probabilities here")
    if not totals[0].any():
        raise LeftOut("no label was predicted")
    error = subject.measures.values["ECE"]
    note = _quiet(
        "How many of the labels with a probability are right, of the best five of each row. On the "
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
    note = _quiet(
        f"{what}s of the label embedding, largest first. Where the curve is still high at its "
        "end, more dimensions may help."
    )
    figure = element("figure", figures.spectrum_chart(values, what))
    return [note, figure]


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
    drawn = map_figure(found, counts, plain)
    limits = [
        f"the {n:,} most frequent labels {verb}"
        for n, verb in ((drawn.n_drawn, "are drawn"), (drawn.n_named, "have a name here"))
        if n < names.n_known
    ]
    note = _quiet(
        "Similar labels lie side by side; colours are groups of similar labels, named by their "
        "most frequent ones."
        + (f" Of {names.n_known:,}, " + " and ".join(limits) + "." if limits else "")
    )
    tip = element("div", id="map-name", role="status", hidden="hidden")
    frame = element("div", drawn.svg, tip, class_="map-frame")
    hint = _quiet(
        "Point at a label to see its name, or go from label to label with the arrow keys."
    )
    hint.attrib |= {"id": "map-help", "class": "quiet small"}
    return [note, element("figure", frame), _legend(found, plain), hint]


def _legend(found: LabelMap, names: list[str]) -> Element:
    legend = element("ul", class_="legend", aria_label="Groups, by their most frequent labels")
    for group, leaders in enumerate(found.leaders.tolist()):
        said = ", ".join(shortened(names[label], _LEADER) for label in leaders if label >= 0)
        dot = element("svg", viewBox="0 0 10 10", aria_hidden="true")
        add(dot, element("path", d="M5 5h0", class_=f"group-{group % 12}", stroke_width=9))
        add(legend, element("li", dot, element("span", element("bdi", said), title=said)))
    return legend


def confused(subject: Subject) -> list[Content]:
    names = subject.names
    found = confusions(subject.ranked.truth, names.n_known, _PAIRS)
    if not found:
        raise LeftOut("no label was taken for another")
    note = _quiet(
        "The best R predictions of a row with R right labels count. Each right label that is "
        "missed is paired with the wrong label that is ranked highest."
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
    head = ["Right label", "Predicted in its place", "Rows", "", "The other way round"]
    caption = f"The {len(found)} pairs with the most rows."
    found_table = table(caption, head, rows, numbers=(2, 4))
    return [note, found_table]


def best_and_worst(subject: Subject) -> list[Content]:
    names, counts = subject.names, subject.model.label_counts_
    best, worst, of = extremes(subject.ranked.truth, names.n_known, _EXTREMES)
    if not best:
        raise LeftOut(f"fewer than two labels have {FEWEST_ROWS} rows here")

    def cells(score: LabelScore) -> list[Content]:
        percents = (f"{100 * share:.0f}" for share in (score.f1, score.precision, score.recall))
        return [names.shown(score.label), *percents, f"{score.rows:,}", f"{counts[score.label]:,}"]

    head = ["Label", "F1", "Precision", "Recall", "Rows here", "In training"]
    note = _quiet(
        "F1 in percent, where of a row with R right labels the best R are predicted; of the "
        f"{of:,} labels with at least {FEWEST_ROWS} rows here."
    )
    tables = [
        table(f"The {len(part)} {which}.", head, map(cells, part), numbers=range(1, 6))
        for which, part in (("best", best), ("worst", worst))
    ]
    return [note, *tables]


def shown_examples(subject: Subject) -> list[Content]:
    found = examples(subject.model, subject.dataset, subject.ranked, subject.rng)
    if not found:
        raise LeftOut("no row has a label")
    note = (
        "Drawn at random: rows whose first label is right, near misses (another of the best five "
        "is right) and wrong ones; the first row is row 0. "
    )
    if any(example.explanation is not None for example in found):
        note += "Marked: words that speak for the first label; wavy: against it."
    else:
        note += f"A {subject.model.system} model does not explain itself, so no words are marked."
    cards = [_example_card(subject, example) for example in found]
    return [_quiet(note), element("div", *cards, class_="examples")]


def _example_card(subject: Subject, example: Example) -> Element:
    names, why = subject.names, example.explanation
    card = element("article", element("h3", f"Row {example.row:,}: {example.kind}"), class_="card")
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
    note = _quiet(
        f"{record['seconds']:,.1f} s in all, reading included, with at most "
        f"{human(record['peak_bytes'])} of memory."
    )
    head = ["Phase", "Time", "", "Raised the peak of memory by"]
    found = table("Phases in the order in which they began.", head, rows, numbers=(1, 3))
    return [note, found]


def _quiet(text: str) -> Element:
    return element("p", text, class_="quiet")


def _interval_text(interval: tuple[float, float]) -> str:
    return f"{interval[0]:.1f} – {interval[1]:.1f}"


def _percent(value: float, digits: int = 1) -> str:
    return "–" if math.isnan(value) else f"{value:.{digits}f}"


# Id, title and function of each section, in the order of the page. Sections of one inner tuple are
# placed side by side.
SECTIONS: tuple[tuple[tuple[str, str, Callable[[Subject], list[Content]]], ...], ...] = (
    (("headline", "In short", headline),),
    (("accuracy", "Accuracy", accuracy),),
    (
        ("by-frequency", "Accuracy by label frequency", by_frequency),
        ("by-k", "Accuracy against k", by_cutoff),
    ),
    (
        ("calibration", "Calibration", calibration),
        ("spectrum", "Spectrum of the embedding", embedding),
    ),
    (("label-map", "Label map", map_of_labels),),
    (("confusion", "Most confused labels", confused),),
    (("labels", "Best and worst labels", best_and_worst),),
    (("examples", "Examples", shown_examples),),
    (("training", "Training", training),),
)
