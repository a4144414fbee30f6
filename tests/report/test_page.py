"""The report as a file: what is in it, what is left out, and what it does in a browser."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array, eye_array

import labelry
from labelry.data.dataset import Dataset
from labelry.data.labels import indicator
from labelry.estimators import SYSTEMS, system_class
from labelry.report.page import report_page

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))),
    None,
)
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]

# Labels, titles and texts that would do harm in a page that took them for markup.
IMAGE = "<img src=x onerror=window.harmed=1>"
SCRIPT = "</script><script>window.harmed=2</script>"
QUOTES = "\u202e\"]}'`${window.harmed=7}\x07 &quot;\u2028"
TITLES = {
    IMAGE: "\u202eowl\u202c <svg onload=window.harmed=4>",
    "cat": 'Felis" onmouseover="window.harmed=3',
}
WORDS = {
    "cat": "cat purrs whiskers",
    "dog": "dog barks bone",
    "horse": "horse gallops saddle",
    "bee": "bee buzzes honey",
    IMAGE: "owl hoots <b onclick=window.harmed=5>night</b>",
    SCRIPT: "fish swims </style><script>window.harmed=6</script>",
    QUOTES: "hen clucks \u202eegg\x08",
}
TRAINING = {
    "seconds": 10.0,
    "peak_bytes": 3 << 20,
    "phases": [
        {"name": f"reading {IMAGE}", "times": 1, "seconds": 1.5, "rise_bytes": 0},
        {"name": "fitting", "times": 2, "seconds": 6.0, "rise_bytes": 1 << 20},
    ],
}


def texts(n: int, seed: int = 0) -> Dataset:
    """Texts about animals; a fifth has the labels of another text, so that something is wrong."""
    rng = np.random.default_rng(seed)
    labels = [rng.choice(list(WORDS), rng.integers(1, 3), False).tolist() for _ in range(n)]
    said = [" ".join(WORDS[a] for a in row) for row in labels]
    for i in range(0, n - 1, 5):
        labels[i], labels[i + 1] = labels[i + 1], labels[i]
    Y, names = indicator(labels, list(WORDS))
    return Dataset(Y, texts=said, label_names=names)


def features(n: int, seed: int = 0) -> Dataset:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 6)).astype(np.float32)
    Y = X + 0.5 * rng.normal(size=X.shape) > 0.6
    Y[0] = False
    return Dataset(csr_array(Y.astype(np.float32)), X=X)


def page_of(model: Any, dataset: Dataset, **options: Any) -> str:
    return report_page(model, dataset, model_name="m.labelry", data_name="test.jsonl", **options)


class Outline(HTMLParser):
    """Headings by section, captions, ids, and all attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.sections: list[str] = []
        self.ids: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.tags: list[str] = []
        self.open: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        self.ids += [value or "" for name, value in attrs if name == "id"]
        if tag == "section" and dict(attrs).get("id"):
            self.sections.append(str(dict(attrs)["id"]))


SHOWN = ["headline", "next", "labels", "thresholds", "label-map", "confusion", "examples"]
SHOWN += ["calibration", "by-k", "by-frequency"]
FOLDED = ["accuracy", "system", "spectrum", "training"]


@pytest.fixture(scope="module")
def tagger() -> labelry.Tagger:
    return labelry.Tagger(n_jobs=1).fit(texts(200), names=TITLES)


@pytest.fixture(scope="module")
def full(tagger: labelry.Tagger) -> str:
    return page_of(tagger, texts(100, seed=1), training=TRAINING, size_bytes=12345)


def left_out(page: str) -> dict[str, str]:
    _, _, last = page.partition("Not in this report")
    return dict(item.split(": ", 1) for item in re.findall(r"<li>([^<]*)</li>", last))


def test_a_tagger_has_every_section(full: str) -> None:
    assert Outline(full).sections == SHOWN + FOLDED
    assert left_out(full) == {}


def test_what_stands_at_the_top(full: str) -> None:
    head = full[: full.index("In short</h2>")]
    for said in ("<bdi>m.labelry</bdi>", "test.jsonl", "100 documents with", "on 200 documents"):
        assert said in head


def test_the_model_is_described_at_the_end(full: str) -> None:
    part = full[full.index('id="system"') :]
    for said in ("tagger", "200 documents, 7 labels", "12.1 KiB on disk", "1 thread", "balanced"):
        assert said in part
    assert labelry.__version__ in part
    assert re.search("[MG]iB at most", part)


