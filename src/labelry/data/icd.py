"""ICD-10-CM as data: phrases from the classification, to be tagged with their category.

The classification comes offline with the package simple-icd-10-cm (the ``demo`` extra).
"""

from __future__ import annotations

from typing import Any, NamedTuple
from warnings import catch_warnings, simplefilter

import numpy as np
from scipy.sparse import csr_array, vstack

from labelry.data.dataset import Dataset
from labelry.data.labels import encode_labels
from labelry.errors import MissingExtraError

_TEST_SHARE = 0.25


class Classification(NamedTuple):
    """Phrases to learn from and to test on, and what is known about their labels.

    Attributes
    ----------
    train, test : Dataset
        Texts, each with one code (a few phrases stand at several).
    titles : dict
        Title of each code: the name of the label.
    edges : list of (parent, child)
        Chapters, blocks, categories, and the codes below them if they are labels.
    """

    train: Dataset
    test: Dataset
    titles: dict[str, str]
    edges: list[tuple[str, str]]


def icd10cm(*, full_codes: bool = False, random_state: int = 0) -> Classification:
    """ICD-10-CM as phrases with codes; one quarter of the phrases to test on.

    Codes that only add an encounter or a side to another (seventh characters) are left out: they
    say the same words again.

    Parameters
    ----------
    full_codes : bool
        By default the labels are the 1,775 three-character categories. Their phrases are the
        titles and inclusion terms of the codes below, and inclusion terms of their own; their
        title is never an example. With `full_codes` the labels are all 46,881 codes. Most of them
        have a title only, so titles are learnt from; the test has inclusion terms only.
    random_state : int
        Of the split.
    """
    codes = _codes()
    phrases: dict[str, dict[str, None]] = {}  # phrase -> its labels
    learnt: dict[str, dict[str, None]] = {}  # of these none is tested
    edges: dict[tuple[str, str], None] = {}
    titles: dict[str, str] = {}
    for code in codes.get_all_codes(True):
        if not codes.is_category_or_subcategory(code) or codes.is_extended_subcategory(code):
            continue
        label = code if full_codes else code[:3]
        title, examples = codes.get_description(code), codes.get_inclusion_term(code)
        if code == label:
            titles[code] = title
            # A block of one category has its code: no node of its own.
            above = [up for up in codes.get_ancestors(code) if up != code]
            edges.update(dict.fromkeys(zip(above, [code, *above], strict=False)))
            if full_codes:
                learnt.setdefault(title, {})[label] = None
        else:
            examples = [title, *examples]
        for phrase in examples:
            phrases.setdefault(phrase, {})[label] = None
    tested = {phrase: found for phrase, found in phrases.items() if phrase not in learnt}
    labels = encode_labels([list(found) for part in (tested, learnt) for found in part.values()])
    names = [str(name) for name in labels.classes] if labels.classes is not None else None
    data = Dataset(labels.indicator, texts=[*tested, *learnt], label_names=names)
    own = np.arange(data.n_rows) < len(tested)
    train, test = data.take(own).split(_TEST_SHARE, random_state=random_state)
    return Classification(_joined(train, data.take(~own)), test, titles, list(edges))


def _joined(first: Dataset, second: Dataset) -> Dataset:
    """The rows of both, which have the same labels."""
    Y = csr_array(vstack([first.Y, second.Y], format="csr"))
    texts = [*(first.texts or []), *(second.texts or [])]
    return Dataset(Y, texts=texts, label_names=first.label_names)


def _codes() -> Any:
    try:
        with catch_warnings():  # it reads its own files in a way that Python deprecates
            simplefilter("ignore", DeprecationWarning)
            import simple_icd_10_cm
    except ImportError as error:
        raise MissingExtraError("simple-icd-10-cm", "demo", "ICD-10-CM") from error
    return simple_icd_10_cm
