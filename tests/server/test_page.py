"""The page in a real browser, as people use it: pointer, keyboard, phone, files, hostile names."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pytest
import uvicorn

import labelry
from labelry.report.label_map import LabelMap
from labelry.report.map_canvas import encoded
from labelry.server.app import create_app
from labelry.server.run import listen
from labelry.server.settings import ServerSettings

playwright = pytest.importorskip("playwright.sync_api", reason="no Chromium without playwright")

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))),
    None,
)
pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason="no Chromium")]

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-sync",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-dev-shm-usage",
]

# Labels and titles that would do harm in a page that took them for markup.
IMAGE = "<img src=x onerror=window.harmed=1>"
SCRIPT = "</script><script>window.harmed=2</script>"
HOSTILE = {IMAGE: "owl hoots night", SCRIPT: "fish swims water"}
TITLES = {
    "cat": "Felis catus",
    "dog": "Canis <b onclick=window.harmed=3>familiaris</b>",
    IMAGE: "\u202eowl\u202c <svg onload=window.harmed=4>",
}
PLAIN = {
    "cat": "cat purrs whiskers",
    "dog": "dog barks bone",
    "horse": "horse gallops saddle",
    "bee": "bee buzzes honey",
    "cow": "cow moos milk",
    "hen": "hen clucks egg",
    "pig": "pig grunts mud",
    "duck": "duck quacks pond",
}
ANIMALS = PLAIN | HOSTILE


def _tagger() -> Any:
    rng = np.random.default_rng(0)
    labels = [rng.choice(list(ANIMALS), rng.integers(1, 3), False).tolist() for _ in range(200)]
    texts = [" ".join(rng.permutation(" ".join(ANIMALS[a] for a in row).split())) for row in labels]
    return labelry.Tagger(n_jobs=1).fit(texts, labels, names=TITLES)


@contextmanager
def _running(settings: ServerSettings) -> Iterator[str]:
    with listen("127.0.0.1", 0) as listener:
        config = uvicorn.Config(
            create_app(settings), loop="asyncio", ws="none", log_level="warning"
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        server.should_exit = True
        thread.join()


@pytest.fixture(scope="module")
def tagger_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "animals.labelry"
    _tagger().save(path)
    return path


@pytest.fixture(scope="module")
def address_of(tagger_path: Path) -> Iterator[Callable[..., str]]:
    with ExitStack() as stack:

        @cache
        def start(path: Path = tagger_path, **settings: Any) -> str:
            return stack.enter_context(_running(ServerSettings(path, **settings)))

        yield start


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as tool:
        browser = tool.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser: Any, address_of: Callable[..., str]) -> Iterator[Callable[..., Any]]:
    """Pages that must do no harm: no request elsewhere, no error, nothing the policy forbids."""
    contexts: list[Any] = []
    bad: list[str] = []

    def start(address: str | None = None, **options: Any) -> Any:
        address = address_of() if address is None else address
        context = browser.new_context(reduced_motion="reduce", **options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(20_000)
        page.add_init_script(
            "addEventListener('securitypolicyviolation', (e) => console.error('forbidden '"
            " + e.violatedDirective))"
        )
        page.on("request", lambda r: _note_if(bad, not _local(r.url, address), f"asked {r.url}"))
        page.on("pageerror", lambda error: bad.append(str(error)))
        page.on("dialog", lambda dialog: bad.append(dialog.message))
        page.on("console", lambda m: _note_if(bad, m.type == "error" and _serious(m.text), m.text))
        page.goto(address)
        return page

    yield start
    for context in contexts:
        for page in context.pages:
            assert page.evaluate("window.harmed") is None
        context.close()
    assert not bad


def _note_if(notes: list[str], condition: bool, note: str) -> None:
    if condition:
        notes.append(note)


def _local(url: str, address: str) -> bool:
    return url.startswith((f"{address}/", f"blob:{address}/"))


def _serious(message: str) -> bool:
    """A refused key is part of how the page works; Chromium notes it as an error."""
    return "the server responded with a status of 401" not in message


def _labels(page: Any) -> list[str]:
    return page.locator("#labels b").all_inner_texts()


def _write(page: Any, text: str, first: str) -> None:
    page.fill("#text", text)
    page.wait_for_function(
        "name => document.querySelector('#labels b')?.textContent === name", arg=first
    )


def _map_ready(page: Any) -> None:
    page.wait_for_selector("#map-frame:not([hidden])", timeout=60_000)
    _painted(page)


def _painted(page: Any) -> str:
    """What the map shows, when the next frames are drawn."""
    return page.evaluate(
        "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() =>"
        " done(document.getElementById('map').toDataURL()))))"
    )


def test_labels_and_their_words_appear_as_one_types(open_page: Callable[..., Any]) -> None:
    page = open_page()
    page.wait_for_selector("#main:not([hidden])")
    assert "10 labels" in page.inner_text("#facts")
    page.locator("#text").press_sequentially("A cat purrs", delay=10)
    page.wait_for_selector(".why .for")
    assert _labels(page)[0] == "cat"
    assert len(_labels(page)) == 5
    assert page.inner_text(".label .description") == "Felis catus"
    assert page.inner_text(".label .score").endswith("%")
    assert "purrs" in page.inner_text(".why .for")
    marks = page.locator("#marks mark").all_text_contents()
    assert "purrs" in marks
    # The layer with the marks holds the same text at the same size.
    assert page.locator("#marks").text_content() == "A cat purrs\n"
    assert page.evaluate("marks.clientWidth === text.clientWidth")
    page.select_option("#k", "3")
    page.wait_for_function("() => document.querySelectorAll('#labels li').length === 3")
    page.locator("#threshold").fill("95")
    assert len(_labels(page)) < 3
    page.click("#clear")
    page.wait_for_function("() => document.querySelectorAll('#labels li').length === 0")
    assert page.inner_text("#labels-empty") == "The labels of your document appear here."


def test_an_answer_that_comes_late_is_dropped(open_page: Callable[..., Any]) -> None:
    page = open_page()
    held: list[Any] = []

    def hold(route: Any) -> None:
        if route.request.post_data_json["text"] == "cat" and not held:
            held.append(route)
        else:
            route.continue_()

    page.route("**/v1/predict", hold)
    page.fill("#text", "cat")
    with page.expect_request("**/v1/predict"):
        pass
    _write(page, "dog barks", "dog")
    held[0].continue_()
    _painted(page)
    assert _labels(page)[0] == "dog"


def test_a_label_opens(open_page: Callable[..., Any], tagger_path: Path) -> None:
    page = open_page()
    _write(page, "dog barks at a bone", "dog")
    page.click(".label >> nth=0")
    page.wait_for_selector("#panel-words:not([hidden])")
    assert page.inner_text("#panel-title") == "dog"
    assert page.inner_text("#panel-description") == TITLES["dog"]
    model = labelry.load(tagger_path)
    rows = model.label_counts_[model.classes_.tolist().index("dog")]
    assert f"On {rows} training documents" in page.inner_text("#panel-rows")
    assert set(page.locator("#panel-for li").all_inner_texts()) & {"dog", "barks", "bone"}
    similar = page.locator("#panel-similar b")
    assert similar.count() > 0
    name = similar.nth(0).inner_text()
    page.click("#panel-similar button >> nth=0")
    assert page.inner_text("#panel-title") == name
    page.keyboard.press("Escape")
    assert page.locator("#panel").is_hidden()


CARD = {
    "title": "Animals <b onclick=window.harmed=5>in</b> sentences",
    "description": "Finds the animals in a sentence.\n<svg onload=window.harmed=6>",
    "examples": ["a cat purrs", "dog barks", "hen clucks <img src=x onerror=window.harmed=7>"],
    "trained_at": "2026-11-19T12:00:00+00:00",
}


def test_the_first_screen_invites(open_page: Callable[..., Any], tagger_path: Path) -> None:
    def carded(route: Any) -> None:
        answer = route.fetch()
        route.fulfill(json=answer.json() | CARD)

    page = open_page()
    page.route("**/v1/model", carded)
    page.reload()
    page.wait_for_selector("#main:not([hidden])")
    assert page.inner_text("h1") == CARD["title"]
    assert page.inner_text("#description") == CARD["description"]
    assert "10 labels, learnt from 200 documents on 19 November 2026." in page.inner_text("#facts")
    counts = labelry.load(tagger_path).label_counts_
    rows = page.locator("#frequent .quiet").all_inner_texts()
    assert [int(n) for n in rows] == sorted(counts, reverse=True)
    assert page.locator(".example").all_inner_texts() == CARD["examples"]
    page.click(".example >> nth=0")
    page.wait_for_selector(".why .for")
    assert _labels(page)[0] == "cat"
    assert page.locator("#frequent").is_hidden()
    assert page.locator("#description svg, h1 b, .example img").count() == 0


def test_labels_below_the_threshold_are_faded_and_not_copied(open_page: Callable[..., Any]) -> None:
    page = open_page()
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    _write(page, "cat purrs whiskers, dog barks bone", "cat")
    scores = page.evaluate(
        "fetch('/v1/predict', {method: 'POST', headers: {'content-type': 'application/json'},"
        " body: JSON.stringify({text: document.getElementById('text').value})})"
        ".then((a) => a.json()).then((a) => a.predictions[0])"
    )
    threshold = page.evaluate("fetch('/v1/model').then((a) => a.json()).then((m) => m.threshold)")
    strong = [label["label"] for label in scores if label["score"] >= threshold]
    assert 0 < len(strong) < 5
    assert page.locator("#labels li.faint").count() == 5 - len(strong)
    assert "below" in page.inner_text("#faint-note")
    page.click("#copy")
    copied = "text => navigator.clipboard.readText().then((found) => found === text)"
    page.wait_for_function(copied, arg="\n".join(strong))
    page.evaluate(
        "delete Navigator.prototype.clipboard;"  # as on a page without https
        " addEventListener('copy', () => (window.copied = getSelection().toString()))"
    )
    page.fill("#text", "bee buzzes honey")
    page.wait_for_function("() => document.querySelector('#labels b').textContent === 'bee'")
    page.click("#copy")
    page.wait_for_function("() => window.copied === 'bee'")


@pytest.mark.parametrize("label", ["dog", IMAGE])
def test_a_label_has_a_link(open_page: Callable[..., Any], label: str) -> None:
    page = open_page()
    _write(page, ANIMALS[label], label)
    page.click(".label >> nth=0")
    link = page.url
    page.keyboard.press("Escape")
    assert "#" not in page.url
    page.goto("about:blank")
    page.goto(link)
    page.wait_for_selector("#panel:not([hidden])")
    assert page.inner_text("#panel-title") == label
    page.goto(f"{link.partition('#')[0]}#label=no+such")
    page.wait_for_selector("#trouble:not([hidden])")
    assert "no label “no such”" in page.inner_text("#trouble")


def test_names_and_texts_are_never_markup(open_page: Callable[..., Any]) -> None:
    page = open_page()
    text = f"{IMAGE} {SCRIPT} owl hoots night"
    _write(page, text, IMAGE)
    assert page.inner_text(".label .description") == TITLES[IMAGE]
    page.wait_for_selector("#marks mark")
    assert page.locator("#marks").text_content() == f"{text}\n"
    page.click(".label >> nth=0")
    page.wait_for_selector("#panel-neighbours:not([hidden])")
    assert page.inner_text("#panel-title") == IMAGE
    page.keyboard.press("Escape")
    _map_ready(page)
    page.fill("#find", "script")
    page.wait_for_selector("#found b")
    assert page.inner_text("#found b") == SCRIPT
    assert page.locator("body img, body script, body svg[onload], b[onclick]").count() == 0


def test_nothing_is_kept_but_the_key(open_page: Callable[..., Any]) -> None:
    page = open_page()
    start = page.url
    _write(page, "cow moos", "cow")
    assert page.url == start
    kept = "[localStorage.length, sessionStorage.length, document.cookie, history.length]"
    assert page.evaluate(kept)[:3] == [0, 0, ""]
    page.reload()
    assert page.input_value("#text") == ""


def test_keyboard_alone(open_page: Callable[..., Any]) -> None:
    page = open_page()
    page.wait_for_function("() => document.activeElement?.id === 'text'")
    page.keyboard.type("horse gallops")
    page.wait_for_selector(".why .for")
    _map_ready(page)

    def reach(selector: str) -> None:
        for _ in range(40):
            page.keyboard.press("Tab")
            if page.evaluate("s => document.activeElement.matches(s)", selector):
                return
        raise AssertionError(f"Tab never reaches {selector}")

    reach(".label")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.keyboard.press("Enter")
    assert page.inner_text("#panel-title") == "horse"
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.matches('.label')")
    reach("#map")
    pictures = [_painted(page)]
    for key in ("ArrowLeft", "ArrowUp", "+", "+", "-", "0"):
        page.keyboard.press(key)
        pictures.append(_painted(page))
    assert all(a != b for a, b in pairwise(pictures))
    page.fill("#find", "bee")
    page.wait_for_selector("#found button")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert page.inner_text("#panel-title") == "bee"


def test_on_a_phone(open_page: Callable[..., Any]) -> None:
    page = open_page(
        viewport={"width": 360, "height": 740}, has_touch=True, is_mobile=True,
        device_scale_factor=2,
    )  # fmt: skip
    _write(page, "duck quacks in the pond", "duck")
    _map_ready(page)
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    page.tap(".label >> nth=0")
    page.wait_for_selector("#panel-words:not([hidden])")
    box = page.locator("#panel").bounding_box()
    assert box["width"] == 360
    assert box["y"] > 100  # a sheet from below
    page.tap("#panel-show")
    assert page.locator("#panel").is_hidden()
    before = _painted(page)
    _pinch(page)
    assert _painted(page) != before
    small = page.evaluate(
        "[...document.querySelectorAll('main button, select')].filter((e) => e.offsetParent"
        " && e.getBoundingClientRect().height < 40).length"
    )
    assert small == 0  # for fingers


def _pinch(page: Any) -> None:
    box = page.locator("#map").bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    session = page.context.new_cdp_session(page)
    for kind, half in (("touchStart", 20), ("touchMove", 40), ("touchMove", 80)):
        points = [{"x": x - half, "y": y, "id": 0}, {"x": x + half, "y": y, "id": 1}]
        session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
    session.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})


CONTRAST = """(selectors) => {
  const numbers = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((v) => v / 255)
    .map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const below = (e) => {
    const found = numbers(getComputedStyle(e).backgroundColor);
    return found[3] === 0 && e.parentElement ? below(e.parentElement) : found;
  };
  return selectors.map((selector) => {
    const e = document.querySelector(selector);
    const [a, b] = [light(numbers(getComputedStyle(e).color)), light(below(e))];
    return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  });
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_can_be_read(open_page: Callable[..., Any], scheme: str) -> None:
    page = open_page(color_scheme=scheme)
    _write(page, "pig grunts in mud", "pig")
    page.wait_for_selector(".why .for")
    page.click(".label >> nth=0")
    page.wait_for_selector("#panel-words:not([hidden])")
    selectors = ["body", ".quiet", ".label b", ".description", ".why .for", "header a", "#start",
                 "#text", ".faint .score", "#panel-rows", "#panel-for li",
                 "#panel-for li.strong"]  # fmt: skip
    ratios = page.evaluate(CONTRAST, selectors)
    assert min(ratios) >= 4.5, dict(zip(selectors, ratios, strict=True))
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (max(map(int, paper[4:-1].split(","))) < 60) == (scheme == "dark")


def _label_file(page: Any, name: str, content: bytes, result: str = "csv") -> str:
    """Label a file and give what is offered for download."""
    page.select_option("#format", result)
    page.set_input_files("#file", {"name": name, "mimeType": "text/plain", "buffer": content})
    page.click("#start")
    page.wait_for_selector("#download:not([hidden])")
    with page.expect_download() as download:
        page.click("#download")
    assert download.value.suggested_filename == f"{Path(name).stem}-labels.{result}"
    return Path(download.value.path()).read_text(encoding="utf-8-sig")


def test_files_are_labelled_in_batches(
    open_page: Callable[..., Any], address_of: Callable[..., str]
) -> None:
    page = open_page(address_of(max_batch=64))
    sizes: list[int] = []
    page.on(
        "request",
        lambda r: sizes.append(len(r.post_data_json["text"])) if r.method == "POST" else None,
    )
    page.wait_for_selector("#main:not([hidden])")
    texts = [f'{ANIMALS["hen"]}, "number" {i}' for i in range(150)]
    quoted = "".join('{},"{}"\r\n'.format(i, t.replace('"', '""')) for i, t in enumerate(texts))
    found = _label_file(page, "many.csv", f"id,Text\r\n{quoted}".encode()).splitlines()
    assert sizes == [64, 64, 22]
    assert found[0].startswith("id,Text,label_1,score_1,label_2")  # as labelry predict has it
    assert len(found) == 151
    assert found[1].startswith('0,"hen clucks egg, ""number"" 0",hen,0.')
    lines = b"cat purrs\n\nowl hoots"
    records = [json.loads(r) for r in _label_file(page, "a.txt", lines, "jsonl").splitlines()]
    assert [r["text"] for r in records] == ["cat purrs", "", "owl hoots"]
    assert [records[0]["labels"][0], records[2]["labels"][0]] == ["cat", IMAGE]
    assert [record.get("note") for record in records] == [None, "no known word", None]
    assert "1 of them without a word" in page.inner_text("#file-said")
    rows = b'{"text": "=1+1 dog barks"}\n\n{"text": "bee\\nbuzzes"}\n'
    assert _label_file(page, "b.jsonl", rows).splitlines()[1].startswith("'=1+1 dog barks,dog,")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.pdf", b"%PDF", "The name must end in .txt, .jsonl or .csv."),
        ("a.txt", b"\xff\xfe\x00", "The file is not UTF-8 text."),
        ("a.txt", b"", "The file has no documents."),
        ("a.jsonl", b'{"text": "a"}\n{"text"', "Line 2 is not JSON."),
        ("a.jsonl", b'{"body": "a"}', 'Line 1 has no field "text".'),
        ("a.csv", b"id,body\n1,a\n", 'The first line names no column "text"; it has: id, body.'),
        ("a.csv", b'id,text\n1,"a\nb"\n2\n', "Line 4 has 1 columns, the first line 2."),
        ("a.csv", b'text\n"a', "Line 2: a quote that does not end, or text after a quoted cell."),
        ("a.txt", b"a" * 1_100_000, "Document 1 is longer than the 1,047,576 bytes"),
    ],
)
def test_bad_files_are_told(
    open_page: Callable[..., Any], name: str, content: bytes, message: str
) -> None:
    page = open_page()
    page.wait_for_selector("#main:not([hidden])")
    page.set_input_files("#file", {"name": name, "mimeType": "", "buffer": content})
    page.click("#start")
    page.wait_for_selector("#file-said.bad")
    assert page.inner_text("#file-said").startswith(message)
    assert page.locator("#download").is_hidden()


