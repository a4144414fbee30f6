"""labelry itself. Settings: the name of a system or a quality of the Tagger, and parameters."""

from __future__ import annotations

import numpy as np
from runner import TOP, Peer, measure
from scipy.sparse import csr_array

import labelry
from labelry.estimators.base import LabelRanker
from labelry.estimators.registry import system_class

FEW = 400  # rows of the warm-up


class Labelry(Peer):
    def prepare(self) -> None:
        self.X, self.Y, self.X_asked = map(csr_array, (self.X_train, self.Y_train, self.X_test))
        warm = self.made().fit(self.X[:FEW], self.Y[:FEW])  # compiles
        warm.topk_ids(self.X_asked[:FEW], TOP)
        warm.topk_ids(self.X_asked[:1], TOP)

    def made(self) -> LabelRanker:
        settings = dict(self.settings)
        kind = system_class(settings.pop("system")) if "system" in settings else labelry.Tagger
        return kind(**settings, n_jobs=self.jobs)

    def train(self) -> None:
        self.model = self.made().fit(self.X, self.Y)

    def save(self) -> None:
        self.model.save(self.model_path)

    def batch(self) -> np.ndarray:
        return self.one(self.X_asked)

    def row(self, i: int) -> csr_array:
        return self.X_asked[[i]]

    def one(self, row: csr_array) -> np.ndarray:
        return self.model.topk_ids(row, TOP)[0]


if __name__ == "__main__":
    measure(Labelry)
