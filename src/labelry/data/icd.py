"""ICD-10-CM as data: phrases from the classification, to be tagged with their category.

The classification comes offline with the package simple-icd-10-cm (the ``demo`` extra).
"""

from __future__ import annotations

from typing import Any, NamedTuple
from warnings import catch_warnings, simplefilter

from labelry.data.dataset import Dataset
from labelry.data.labels import encode_labels
from labelry.errors import MissingExtraError

_TEST_SHARE = 0.25


class Classification(NamedTuple):
    """Phrases to learn from and to test on, and what is known about their labels.

    Attributes
    ----------
    train, test : Dataset
        Texts, each with one three-character category (a few phrases stand in several).
    titles : dict
        Title of each category. It is the name of the label, and never an example.
    edges : list of (parent, child)
        Chapters, blocks and categories.
    """

    train: Dataset
    test: Dataset
    titles: dict[str, str]
    edges: list[tuple[str, str]]


def icd10cm(*, random_state: int = 0) -> Classification:
    """Descriptions and inclusion terms of all codes, by category; one quarter to test on.

    Codes that only add an encounter or a side to another (seventh characters) are left out: they
    say the same words again.
    """
    codes = _codes()
    phrases: dict[str, dict[str, None]] = {}  # phrase -> its categories
    edges: dict[tuple[str, str], None] = {}
    titles: dict[str, str] = {}
    for code in codes.get_all_codes(True):
        if not codes.is_category_or_subcategory(code) or codes.is_extended_subcategory(code):
            continue
        category, title = code[:3], codes.get_description(code)
        examples = codes.get_inclusion_term(code)
        if code == category:
            titles[code] = title
            # A block of one category has its code: no node of its own.
            above = [up for up in codes.get_ancestors(code) if up != code]
            edges.update(dict.fromkeys(zip(above, [code, *above], strict=False)))
        else:
            examples = [title, *examples]
        for phrase in examples:
            phrases.setdefault(phrase, {})[category] = None
    labels = encode_labels([list(found) for found in phrases.values()])
    names = [str(name) for name in labels.classes] if labels.classes is not None else None
    data = Dataset(labels.indicator, texts=list(phrases), label_names=names)
    train, test = data.split(_TEST_SHARE, random_state=random_state)
    return Classification(train, test, titles, list(edges))


def _codes() -> Any:
    try:
        with catch_warnings():  # it reads its own files in a way that Python deprecates
            simplefilter("ignore", DeprecationWarning)
            import simple_icd_10_cm
    except ImportError as error:
        raise MissingExtraError("simple-icd-10-cm", "demo", "ICD-10-CM") from error
    return simple_icd_10_cm
