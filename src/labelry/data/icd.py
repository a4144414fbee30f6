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
    """Phrases with one label each (a few have several), and what is known about the labels."""

    train: Dataset
    test: Dataset
    titles: dict[str, str]  # title of each label
    edges: list[tuple[str, str]]  # parent and child: chapters, blocks, categories, labels below


def icd10cm(*, full_codes: bool = False, random_state: int = 0) -> Classification:
    """ICD-10-CM as phrases with codes; one quarter of the phrases to test on.

    Codes that only add an encounter or a side to another (seventh characters) are left out: they
    say the same words again.

    By default the labels are the 1,775 three-character categories. Their phrases are the titles and
    inclusion terms of the codes below, and inclusion terms of their own; their title is never an
    example. With `full_codes` the labels are all 46,881 codes. Most of them have a title only, so
    titles are learnt from; the test has inclusion terms only.
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
    train, test = data.take(np.arange(len(tested))).split(_TEST_SHARE, random_state=random_state)
    Y = csr_array(vstack([train.Y, data.Y[len(tested) :]], format="csr"))
    train = Dataset(Y, texts=[*(train.texts or []), *learnt], label_names=names)
    return Classification(train, test, titles, list(edges))


def _codes() -> Any:
    try:
        with catch_warnings():  # it reads its own files in a way that Python deprecates
            simplefilter("ignore", DeprecationWarning)
            import simple_icd_10_cm
    except ImportError as error:
        raise MissingExtraError("simple-icd-10-cm", "demo", "ICD-10-CM") from error
    return simple_icd_10_cm
