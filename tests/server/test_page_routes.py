"""The files of the page, and what may be done with them."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib.resources import files

from starlette.testclient import TestClient

from labelry.server.page_routes import OF_REPORT

Start = Callable[..., TestClient]


def test_the_page_allows_its_own_files_only(client_of: Start) -> None:
    answer = client_of("tagger").get("/")
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
    assert "unsafe" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_every_file_that_the_page_names_is_there(client_of: Start) -> None:
    client = client_of("tagger")
    page = client.get("/").text
    named = set(re.findall(r'"(/page/[^"]+)"', page))
    assert {"/page/app.js", "/page/style.css", "/page/icon.svg"} <= named
    scripts = [f.name for f in (files("labelry.server") / "page").iterdir() if ".js" in f.name]
    scripts += [name for name in OF_REPORT if ".js" in name]
    named |= set(re.findall(r'"(/page/[^"]+)"', client.get("/docs").text))
    for name in scripts:
        text = client.get(f"/page/{name}").text
        named |= {f"/page/{file}" for file in re.findall(r'from "\./([^"]+)"', text)}
    assert named >= {f"/page/{name}" for name in scripts}  # and none that nothing asks for
    for path in named:
        assert client.get(path).status_code == 200, path


def test_nothing_in_the_files_needs_another_host_or_inline_code() -> None:
    report = files("labelry.report") / "page"
    for file in (*(files("labelry.server") / "page").iterdir(), *report.iterdir()):
        text = file.read_text()
        addresses = set(re.findall(r"https?://[^\s\"'<]+", text)) - {"http://www.w3.org/2000/svg"}
        assert not addresses, file.name
        assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(", text)
        if file.name.endswith(".html"):
            assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?![^>]*src=)", text)


def test_a_browser_may_keep_the_files(client_of: Start) -> None:
    client = client_of("tagger")
    first = client.get("/page/app.js")
    assert first.headers["cache-control"] == "private, no-cache"
    again = client.get("/page/app.js", headers={"if-none-match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    other = client.get("/page/app.js", headers={"if-none-match": '"other"'})
    assert other.content == first.content


def test_files_that_there_are_not(client_of: Start) -> None:
    client = client_of("tagger")
    for path in ("/page/none.js", "/page/..%2Fapp.py", "/page/__init__.py"):
        assert client.get(path).status_code == 404, path


def test_the_page_needs_no_key_but_the_map_does(client_of: Start) -> None:
    client = client_of("tagger", api_key="secret")
    assert client.get("/").status_code == 200
    assert client.get("/page/app.js").status_code == 200
    assert client.get("/v1/map").status_code == 401


def test_a_model_of_features_has_a_page_that_says_so(client_of: Start) -> None:
    assert "labels rows of features" in client_of("features").get("/").text
