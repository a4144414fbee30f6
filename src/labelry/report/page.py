"""Write a report on a model as one HTML file that loads no other file."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from importlib.resources import files
from typing import Any

import numpy as np

from labelry._version import __version__
from labelry.data.dataset import Dataset
from labelry.estimators.base import LabelRanker
from labelry.ranking.ranker import HasLabelVectors, supports
from labelry.report.markup import Content, Element, add, element, isolated, rendered
from labelry.report.measures import measure, rank
from labelry.report.mistakes import label_counts
from labelry.report.sections import FOLDED, SECTIONS, Sections
from labelry.report.shown_labels import ShownLabels
from labelry.report.subject import LeftOut, Subject, counted


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
    counts = label_counts(ranked.truth)
    subject = Subject(
        model,
        dataset,
        names,
        ranked,
        measures,
        counts,
        vectors,
        training,
        rng,
        model_name,
        size_bytes,
    )
    main, reasons, links = element("main"), list[Content](), list[Content]()
    add(main, *_sections(subject, SECTIONS, reasons, links))
    folded = element("details", element("summary", "For engineers"), id="engineers")
    links.append(element("a", "For engineers", href="#engineers"))
    add(main, add(folded, *_sections(subject, FOLDED, reasons, [])))
    if reasons:
        items = element("ul", *reasons, class_="quiet left-out")
        add(folded, _section("left-out", "Not in this report", items))
    script = _script()
    body = element("body", _header(subject, data_name, links), main)
    footer = element("p", f"Made by labelry {__version__}.", class_="quiet small")
    add(body, element("footer", footer), element("script", script, type="module"))
    head = _head(f"{model_name}: labelry report", script)
    return "<!doctype html>\n" + rendered(element("html", head, body, lang="en")) + "\n"


def _sections(
    subject: Subject, groups: Sections, reasons: list[Content], links: list[Content]
) -> Iterator[Element]:
    """Yield the sections that apply to a model; write down why others do not, and links."""
    for group in groups:
        found = []
        for name, title, make in group:
            try:
                found.append(_section(name, title, *make(subject), id=name))
            except LeftOut as why:
                reasons.append(element("li", f"{title}: {why}."))
            else:
                links += [element("a", title, href=f"#{name}"), " "]
        yield from found if len(found) < 2 else [element("div", *found, class_="pair")]


def _section(name: str, title: str, *parts: Content, **attributes: object) -> Element:
    heading = element("h2", title, id=f"{name}-title")
    return element("section", heading, *parts, **attributes, aria_labelledby=f"{name}-title")


def _head(title: str, script: str) -> Element:
    style = _own("base.css") + _own("report.css")
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


def _header(subject: Subject, data_name: str, links: list[Content]) -> Element:
    date = datetime.now().astimezone()
    lead = element("p", class_="quiet")
    add(lead, "Measured on ", isolated(data_name, 80))
    add(lead, " on ", element("time", f"{date:%d %B %Y, %H:%M}", datetime=date.isoformat()), ": ")
    add(lead, _measured_on(subject))
    nav = element("nav", *links, aria_label="Sections")
    return element("header", element("h1", isolated(subject.model_name, 80)), lead, nav)


def _measured_on(subject: Subject) -> str:
    n_true = subject.ranked.truth.n_true
    rows = counted(subject.dataset.n_rows, subject.unit)
    said = f"{rows} with {n_true.mean():.1f} labels on average"
    if without := int((n_true == 0).sum()):
        said += f", {without:,} without labels"
    return f"{said}. The model was trained on {counted(subject.model.n_rows_, subject.unit)}."


def _script() -> str:
    """Return the scripts of the page in one: modules, of which one imports the other."""
    text = "".join(map(_own, ("map-painter.js", "map.js", "report.js")))
    return re.sub(r"^import .*;\n|^export ", "", text, flags=re.MULTILINE)


def _own(name: str) -> str:
    """Read a file of the page, and put a line break before it."""
    return "\n" + (files("labelry.report") / "page" / name).read_text("utf-8")


def _policy_hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
