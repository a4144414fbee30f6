"""Vowpal Wabbit: online probabilistic label trees. Settings are its options."""

from __future__ import annotations

import math
from typing import Any

from runner import TOP, Peer, measure
from scipy.sparse import csr_matrix
from vowpalwabbit import Workspace

MOST_BITS = 26  # of the table of weights: 1 GiB while it trains


class VowpalWabbit(Peer):
    def prepare(self) -> None:
        self.lines = self.model_path.with_name("train.vw")
        with self.lines.open("w") as file:
            for i in range(self.X_train.shape[0]):
                labels = ",".join(map(str, self.Y_train[i].indices))
                file.write(f"{labels} {features(self.X_train[i])}\n")

    def train(self) -> None:
        # A tree whose lowest nodes are not full answers with labels that do not exist: labels
        # without rows fill them.
        n_labels = self.Y_train.shape[1]
        n_labels += (1 - n_labels) % (self.settings["kary_tree"] - 1)
        weights = 2 * self.X_train.shape[1] * n_labels  # the tree has fewer than 2 n_labels nodes
        options: dict[str, Any] = {
            "data": self.lines,
            "cache_file": self.lines.with_suffix(".cache"),
            "final_regressor": self.model_path,
            "plt": n_labels,
            "bit_precision": min(MOST_BITS, math.ceil(math.log2(weights))),
            **self.settings,
        }
        flags = [part for name, value in options.items() for part in (f"--{name}", str(value))]
        Workspace(arg_list=[*flags, "--holdout_off", "--quiet"]).finish()  # which writes the model

    def save(self) -> None:
        flags = f"--testonly --top_k {TOP} --loss_function logistic --quiet"
        self.model = Workspace(
            arg_list=[*flags.split(), "--initial_regressor", str(self.model_path)]
        )
        self.rows = [self.row(i) for i in range(self.X_test.shape[0])]

    def batch(self) -> list[list[int]]:
        return [self.one(row) for row in self.rows]

    def row(self, i: int) -> str:
        return features(self.X_test[i])

    def one(self, row: str) -> list[int]:
        return self.model.predict(row)


def features(row: csr_matrix) -> str:
    pairs = zip(row.indices, row.data, strict=True)
    return "| " + " ".join(f"{feature}:{value:.6g}" for feature, value in pairs)


if __name__ == "__main__":
    measure(VowpalWabbit)
