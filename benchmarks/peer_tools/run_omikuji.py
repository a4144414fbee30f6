"""omikuji: partitioned label trees (Parabel, Bonsai). Settings are its hyper-parameters."""

from __future__ import annotations

import omikuji
from runner import TOP, Peer, measure


class Omikuji(Peer):
    def train(self) -> None:
        parameters = omikuji.Model.default_hyper_param()
        for name, value in self.settings.items():
            setattr(parameters, name, value)
        self.model = omikuji.Model.train_on_data(
            str(self.data / "train.txt"), parameters, n_threads=self.jobs
        )

    def save(self) -> None:
        self.model.save(str(self.model_path))
        self.model.init_prediction_thread_pool(self.jobs)
        self.model.densify_weights(0.1)  # as its own command does before it predicts
        self.rows = [self.row(i) for i in range(self.X_test.shape[0])]

    def batch(self) -> list[list[tuple[int, float]]]:
        return [self.one(row) for row in self.rows]

    def labels(self, answer: list[list[tuple[int, float]]]) -> list[list[int]]:
        return [[label for label, _ in found] for found in answer]

    def row(self, i: int) -> list[tuple[int, float]]:
        row = self.X_test[i]
        return list(zip(row.indices.tolist(), row.data.tolist(), strict=True))

    def one(self, row: list[tuple[int, float]]) -> list[tuple[int, float]]:
        return self.model.predict(row, top_k=TOP)


if __name__ == "__main__":
    measure(Omikuji)
