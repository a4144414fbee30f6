"""Elements: what is text stays text."""

from __future__ import annotations

from html.parser import HTMLParser

from labelry.report.markup import add, element, rendered, shortened, table

HOSTILE = "</script><img src=x onerror=alert(1)>\"'&amp;\u202e\ud800\x00"


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.text += "".join(f"[{value}]" for _, value in attrs)

    def handle_data(self, data: str) -> None:
        self.text += data


def test_hostile_text_makes_no_tags() -> None:
    parser = Tags()
    parser.feed(rendered(element("p", HOSTILE, element("b", HOSTILE), HOSTILE, title=HOSTILE)))
    assert parser.tags == ["p", "b"]
    assert parser.text.count("onerror=alert(1)") == 4


def test_what_utf8_cannot_hold_is_replaced() -> None:
    assert rendered(element("p", HOSTILE)).encode("utf-8").decode().count("?") == 1


def test_attributes() -> None:
    found = element("g", stroke_width=2.04, class_="a", aria_label="b", title=None, x=3.0)
    assert rendered(found) == '<g stroke-width="2" class="a" aria-label="b" x="3"></g>'


def test_text_goes_where_it_is_put() -> None:
    found = add(element("p", "a", element("b", "c"), "d"), "e", element("i"), "f")
    assert rendered(found) == "<p>a<b>c</b>de<i></i>f</p>"


def test_a_table_has_caption_and_headings() -> None:
    found = rendered(table("Numbers", ["Name", "Value"], [["one", "1"]], numbers=[1]))
    assert "<caption>Numbers</caption>" in found
    assert '<th scope="col">Name</th><th scope="col" class="number">Value</th>' in found
    assert '<th scope="row">one</th><td class="number">1</td>' in found


def test_shortened() -> None:
    assert shortened("abc", 3) == "abc"
    assert shortened("abcd", 3) == "ab…"
