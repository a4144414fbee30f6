"""napkinXC: probabilistic label trees. Settings are parameters of its PLT."""

from __future__ import annotations

from napkinxc.models import PLT
from runner import TOP, Peer, measure
from scipy.sparse import csr_matrix


class NapkinXC(Peer):
    def train(self) -> None:
        # It writes the classifiers of its nodes to the folder while it trains.
        self.model = PLT(str(self.model_path), seed=0, threads=self.jobs, **self.settings)
        self.model.fit(self.X_train, self.Y_train)

    def save(self) -> None:
        self.model.load()

    def batch(self) -> list[list[int]]:
        return self.model.predict(self.X_test, top_k=TOP)

    def one(self, row: csr_matrix) -> list[list[int]]:
        return self.model.predict(row, top_k=TOP)


if __name__ == "__main__":
    measure(NapkinXC)