def test_the_key_is_asked_for_once(
    open_page: Callable[..., Any], address_of: Callable[..., str]
) -> None:
    page = open_page(address_of(api_key="open sesame"))
    refused: list[str] = []
    page.on("response", lambda answer: _note_if(refused, answer.status == 401, answer.url))
    page.wait_for_selector("#key-form:not([hidden])")
    assert not refused  # Chromium would write it in red
    page.fill("#key", "wrong")
    page.keyboard.press("Enter")
    page.wait_for_selector("#trouble:not([hidden])")
    assert "does not accept this key" in page.inner_text("#trouble")
    page.fill("#key", "open sesame")
    page.keyboard.press("Enter")
    page.wait_for_selector("#main:not([hidden])")
    page.reload()
    _write(page, "cat purrs", "cat")
    assert page.locator("#key-form").is_hidden()


def test_a_model_of_features_has_no_page_but_says_so(
    open_page: Callable[..., Any], address_of: Callable[..., str], tmp_path: Path
) -> None:
    X = np.random.default_rng(0).normal(size=(60, 4)).astype(np.float32)
    labelry.OneVsRest(n_jobs=1).fit(X, np.argmax(X, axis=1)).save(tmp_path / "features")
    page = open_page(address_of(tmp_path / "features"))
    assert "labels rows of features" in page.inner_text("h1")
    page.click("text=description of the API")
    assert page.inner_text("h1") == "API"