def test_tables_have_captions_and_ids_are_unique(full: str) -> None:
    outline = Outline(full)
    assert outline.tags.count("table") == outline.tags.count("caption") >= 6
    assert len(set(outline.ids)) == len(outline.ids)
    linked = [v[1:] for tag, name, v in outline.attributes if tag == "a" and name == "href"]
    assert linked == [*SHOWN, "engineers"]


def test_it_asks_nothing_of_anybody(full: str) -> None:
    assert not re.search(r"https?:|//[a-z]|@import|url\(", full)
    outline = Outline(full)
    assert not {name for _, name, _ in outline.attributes} & {"src", "style", "action", "srcset"}
    assert not any(name.startswith("on") for _, name, _ in outline.attributes)
    assert outline.tags.count("script") == 1
    assert not {"link", "img", "iframe", "object", "form"} & set(outline.tags)


def test_the_policy_allows_its_own_style_and_script_only(full: str) -> None:
    policy = next(v for _, name, v in Outline(full).attributes if v.startswith("default-src"))
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy


def test_phases_of_the_training(full: str) -> None:
    part = full[full.index('id="training"') :]
    assert "10.0 s in all" in part
    assert "3.0 MiB of memory" in part
    assert "fitting (2 times)" in part
    assert re.search(r"everything else</th><td[^>]*>2\.5 s", part)


@pytest.mark.parametrize(
    ("training", "why"),
    [(None, "no record of its training"), ({"damaged": "training.json is damaged"}, "damaged")],
)
def test_a_training_that_is_not_known(
    tagger: labelry.Tagger, training: dict[str, str] | None, why: str
) -> None:
    assert why in left_out(page_of(tagger, texts(20), training=training))["Training"]


def test_features_without_names_probabilities_vectors_or_explanations() -> None:
    model = labelry.OneVsRest(n_jobs=1).fit(features(60))
    page = page_of(model, features(60, seed=1), seed=3)
    missing = {"thresholds", "calibration", "spectrum", "label-map", "training"}
    assert {*SHOWN, *FOLDED} - set(Outline(page).sections) == missing
    reasons = left_out(page)
    assert "no probabilities" in reasons["Calibration"]
    assert reasons["Label map"] == "one-vs-rest has no label vectors."
    assert "does not explain itself" in page
    assert "features that are not zero" in page
    without = int((np.diff(features(60, seed=1).Y.indptr) == 0).sum())
    assert f"on average, {without} without labels" in page


def test_features_of_a_tagger_are_explained_by_number() -> None:
    model = labelry.Tagger(quality="fast", n_jobs=1).fit(features(100))
    assert re.search(r"feature \d [+−]\d", page_of(model, features(60, seed=1)))


def test_one_label() -> None:
    ones = csr_array(np.ones((20, 1), dtype=np.float32))
    data = Dataset(ones, X=features(20).X)
    page = page_of(labelry.Rembrandt(embedding_dim=1, n_jobs=1).fit(data), data)
    assert "one label only" in left_out(page)["Accuracy against k"]
    assert "three labels" in left_out(page)["Label map"]
    assert "The first label is right for 100 of 100 rows." in page


def test_rows_without_labels_and_a_single_row() -> None:
    model = labelry.Rembrandt(embedding_dim=3, n_jobs=1).fit(features(60))
    none = Dataset(csr_array((4, 6), dtype=np.float32), X=features(4).X)
    page = page_of(model, none)
    assert left_out(page)["Examples"] == "no row has a label."
    assert "nan" not in page.split("</style>")[1]
    page = page_of(model, features(2).take([1]))
    assert "nan" not in page.split("</style>")[1]


def test_labels_never_seen_are_named_and_counted() -> None:
    model = labelry.Rembrandt(embedding_dim=3, n_jobs=1).fit(features(60))
    old = features(40, seed=1)
    Y = np.hstack([np.zeros((40, 6)), old.Y.toarray()])  # labels 6 to 11 are new
    page = page_of(model, Dataset(csr_array(Y.astype(np.float32)), X=old.X))
    assert re.search(r"6 labels \(\d+ of 100 occurrences\) never seen in training", page)
    assert "(never seen in training)" in page
    assert "--label-separator" in page  # most are unknown: is it the right file?


