"""What labels are called in a report."""

from __future__ import annotations

from collections.abc import Mapping

from labelry.data.dataset import Dataset
from labelry.estimator import LabelRanker
from labelry.report.markup import Element, add, element, shortened

_NAME, _TITLE = 60, 70  # characters


class LabelNames:
    """Names and titles of the labels of a model, and of further ones that only the data has.

    Parameters
    ----------
    titles : mapping, optional
        What names stand for, by name; those that the model was told unless given.
    """

    def __init__(
        self, model: LabelRanker, dataset: Dataset, titles: Mapping[str, str] | None = None
    ) -> None:
        self.names = [str(name) for name in model.classes_.tolist()]
        self.n_known = len(self.names)
        known = set(self.names)
        if titles is None:
            own = getattr(model, "names_", None)
            titles = {} if own is None else dict(zip(self.names, own.tolist(), strict=True))
        elif known.isdisjoint(titles):
            raise ValueError(
                f"the names must be of labels such as {self.names[0]!r}, "
                f"got {next(iter(titles), 'none')!r}"
            )
        # In the order in which `labelry.data.labels.align` puts them.
        names = range(dataset.n_labels) if dataset.label_names is None else dataset.label_names
        self.names += [name for name in map(str, names) if name not in known]
        self.titles = [titles.get(name, "") for name in self.names]

    def plain(self, label: int) -> str:
        """Name and title as one text."""
        return f"{self.names[label]} {self.titles[label]}".rstrip()

    def shown(self, label: int) -> Element:
        """Name and title as a page shows them, neither longer than a line."""
        found = element("span", element("b", _isolated(self.names[label], _NAME)))
        title = self.titles[label]
        if title:
            add(found, " ", element("span", _isolated(title, _TITLE), class_="title"))
        if label >= self.n_known:
            add(found, " ", element("span", "(never seen in training)", class_="title"))
        return found


def _isolated(text: str, most: int) -> Element:
    """So that signs that turn the direction of writing end with the name."""
    return element("bdi", shortened(text, most))