def test_each_form_of_the_api_page_sends_its_request(
    open_page: Callable[..., Any], address_of: Callable[..., str]
) -> None:
    address = address_of(api_key="it's open")
    page = open_page(address)
    page.goto(f"{address}/docs")
    page.fill("#key", "it's open")
    forms = page.locator("form")
    assert forms.count() == 9
    for i in range(9):
        form = forms.nth(i)
        if form.get_attribute("data-path") == "/v1/map":
            continue  # it is being drawn
        form.get_by_role("button").click()
        form.locator(".said", has_text="200 in").wait_for()
    answer = page.inner_text("#v1-labels .answer")
    assert "<img src=x" in answer
    assert json.loads(answer)["labels"][0]["label"]
    page.fill("#v1-labels-query", "script's")
    assert page.inner_text("#v1-labels .curl") == (
        f"curl '{address}/v1/labels?query=script%27s&limit=3' -H \"X-API-Key: $LABELRY_API_KEY\""
    )
    page.fill("#v1-predict-body", '{"text": "it\'s a cat"}')
    command = page.inner_text("#v1-predict .curl").replace("$LABELRY_API_KEY", "it's open")
    found = subprocess.run(["sh", "-c", f"{command} -s"], capture_output=True, check=True).stdout
    assert json.loads(found)["predictions"][0]


