"""The beginning of a report: how good the model is, and what would make it better."""

from __future__ import annotations

import math
import re
import shlex
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from labelry.metrics.ranking import frequency_bins
from labelry.report import figures
from labelry.report.markup import Content, add, element, isolated, table
from labelry.report.measures import CONFIDENCE, by_threshold
from labelry.report.mistakes import confusions
from labelry.report.subject import LeftOut, Subject, counted, of_100

# None of these is tuned: they say when a sentence is worth its space.
_CALIBRATED = 5  # points that probabilities may be off on average, and still be called right
_GAIN = 2  # points of F1 that another threshold must gain to be recommended
_UNKNOWN = (
    2  # percent of unknown labels, or of rows without a known word, that are worth a sentence
)
_TAIL_GAP = 10  # points by which rare labels must be found less often than the others
_UNSPLIT = 0.2  # share of the labels that hold a separator, if they look unsplit
_ALIKE = 3  # pairs of labels with nearly the same name that are listed
_MUTUAL = 3  # times that two labels must be taken for each other, each way
_HIGH = 90  # percent of right first labels from which longer training is not recommended


class Advice(NamedTuple):
    """A recommendation, and the command that follows it."""

    text: list[Content]
    command: str | None = None


def headline(subject: Subject) -> list[Content]:
    """Return the verdict in sentences, and the model beside the most frequent labels."""
    values, base, unit = subject.measures.values, subject.measures.baseline, subject.unit
    right = f"The first label is right for {of_100(values['P@1'])} {unit}s."
    lead = element("p", element("strong", right), class_="verdict")
    add(lead, f" {_beside_baseline(subject)}")
    sentences = element("ul", *(element("li", said) for said in _sentences(subject)), class_="said")
    rows: list[list[Content]] = []
    for what, name in (
        ("First label right", "P@1"),
        ("Right labels that are among the best five", "R@5"),
    ):
        for whose, value in (("this model", values[name]), ("most frequent labels", base[name])):
            if not math.isnan(value):
                rows.append([f"{what}: {whose}", f"{value:.1f} %", figures.bar_mark(value / 100)])
    caption = "Beside always giving the most frequent labels of the training."
    compared = table(caption, ["Measure", "Value", ""], rows, numbers=(1,))
    return [lead, element("div", sentences, compared, class_="pair")]


def _beside_baseline(subject: Subject) -> str:
    values, base = subject.measures.values["P@1"], subject.measures.baseline["P@1"]
    always = f"Always giving the most frequent label would be right for {of_100(base)}"
    low, high = subject.measures.intervals.get("P@1", (values, values))
    if low > base:
        return f"{always}."
    if high < base:
        return f"{always}: this model is worse than that."
    return f"{always}: this model is not clearly better than that."


def _sentences(subject: Subject) -> Iterator[str]:
    measures, unit, truth = subject.measures, subject.unit, subject.ranked.truth
    values = measures.values
    if not math.isnan(values["R@5"]):
        yield f"Of the right labels, {of_100(values['R@5'])} are among the best five."
    if measures.calibration is not None and not math.isnan(values["ECE"]):
        yield _calibration_sentence(subject)
        own = by_threshold(subject.ranked, [subject.model.threshold])[:, 0]
        covered = f"{of_100(own[3])} {unit}s get a label"
        hits = "" if math.isnan(own[1]) else f", and {of_100(own[1])} of these labels are right"
        yield f"From the model's threshold of {own[0]:.0f} % on, {covered}{hits}."
    if (coverage := values["coverage@5"]) == coverage:
        occurring = int(np.count_nonzero(subject.counts.true))
        found = f"{of_100(coverage)} are found at least once"
        yield f"Of the {counted(occurring, 'label')} that occur here, {found}."
    unseen = int(np.count_nonzero(truth.Y.indices >= subject.names.n_known))
    if unseen:
        n = len(np.unique(truth.Y.indices[truth.Y.indices >= subject.names.n_known]))
        share = of_100(100 * unseen / truth.Y.nnz)
        yield f"{counted(n, 'label')} ({share} occurrences) never seen in training count as missed."
    if lost := int((~subject.ranked.known).sum()):
        share = of_100(100 * lost / truth.n_rows)
        yield f"{counted(lost, unit)} ({share}) without a word that the model knows get no label."
    if "P@1" in measures.intervals:
        low, high = measures.intervals["P@1"]
        luck = f"{low:.1f} to {high:.1f} % of first labels would be right in other such samples"
        yield f"With {counted(truth.n_rows, unit)} as a sample, {luck} ({CONFIDENCE} % interval)."
    yield f"A prediction takes {1e3 * subject.ranked.seconds / truth.n_rows:.2g} ms."


