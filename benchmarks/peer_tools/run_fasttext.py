"""fastText, supervised. Settings are arguments of train_supervised.

A feature is a word, named by its number. fastText knows no weights of words: they are left out.
"""

from __future__ import annotations

import fasttext
from runner import TOP, Peer, measure

PREFIX = "__label__"


class FastText(Peer):
    def prepare(self) -> None:
        self.lines = self.model_path.with_name("train.fasttext")
        with self.lines.open("w") as file:
            for i in range(self.X_train.shape[0]):
                labels = "".join(f"{PREFIX}{label} " for label in self.Y_train[i].indices)
                file.write(f"{labels}{words(self.X_train[i].indices)}\n")

    def train(self) -> None:
        self.model = fasttext.train_supervised(
            str(self.lines), thread=self.jobs, verbose=0, **self.settings
        )

    def save(self) -> None:
        self.model.save_model(str(self.model_path))
        self.rows = [self.row(i) for i in range(self.X_test.shape[0])]

    def batch(self) -> list[list[str]]:
        return self.model.predict(self.rows, k=TOP)[0]

    def labels(self, answer: list[list[str]]) -> list[list[int]]:
        return [[int(label[len(PREFIX) :]) for label in found] for found in answer]

    def row(self, i: int) -> str:
        return words(self.X_test[i].indices)

    def one(self, row: str) -> list[str]:
        return self.model.predict(row, k=TOP)[0]


def words(features: list[int]) -> str:
    return " ".join(map(str, features))


if __name__ == "__main__":
    measure(FastText)
