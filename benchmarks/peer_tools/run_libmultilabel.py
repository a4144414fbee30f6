"""LibMultiLabel: its linear tree, by LIBLINEAR. Settings are arguments of train_tree."""

from __future__ import annotations

import numpy as np
import psutil
from libmultilabel import linear
from runner import TOP, Peer, measure
from scipy.sparse import csr_matrix

BATCH = 256  # rows at a time, as in its own evaluation


class LibMultiLabel(Peer):
    def prepare(self) -> None:
        psutil.cpu_count = lambda logical=True: self.jobs  # it asks for threads nowhere else
        np.random.seed(0)  # noqa: NPY002  (what its clustering draws from)

    def train(self) -> None:
        self.model = linear.train_tree(self.Y_train, self.X_train, verbose=False, **self.settings)

    def save(self) -> None:
        linear.save_pipeline(str(self.model_path), None, self.model)

    def batch(self) -> np.ndarray:
        starts = range(0, self.X_test.shape[0], BATCH)
        return np.vstack([self.one(self.X_test[start : start + BATCH]) for start in starts])

    def labels(self, answer: np.ndarray) -> np.ndarray:
        return answer

    def one(self, row: csr_matrix) -> np.ndarray:
        """Best labels: what it gives is a dense row of scores, zero where nothing was found."""
        scores = linear.predict_values(self.model, row)
        k = min(TOP, scores.shape[1])
        best = np.argpartition(-scores, k - 1, axis=1)[:, :k]
        found = np.take_along_axis(scores, best, axis=1)
        order = np.argsort(-found, axis=1)
        best = np.where(found > 0, best, -1)
        return np.take_along_axis(best, order, axis=1)


if __name__ == "__main__":
    measure(LibMultiLabel)
