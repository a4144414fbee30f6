"""Write the labels of a report."""

from __future__ import annotations

from collections.abc import Mapping

from labelry.data.dataset import Dataset
from labelry.estimators.base import LabelRanker
from labelry.report.markup import Element, add, element, isolated

_NAME, _DESCRIPTION = 60, 70  # most characters


def label_texts(model: LabelRanker) -> list[str]:
    """Return the name of each label of a model, and its description if there is one."""
    names = model.classes_.tolist()
    own = [""] * len(names) if model.names_ is None else model.names_.tolist()
    return [f"{name} {text}".rstrip() for name, text in zip(names, own, strict=True)]


class ShownLabels:
    """Names and descriptions of the labels of a model, and of labels that only the data has.

    `descriptions` are by name; None takes those of the training.
    """

    def __init__(
        self, model: LabelRanker, dataset: Dataset, descriptions: Mapping[str, str] | None = None
    ) -> None:
        self.names = [str(name) for name in model.classes_.tolist()]
        self.n_known = len(self.names)
        known = set(self.names)
        if descriptions is None:
            own = model.names_
            descriptions = {} if own is None else dict(zip(self.names, own.tolist(), strict=True))
        elif known.isdisjoint(descriptions):
            raise ValueError(
                f"the names must be of labels such as {self.names[0]!r}, "
                f"got {next(iter(descriptions), 'none')!r}"
            )
        # In the order in which `labelry.data.labels.align` puts them.
        names = range(dataset.n_labels) if dataset.label_names is None else dataset.label_names
        self.names += [name for name in map(str, names) if name not in known]
        self.descriptions = [descriptions.get(name, "") for name in self.names]

    def plain(self, label: int) -> str:
        """Return name and description as one text."""
        return f"{self.names[label]} {self.descriptions[label]}".rstrip()

    def shown(self, label: int) -> Element:
        """Return name and description for a page, neither longer than a line."""
        found = element("span", element("b", isolated(self.names[label], _NAME)))
        description = self.descriptions[label]
        if description:
            add(found, " ", element("span", isolated(description, _DESCRIPTION), class_="title"))
        if label >= self.n_known:
            add(found, " ", element("span", "(never seen in training)", class_="title"))
        return found