def test_predicted_labels_light_up_and_points_can_be_asked(open_page: Callable[..., Any]) -> None:
    page = open_page()
    _map_ready(page)
    dim = _painted(page)
    _write(page, "cat purrs", "cat")
    lit = _painted(page)
    assert lit != dim
    page.click(".label >> nth=0")
    page.click("#panel-show")  # cat is in the middle now
    _painted(page)
    page.keyboard.press("Escape")
    page.locator("#map").hover()
    page.wait_for_selector("#map-name:not([hidden])")
    assert page.inner_text("#map-name") == "cat Felis catus"
    page.locator("#map").click()
    page.wait_for_selector("#panel:not([hidden])")
    assert page.inner_text("#panel-title") == "cat"
    page.keyboard.press("Escape")
    near = _painted(page)
    page.locator("#map").dblclick()
    assert _painted(page) != near
    assert page.locator("#panel").is_hidden()


def test_a_model_that_can_only_rank(
    open_page: Callable[..., Any], address_of: Callable[..., str], tmp_path: Path
) -> None:
    """No probabilities, words or vectors: the page leaves out what it cannot show."""
    model = labelry.OneVsRest(n_jobs=1)
    model.fit([*ANIMALS.values()] * 5, [[label] for label in ANIMALS] * 5).save(tmp_path / "plain")
    page = open_page(address_of(tmp_path / "plain"))
    _write(page, "bee buzzes honey", "bee")
    assert "%" not in page.inner_text(".label .score")
    assert page.locator("#threshold").is_hidden()
    assert page.locator("#map-section").is_hidden()
    page.click(".label >> nth=0")
    page.wait_for_function("() => document.getElementById('panel-rows').textContent")
    assert page.inner_text("#panel-rows") == "On 5 training documents (10.0 %)"
    for part in ("#panel-words", "#panel-neighbours", "#panel-show"):
        assert page.locator(part).is_hidden()


