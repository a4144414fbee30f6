"""Write a report on a model as one HTML file that loads no other file."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from datetime import datetime
from importlib.resources import files
from typing import Any

import numpy as np

from labelry import memory
from labelry._version import __version__
from labelry.data.dataset import Dataset
from labelry.estimators.base import LabelRanker
from labelry.linalg.parallel import resolve_jobs
from labelry.ranking.ranker import HasLabelVectors, supports
from labelry.report.markup import Content, Element, add, element, isolated, rendered, shortened
from labelry.report.measures import measure, rank
from labelry.report.sections import SECTIONS, LeftOut, Subject
from labelry.report.shown_labels import ShownLabels

_PARAMETER = 60  # most characters of a parameter value


def report_page(
    model: LabelRanker,
    dataset: Dataset,
    *,
    model_name: str,
    data_name: str,
    descriptions: Mapping[str, str] | None = None,
    training: dict[str, Any] | None = None,
    size_bytes: int | None = None,
    seed: int = 0,
) -> str:
    """Return the report on a fitted model, measured on labelled rows.

    Parameters
    ----------
    descriptions : mapping, optional
        Description of each label, by name; by default those of the training.
    training : dict, optional
        The result of `labelry.storage.modelfile.read_training`.
    size_bytes : int, optional
        Bytes of the model's files.
    seed : int
        Seed of the bootstrap, the choice of examples and the map.
    """
    rng = np.random.default_rng(seed)
    names = ShownLabels(model, dataset, descriptions)
    ranked = rank(model, dataset)
    measures = measure(model, ranked, rng)
    vectors = model.label_vectors() if supports(model, HasLabelVectors) else None
    subject = Subject(model, dataset, names, ranked, measures, vectors, training, rng)
    main = element("main")
    reasons: list[Content] = []
    links: list[Content] = []
    for group in SECTIONS:
        found = []
        for name, title, make in group:
            try:
                found.append(_section(name, title, *make(subject), id=name))
            except LeftOut as why:
                reasons.append(element("li", f"{title}: {why}."))
            else:
                links += [element("a", title, href=f"#{name}"), " "]
        add(main, *(found if len(found) < 2 else [element("div", *found, class_="pair")]))
    if reasons:
        items = element("ul", *reasons, class_="quiet left-out")
        add(main, _section("left-out", "Not in this report", items))
    head = _head(f"{model_name}: labelry report")
    header = _header(subject, model_name, data_name, size_bytes, links)
    footer = element("p", f"Made by labelry {__version__}.", class_="quiet small")
    script = element("script", _own("map.js"))
    body = element("body", header, main, element("footer", footer), script)
    return "<!doctype html>\n" + rendered(element("html", head, body, lang="en")) + "\n"


def _section(name: str, title: str, *parts: Content, **attributes: object) -> Element:
    heading = element("h2", title, id=f"{name}-title")
    return element("section", heading, *parts, **attributes, aria_labelledby=f"{name}-title")


def _head(title: str) -> Element:
    style, script = _own("base.css") + _own("style.css"), _own("map.js")
    # The page may load nothing, and run only its own style and script, because names of labels and
    # texts can hold any markup.
    policy = (
        f"default-src 'none'; style-src '{_policy_hash(style)}'; "
        f"script-src '{_policy_hash(script)}'; "
        "base-uri 'none'; form-action 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    )
    return element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", name="generator", content=f"labelry {__version__}"),
        element("title", title),
        element("style", style),
    )


def _header(
    subject: Subject, model_name: str, data_name: str, size_bytes: int | None, links: list[Content]
) -> Element:
    date = datetime.now().astimezone()
    lead = element("p", class_="quiet")
    add(lead, "Measured on ", isolated(data_name, 80))
    add(lead, " on ", element("time", f"{date:%d %B %Y, %H:%M}", datetime=date.isoformat()))
    facts = element("dl", class_="facts")
    for name, value in _facts(subject, size_bytes).items():
        wide = "wide" if len(value) > _PARAMETER else None
        add(facts, element("div", element("dt", name), element("dd", value), class_=wide))
    nav = element("nav", *links, aria_label="Sections")
    title = element("h1", isolated(model_name, 80))
    return element("header", title, lead, nav, element("section", facts, aria_label="Facts"))


def _facts(subject: Subject, size_bytes: int | None) -> dict[str, str]:
    model, dataset, truth = subject.model, subject.dataset, subject.ranked.truth
    text = model.text_features_
    features = (
        f"{text.n_features_out_:,} features of texts"
        if text
        else f"{model.n_features_in_:,} features"
    )
    n_true = truth.n_true
    unseen = len(np.unique(truth.Y.indices[truth.Y.indices >= subject.names.n_known]))
    data = f"{dataset.n_rows:,} rows with {n_true.mean():.1f} labels on average"
    if without := int((n_true == 0).sum()):
        data += f", {without:,} without labels"
    if unseen:
        data += f", {unseen:,} label{'s' if unseen > 1 else ''} never seen in training"
    ms = 1e3 * subject.ranked.seconds / dataset.n_rows
    threads = resolve_jobs(model.n_jobs)
    own = {k: v for k, v in model.get_params(deep=False).items() if k != "n_jobs"}
    facts = {
        "System": model.system,
        "Trained on": f"{model.n_rows_:,} rows, {subject.names.n_known:,} labels, {features}",
        "Measured on": data,
        "Model": "not saved" if size_bytes is None else f"{memory.human(size_bytes)} on disk",
        "Prediction": f"{ms:.3g} ms a row, {threads} thread{'s' if threads > 1 else ''}",
        "Memory of this run": f"{memory.human(memory.peak())} at most",
        "labelry": __version__,
    }
    said = ", ".join(f"{name}={shortened(repr(v), _PARAMETER)}" for name, v in own.items())
    return facts | {"Parameters": said}


def _own(name: str) -> str:
    """Read a file of the page, and put a line break before it."""
    return "\n" + (files("labelry.report") / "page" / name).read_text("utf-8")


def _policy_hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
