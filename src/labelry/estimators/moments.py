"""The estimator of the method of moments."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from labelry.arrays import F32
from labelry.embeddings.moments.bounds import ConvergenceBound
from labelry.embeddings.moments.model import MomentsSettings, TopicModel, fit_moments
from labelry.estimators.base import LabelRanker, estimator
from labelry.estimators.trained import Trained
from labelry.linalg.parallel import resolve_jobs


@estimator("moments", fit_moments)
class Moments(LabelRanker, MomentsSettings):
    """Topics that words and labels share, from moments of the word counts.

    Each document has one hidden topic, from which its words and its labels are drawn. The
    topics come from the eigenpairs of the second and third moments of the words, not from a
    search, so there are no local optima, and with enough documents the estimates are provably
    close (`convergence_bound`). Training takes three passes over the rows and one for each
    refinement. Choose it for very many rows and labels, or for topics that can be read.

    X is taken as words that are present (x > 0) or absent, as the paper models documents; the
    size of an entry plays no part. Scores are P[l|d], the probability that a label drawn from the
    document is l: between 0 and 1, and one in sum over the labels.

    Attributes
    ----------
    fitted_ : labelry.embeddings.moments.model.TopicModel
    topic_proportions_ : array (K,)
        P[h], the share of each topic.

    Notes
    -----
    With N rows, z nonzeros in X, z' in Y and m = K + 20: pass 1 costs 4 z m flops and reads
    or writes 12 z m bytes; pass 2 costs 6 z m + 2/3 N m^3 flops (the tensor, in cache) and
    16 z m bytes; pass 3 and a refinement 2 z K + 2 z' K and 4 z K + 4 z' K flops. Memory beyond
    the data is 4 bytes x (3 d m + c K + 2 m^3). "removed" adds 4 z m + 2 d m^3 flops.

    Warns `SampleSizeWarning` when N < n_topics^2; an error only where `n_topics` exceeds the
    numerical rank of the word pairs.

    References
    ----------
    Dasgupta: Multi-label learning with provable guarantee, 2016.

    Examples
    --------
    >>> texts = ["red cat", "the red cat", "a blue dog", "blue dog"] * 5
    >>> model = Moments(n_topics=2).fit(texts, ["cat", "cat", "dog", "dog"] * 5)
    >>> model.predict(["red", "my blue dog"]).tolist()
    ['cat', 'dog']
    """

    def topic_posteriors(self, X: Any) -> F32:
        """Return P[h|d], (n_rows, K), of features or texts, at the fitted temperature."""
        trained, model = self._topics()
        with self._threads():
            return model.posteriors(self._features(trained, X), resolve_jobs(self.n_jobs))

    def topic_words(self, k: int = 10) -> tuple[NDArray[Any], F32]:
        """Return the k words that mark each topic, and P[v|h]; both (K, k).

        The order is that of P[v|h] log(P[v|h] / P[v]): frequent in the topic, and more so than
        elsewhere. Words are column numbers where X was not text.
        """
        trained, model = self._topics()
        best, chances = model.topic_words(k)
        if trained.text_features is None:
            return best, chances
        return trained.text_features.get_feature_names_out()[best], chances

    def topic_labels(self, k: int = 10) -> tuple[NDArray[Any], F32]:
        """Return the k likeliest labels of each topic, and P[l|h]; both (K, k)."""
        trained, model = self._topics()
        best, chances = model.topic_labels(k)
        return trained.classes[best], chances

    def convergence_bound(self, N: int | None = None, delta: float = 0.05) -> ConvergenceBound:
        """Return the bounds of Theorem 1, from the fitted spectrum.

        With probability 1 - `delta`, words, labels and proportions of every topic are within
        these distances of the truth, if the documents follow the model and there are at least
        `n_required` of them. They are worst-case bounds that fall like 1/sqrt(N), and a value
        above 1 says nothing. Use them to see how N, K and the spectrum change the error.

        Parameters
        ----------
        N : int, optional
            Documents; those of the fit when None.
        delta : float
            Probability that a bound fails.
        """
        return self._topics()[1].convergence_bound(N, delta)

    def _topics(self) -> tuple[Trained, TopicModel]:
        trained = self._trained()
        return trained, trained.fitted  # type: ignore[return-value]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # The model sees only whether a feature is present. Its checks use features of any size.
        tags.classifier_tags.poor_score = True
        return tags