def test_a_model_that_is_replaced(
    open_page: Callable[..., Any], address_of: Callable[..., str], tagger_path: Path, tmp_path: Path
) -> None:
    path = tmp_path / "replaced"
    labelry.load(tagger_path).save(path)
    page = open_page(address_of(path, poll=0.1))
    _write(page, "cat purrs", "cat")
    texts = ["an oak tree", "a red rose"] * 20
    labelry.LinearLabelTree(n_jobs=1).fit(texts, [["oak"], ["rose"]] * 20).save(path, force=True)
    page.wait_for_function(
        "() => fetch('/v1/model').then((a) => a.json()).then((m) => m.labels == 2)"
    )
    _write(page, "a rose", "rose")
    page.wait_for_function(
        "() => document.getElementById('facts').textContent.includes('2 labels')"
    )
    _map_ready(page)
    assert page.get_attribute("#map", "aria-label") == "Map of 2 labels"


MOVE = """async () => {
  const map = document.getElementById("map");
  const box = map.getBoundingClientRect();
  const fire = (type, x, more = {}) => map.dispatchEvent(new PointerEvent(type, {
    pointerId: 1, clientX: x, clientY: box.top + 200, bubbles: true, ...more }));
  map.setPointerCapture = () => {}; // there is no such pointer
  const put = CanvasRenderingContext2D.prototype.putImageData;
  let paintings = 0;
  CanvasRenderingContext2D.prototype.putImageData = function (...all) {
    paintings++;
    put.apply(this, all);
  };
  map.focus();
  const frame = () => new Promise(requestAnimationFrame);
  const times = { drag: [], zoom: [] };
  fire("pointerdown", box.left + 300);
  let last = await frame();
  for (let i = 0; i < 60; i++) {
    fire("pointermove", box.left + 300 + 100 * Math.sin(i / 10));
    const now = await frame();
    times.drag.push(now - last);
    last = now;
  }
  fire("pointerup", box.left + 300);
  for (let i = 0; i < 60; i++) {
    map.dispatchEvent(new WheelEvent("wheel", { deltaY: i < 30 ? -40 : 40,
      clientX: box.left + 400, clientY: box.top + 250, cancelable: true }));
    const now = await frame();
    times.zoom.push(now - last);
    last = now;
  }
  return { times, paintings };
}"""


