"""Build HTML and SVG as a tree of elements, so that no text becomes markup."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from xml.etree import ElementTree

Element = ElementTree.Element
Content = Element | str


def element(tag: str, *parts: Content, **attributes: object) -> Element:
    """Return an element with text and other elements inside.

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
            name.rstrip("_").replace("_", "-"): _attribute_text(value)
            for name, value in attributes.items()
            if value is not None
        },
    )
    return add(found, *parts)


def add(parent: Element, *parts: Content) -> Element:
    """Append text and elements to a parent and return it."""
    for part in parts:
        if isinstance(part, Element):
            parent.append(part)
        elif len(parent):
            parent[-1].tail = (parent[-1].tail or "") + part
        else:
            parent.text = (parent.text or "") + part
    return parent


def rendered(root: Element) -> str:
    """Return the text of a page; a lone surrogate, which UTF-8 cannot hold, becomes '?'."""
    text = ElementTree.tostring(root, encoding="unicode", method="html")
    return text.encode("utf-8", "replace").decode()


def shortened(text: str, most: int) -> str:
    """Cut a text to at most so many characters.

    >>> shortened("a long name", 7)
    'a long…'
    """
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


def isolated(text: str, most: int) -> Element:
    """Shorten a text; characters in it that change the direction of writing end with it."""
    return element("bdi", shortened(text, most))


def table(
    caption: str,
    head: Sequence[str],
    rows: Iterable[Sequence[Content]],
    *,
    numbers: Iterable[int] = (),
) -> Element:
    """Return a table with headings for rows and columns; `numbers` are columns of numbers."""
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
    # A wide table can be scrolled on a phone, and with the keyboard.
    return element("div", content, class_="scrolled", tabindex=0, role="group", aria_label=caption)


def _attribute_text(value: object) -> str:
    """Write a number; coordinates in SVG need no more than a tenth of a pixel."""
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else str(value)