def test_the_same_seed_gives_the_same_rows_and_intervals(tagger: labelry.Tagger) -> None:
    def steady(seed: int) -> str:
        page = page_of(tagger, texts(60, seed=2), seed=seed)
        return page[page.index('id="next"') : page.index('id="system"')]  # no date, time or memory

    assert steady(1) == steady(1) != steady(2)


@pytest.mark.slow
def test_a_hundred_thousand_labels_stay_below_three_megabytes() -> None:
    n = 100_000
    Y = csr_array(eye_array(300, n, dtype=np.float32))
    X = np.random.default_rng(0).normal(size=(300, 8)).astype(np.float32)
    data = Dataset(Y, X=X)
    model = labelry.Rembrandt(embedding_dim=4, decoder="least-squares", n_jobs=1).fit(data)
    titles = {str(i): f"the long and winding description of the label number {i}" for i in range(n)}
    page = page_of(model, data, descriptions=titles)
    assert len(page.encode()) < 3_000_000
    assert re.search(r"Of 100,000 labels the [\d,]+ most frequent are listed", page)


@pytest.mark.slow
@pytest.mark.parametrize("name", SYSTEMS)
def test_every_system(name: str) -> None:
    model = system_class(name)(random_state=0, n_jobs=1).fit(texts(60))
    outline = Outline(page_of(model, texts(40, seed=1)))
    expected = {"headline", "accuracy", "by-frequency", "by-k", "labels", "examples"}
    assert expected <= set(outline.sections)