def test_a_hundred_thousand_labels(
    open_page: Callable[..., Any], record_property: Callable[[str, object], None]
) -> None:
    n, rng = 100_000, np.random.default_rng(0)
    groups = np.sort(rng.integers(0, 12, n)).astype(np.uint8)
    centres = rng.uniform(0.15, 0.85, (12, 2))
    points = np.clip(centres[groups] + rng.normal(0, 0.06, (n, 2)), 0, 1).astype(np.float32)
    leaders = np.searchsorted(groups, np.arange(12))[:, None].astype(np.int32)
    content = encoded(
        LabelMap(points, groups, leaders, [f"word {i}" for i in range(12)]),
        rng.zipf(1.5, n).clip(0, 10**6),
    )
    page = open_page()
    page.route(
        "**/v1/map",
        lambda route: route.fulfill(body=content, content_type="application/octet-stream"),
    )
    page.route(
        "**/v1/labels?ids=*",
        lambda route: route.fulfill(
            json={
                "labels": [
                    {"id": int(i), "label": f"label {i}", "rows": 1}
                    for i in route.request.url.partition("ids=")[2].split(",")
                ],
                "more": False,
            }
        ),
    )
    page.reload()
    _map_ready(page)
    assert page.get_attribute("#map", "aria-label") == "Map of 100,000 labels"
    assert page.locator("#legend button").count() == 12
    whole = _painted(page)
    chip = page.locator("#legend button", has_text="word 3")
    chip.click()
    assert chip.get_attribute("aria-pressed") == "true"
    assert _painted(page) != whole  # the other groups are dimmed
    chip.click()
    assert chip.get_attribute("aria-pressed") == "false"
    _write(page, "cat purrs", "cat")
    before = _painted(page)
    found = page.evaluate(MOVE)
    assert _painted(page) != before
    assert found["paintings"] >= 118  # one for each movement
    frames = {name: round(1000 / median(gaps)) for name, gaps in found["times"].items()}
    record_property("measured", f"label map of {n:,} points, frames a second: {frames}")