def _calibration_sentence(subject: Subject) -> str:
    _, probability, hits = subject.measures.calibration.sum(axis=1)  # type: ignore[union-attr]
    error = subject.measures.values["ECE"]
    if error <= _CALIBRATED:
        return f"The probabilities can be taken as they are: they are off by {error:.1f} points."
    high = "too high" if probability > hits else "too low"
    return f"The probabilities are {high}: on average they are off by {error:.1f} points."


def next_steps(subject: Subject) -> list[Content]:
    """Return what to do next, in sentences, with the commands."""
    found = element("ol", class_="steps")
    for find in _ADVISERS:
        for advice in find(subject):
            item = element("li", element("p", *advice.text))
            if advice.command:
                add(item, element("pre", element("code", advice.command), tabindex=0))
            add(found, item)
    if not len(found):
        raise LeftOut("nothing stands out that would make this model better")
    return [found]


def _wrong_file(subject: Subject) -> Iterator[Advice]:
    """Warn of labels that the model does not know: the separator is wrong, or they are new."""
    truth, n_known = subject.ranked.truth, subject.names.n_known
    unseen = truth.Y.indices[truth.Y.indices >= n_known]
    share = 100 * len(unseen) / max(1, truth.Y.nnz)
    if share <= _UNKNOWN:
        return
    labels, times = np.unique(unseen, return_counts=True)
    often = int(labels[times.argmax()])
    text: list[Content] = [
        f"The model does not know {of_100(share)} label occurrences of this file. "
    ]
    text += ["The most frequent such label is ", subject.names.shown(often), ". "]
    if share > 50:
        text += ["Was the file read with another separator, or are labels spelt in another way?"]
        model = shlex.quote(subject.model_name)
        yield Advice(text, f"labelry report {model} TEST --label-separator ';' --out report.html")
    else:
        text += ["Train again with documents that have these labels."]
        yield Advice(text)


def _unsplit(subject: Subject) -> Iterator[Advice]:
    """Warn of labels that look like several labels joined."""
    names = subject.names.names[: subject.names.n_known]
    for sign in (";", "|", ","):
        holding = [name for name in names if sign in name]
        if len(holding) > _UNSPLIT * len(names):
            text = f"{counted(len(holding), 'label')} of {len(names):,} hold “{sign}”, such as "
            rest = (
                ". If it separates labels, say so when you train, or the model learns them joined."
            )
            example = element("b", isolated(holding[0], 60))
            yield Advice([text, example, rest], _train(subject, f"--label-separator {sign}"))
            return


def _alike(subject: Subject) -> Iterator[Advice]:
    """Warn of labels whose names differ only by case, blanks, hyphens, or a plural."""
    groups = defaultdict(list)
    for label, name in enumerate(subject.names.names[: subject.names.n_known]):
        key = re.sub(r"[\s_-]+", "", name).casefold()
        groups[key.removesuffix("s") if len(key) > 3 and not key[-2:].isdigit() else key].append(
            label
        )
    alike = [labels for key, labels in groups.items() if len(labels) > 1 and key]
    if not alike:
        return
    rows = subject.model.label_counts_
    alike.sort(key=lambda labels: -int(rows[labels].sum()))
    n = counted(len(alike), "group")
    text: list[Content] = [f"{n} of labels have nearly the same name: "]
    for i, labels in enumerate(alike[:_ALIKE]):
        text.append("; " if i else "")
        for j, label in enumerate(labels):
            shown = element("b", isolated(subject.names.names[label], 40))
            text += [" and " if j else "", shown, f" ({int(rows[label]):,})"]
    more = "; and more" if len(alike) > _ALIKE else ""
    yield Advice([*text, f"{more}. If they mean the same, write them in one way and train again."])