# ---- in a browser ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    tool = pytest.importorskip("playwright.sync_api", reason="no Chromium without playwright")
    if CHROMIUM is None:
        pytest.skip("no Chromium")
    with tool.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def opened(browser: Any, full: str, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """The page of the tagger, which must do no harm: no request, no error, no dialogue."""
    path = tmp_path / "report.html"
    path.write_text(full, encoding="utf-8")
    contexts: list[Any] = []
    bad: list[str] = []

    def start(**options: Any) -> Any:
        contexts.append(browser.new_context(**options))
        page = contexts[-1].new_page()
        page.on("request", lambda r: None if r.url == path.as_uri() else bad.append(r.url))
        page.on("pageerror", lambda error: bad.append(str(error)))
        page.on("dialog", lambda dialog: bad.append(dialog.message))
        page.on("console", lambda message: bad.append(message.text))
        page.goto(path.as_uri())
        return page

    yield start
    for context in contexts:
        for page in context.pages:
            assert page.evaluate("window.harmed") is None
        context.close()
    assert not bad


@pytest.mark.slow
def test_hostile_names_are_shown_and_do_nothing(opened: Callable[..., Any]) -> None:
    page = opened()
    assert page.title() == "m.labelry: labelry report"
    page.click("summary")
    names = page.locator("#label-table .link").all_text_contents()
    assert set(names) == set(WORDS)
    assert page.locator("#labels .title").all_text_contents().count(TITLES["cat"]) == 1
    assert "<b onclick=window.harmed=5>night</b>" in page.inner_text("#examples")
    assert f"reading {IMAGE}" in page.inner_text("#training")
    for link in page.locator("#label-table .link").all():
        link.click()
    for chip in page.locator("#legend button").all():
        chip.click()
    page.fill("#label-search", SCRIPT)
    page.hover("#labels tbody th >> nth=0")
    assert page.locator("body img, main script, svg[onload], b[onclick]").count() == 0


@pytest.mark.slow
def test_the_table_is_sorted_and_searched_with_the_keyboard(opened: Callable[..., Any]) -> None:
    page = opened(viewport={"width": 1200, "height": 800})
    names = page.locator("#label-table tbody th")

    def numbers(column: int) -> list[float]:
        cells = page.locator(f"#label-table td:nth-child({column})").all_inner_texts()
        return [float(cell) for cell in cells]

    assert names.count() == len(WORDS)
    assert numbers(6) == sorted(numbers(6))  # the worst F1 first
    page.focus("th[data-key=here] button")
    page.keyboard.press("Enter")
    assert numbers(3) == sorted(numbers(3), reverse=True)
    assert page.get_attribute("th[data-key=here]", "aria-sort") == "descending"
    page.keyboard.press("Space")
    assert numbers(3) == sorted(numbers(3))
    page.fill("#label-search", "FELIS")
    assert names.count() == 1
    assert "1 of 7 labels" in page.inner_text("#label-said")
    page.fill("#label-search", "")
    page.fill("#label-rows", "1000")
    assert names.count() == 0
    # Of a row with R right labels the best R count, as everywhere in the report.
    page.fill("#label-rows", "0")
    cells = page.locator("#label-table tbody tr", has_text="Felis").locator("td").all_inner_texts()
    data = json.loads(page.get_attribute("#label-table", "data-labels"))
    at = data["names"].index("cat")
    right, predicted, here = (data[key][at] for key in ("right", "predicted", "here"))
    shares = (right / predicted, right / here, 2 * right / (predicted + here))
    expected = [str(data["train"][at]), str(here), *(f"{100 * share:.0f}" for share in shares)]
    assert cells == expected


@pytest.mark.slow
def test_thousands_of_labels_are_shown_a_page_at_a_time(browser: Any, tmp_path: Path) -> None:
    n = 3000
    Y = csr_array(eye_array(n, dtype=np.float32))
    X = np.random.default_rng(0).normal(size=(n, 8)).astype(np.float32)
    model = system_class("knn")(n_jobs=1).fit(X, Y)
    (tmp_path / "r.html").write_text(page_of(model, Dataset(Y, X=X)), encoding="utf-8")
    page = browser.new_page()
    page.goto((tmp_path / "r.html").as_uri())
    rows = page.locator("#label-table tbody tr")
    assert rows.count() == 15
    assert page.inner_text("#label-said") == "3,000 labels"
    page.click("#label-more")
    assert rows.count() == 75
    page.fill("#label-search", "299")
    assert rows.count() == 13  # 299, 1299, 2299, and 2990 to 2999
    assert page.locator("#label-more").is_hidden()
    page.click("th[data-key=label] button")
    assert rows.locator("th").all_inner_texts()[:3] == ["299", "1299", "2299"]
    page.close()


def painted(page: Any) -> str:
    """What the map shows, when the next frames are drawn."""
    return page.evaluate(
        "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() =>"
        " done(document.getElementById('map').toDataURL()))))"
    )


@pytest.mark.slow
def test_the_map_and_the_table_lead_to_one_another(opened: Callable[..., Any]) -> None:
    page = opened(viewport={"width": 1200, "height": 800}, reduced_motion="reduce")
    assert page.get_attribute("#map", "aria-label") == f"Map of {len(WORDS)} labels"
    before = painted(page)
    page.click("#label-table .link >> text=horse")
    assert painted(page) != before
    page.hover("#map")  # the label that was asked for is in the middle
    page.wait_for_selector("#map-name:not([hidden])")
    assert page.inner_text("#map-name") == "horse"
    page.click("#map")
    page.wait_for_function("() => document.getElementById('label-search').value === 'horse'")
    assert page.locator("#label-table tbody tr").count() == 1
    page.focus("#map")
    for key in ("ArrowRight", "+", "0"):
        before = painted(page)
        page.keyboard.press(key)
        assert painted(page) != before


@pytest.mark.slow
def test_what_is_folded_is_printed(opened: Callable[..., Any]) -> None:
    page = opened()
    assert not page.locator("#training").is_visible()
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator("#training").is_visible()


@pytest.mark.slow
def test_on_a_phone_nothing_is_wider_than_the_screen(opened: Callable[..., Any]) -> None:
    page = opened(viewport={"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    sizes = page.evaluate(
        """() => [...document.querySelectorAll(".chart text")].map(
          (text) => {
            const { a, b } = text.getScreenCTM();
            return parseFloat(getComputedStyle(text).fontSize) * Math.hypot(a, b);
          })"""
    )
    assert min(sizes) > 9  # pixels


@pytest.mark.slow
def test_dark_on_the_screen_and_light_on_paper(opened: Callable[..., Any]) -> None:
    page = opened(color_scheme="dark")
    colours = (
        "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]"
    )
    light = "(c) => c.match(/\\d+/g).reduce((a, b) => a + Number(b), 0) > 500"
    background, text = page.evaluate(colours)
    assert not page.evaluate(light, background)
    assert page.evaluate(light, text)
    page.emulate_media(media="print", color_scheme="dark")
    background, text = page.evaluate(colours)
    assert page.evaluate(light, background)
    assert not page.evaluate(light, text)
    assert page.locator("nav").is_hidden()
