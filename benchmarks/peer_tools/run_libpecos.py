"""libpecos: XR-Linear. Settings are parameters of its indexer and of its training."""

from __future__ import annotations

import numpy as np
from pecos.utils import smat_util
from pecos.xmc import Indexer, LabelEmbeddingFactory
from pecos.xmc.xlinear import XLinearModel
from runner import TOP, Peer, measure
from scipy.sparse import csr_matrix


class Pecos(Peer):
    def prepare(self) -> None:
        self.Y_columns = self.Y_train.astype(np.float32).tocsc()

    def train(self) -> None:
        vectors = LabelEmbeddingFactory.create(self.Y_train, self.X_train, method="pifa")
        # Each takes the parameters that it knows.
        chain = Indexer.gen(vectors, threads=self.jobs, **self.settings)
        self.model = XLinearModel.train(
            self.X_train, self.Y_columns, C=chain, threads=self.jobs, **self.settings
        )

    def save(self) -> None:
        self.model.save(str(self.model_path))
        # Its quick form for predictions, which can only be loaded.
        self.model = XLinearModel.load(str(self.model_path), is_predict_only=True)

    def batch(self) -> csr_matrix:
        return self.model.predict(self.X_test, only_topk=TOP, threads=self.jobs)

    def labels(self, answer: csr_matrix) -> list[list[int]]:
        best = smat_util.sorted_csr(answer, only_topk=TOP)
        return [part.tolist() for part in np.split(best.indices, best.indptr[1:-1])]

    def one(self, row: csr_matrix) -> csr_matrix:
        return self.model.predict(row, only_topk=TOP, threads=1)


if __name__ == "__main__":
    measure(Pecos)