def _other_threshold(subject: Subject) -> Iterator[Advice]:
    """Recommend another threshold where its F1 is clearly better."""
    curve = subject.measures.by_threshold
    if curve is None or not subject.ranked.truth.Y.nnz:
        return
    now = by_threshold(subject.ranked, [subject.model.threshold])[:, 0]
    both = np.nan_to_num(curve)
    best = curve[:, int(_f1(both).argmax())]
    if _f1(best) < _f1(np.nan_to_num(now)) + _GAIN:
        return
    which = "Lower" if best[0] < now[0] else "Raise"
    text = (
        f"{which} the threshold from {now[0]:.0f} % to {best[0]:.0f} %: then {of_100(best[3])} "
        f"{subject.unit}s get a label (now {now[3]:.0f}), {of_100(best[1])} of these labels are "
        f"right (now {_rounded(now[1])}), and {of_100(best[2])} right labels are found (now "
        f"{now[2]:.0f})."
    )
    model = shlex.quote(subject.model_name)
    yield Advice([text], f"labelry predict {model} FILE --threshold {best[0] / 100:g}")


def _f1(columns: np.ndarray) -> np.ndarray:
    precision, recall = columns[1], columns[2]
    return 2 * precision * recall / np.maximum(precision + recall, 1e-9)


def _rare_labels(subject: Subject) -> Iterator[Advice]:
    """Say how well rare labels are found."""
    found = subject.measures.by_frequency
    tail, head = found["tail"]["R@5"], max(found["torso"]["R@5"], found["head"]["R@5"])
    if not tail + _TAIL_GAP < head:
        return
    rare = int((frequency_bins(subject.model.label_counts_) == 0).sum())
    text = (
        f"{rare:,} of {counted(subject.names.n_known, 'label')} have at most 5 {subject.unit}s in "
        f"training. They are found {of_100(tail)} times, others up to {head:.0f}. More "
        f"{subject.unit}s of these labels help most: sort the table of labels by “In training”."
    )
    if subject.model.names_ is None and subject.dataset.texts is not None:
        text += " Descriptions of the labels help too:"
        yield Advice([text], _train(subject, "--names DESCRIPTIONS"))
    else:
        yield Advice([text])


def _confused_pair(subject: Subject) -> Iterator[Advice]:
    """Name two labels that the model confuses in both directions."""
    names = subject.names
    for pair in confusions(subject.ranked.truth, names.n_known, 50):
        if min(pair.rows, pair.back) >= _MUTUAL:
            yield Advice(
                [
                    names.shown(pair.true),
                    " and ",
                    names.shown(pair.predicted),
                    f" are taken for each other, {pair.rows:,} and {pair.back:,} times. Write "
                    "down what tells them apart, correct the training labels, or merge the two.",
                ]
            )
            return


def _without_words(subject: Subject) -> Iterator[Advice]:
    lost = 100 * float(np.mean(~subject.ranked.known))
    if lost > _UNKNOWN and subject.dataset.texts is not None:
        text = f"{of_100(lost)} documents have no word that the model knows. "
        yield Advice([text, "Train with documents like them."])


def _longer_training(subject: Subject) -> Iterator[Advice]:
    model = subject.model
    if subject.measures.values["P@1"] >= _HIGH:
        return
    if model.system == "tagger" and model.get_params()["quality"] != "best":
        text = "Train longer: --quality best takes more time and is usually more accurate."
        yield Advice([text], _train(subject, "--quality best"))
    elif model.system != "tagger":
        text = f"Compare {model.system} with the default of labelry train, on the same files."
        yield Advice([text], f"labelry compare TRAIN TEST --systems {model.system},blend")


def _more_rows(subject: Subject) -> Iterator[Advice]:
    if subject.measures.values["P@1"] < _HIGH:
        each = subject.model.label_counts_.sum() / subject.names.n_known
        text = (
            f"Train with more {subject.unit}s: a label had {each:.0f} on average. To see what they "
            "would bring, train on half of the file and compare the two reports."
        )
        yield Advice([text])


def _train(subject: Subject, flags: str) -> str:
    """Return the command that trains the model again, with other flags."""
    file = subject.model.about_.source.file or "TRAIN"
    return shlex.join(["labelry", "train", file, *flags.split(), "--out", subject.model_name, "-f"])


def _rounded(value: float) -> str:
    return "none" if math.isnan(value) else f"{value:.0f}"


# The order of the page: errors first, then quick changes, then work.
_ADVISERS = (
    _wrong_file,
    _unsplit,
    _alike,
    _without_words,
    _other_threshold,
    _confused_pair,
    _rare_labels,
    _longer_training,
    _more_rows,
)
