"""HTML and SVG as a tree of elements, so that no text ever becomes markup."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from xml.etree import ElementTree

Element = ElementTree.Element
Part = Element | str


def element(tag: str, *parts: Part, **attributes: object) -> Element:
    """An element with text and other elements inside.

    ``class_`` stands for ``class`` and ``aria_label`` for ``aria-label``. An attribute that is
    None is left out.

    Examples
    --------
    >>> rendered(element("p", "1 < 2, ", element("b", "sure"), class_='"'))
    '<p class="&quot;">1 &lt; 2, <b>sure</b></p>'
    """
    found = Element(
        tag,
        {
            name.rstrip("_").replace("_", "-"): _number(value)
            for name, value in attributes.items()
            if value is not None
        },
    )
    return add(found, *parts)


def add(parent: Element, *parts: Part) -> Element:
    """The parent, with more at its end."""
    for part in parts:
        if isinstance(part, Element):
            parent.append(part)
        elif len(parent):
            parent[-1].tail = (parent[-1].tail or "") + part
        else:
            parent.text = (parent.text or "") + part
    return parent


def rendered(root: Element) -> str:
    """The text of a page; what UTF-8 cannot hold (half of a pair) is a question mark."""
    text = ElementTree.tostring(root, encoding="unicode", method="html")
    return text.encode("utf-8", "replace").decode()


def shortened(text: str, most: int) -> str:
    """At most so many characters.

    >>> shortened("a long name", 7)
    'a long…'
    """
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


def table(
    caption: str,
    head: Sequence[str],
    rows: Iterable[Sequence[Part]],
    *,
    numbers: Iterable[int] = (),
) -> Element:
    """A table with a heading for each row and column; `numbers` are columns that hold numbers."""
    right = dict.fromkeys(numbers, "number")
    tops = [element("th", text, scope="col", class_=right.get(i)) for i, text in enumerate(head)]
    body = element("tbody")
    for row in rows:
        first, *others = row
        cells = [element("td", part, class_=right.get(i)) for i, part in enumerate(others, 1)]
        add(body, element("tr", element("th", first, scope="row"), *cells))
    content = element(
        "table", element("caption", caption), element("thead", element("tr", *tops)), body
    )
    # Wide ones are scrolled on a phone, and can be with the keyboard.
    return element("div", content, class_="scrolled", tabindex=0, role="group", aria_label=caption)


def _number(value: object) -> str:
    """Coordinates in SVG need no more than a tenth of a pixel."""
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else str(value)
