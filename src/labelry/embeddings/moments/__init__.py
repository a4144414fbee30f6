"""Topics of words and labels from moments of the word counts, in three passes over the rows.

Dasgupta: Multi-label learning with provable guarantee, 2016.
"""

from labelry.embeddings.moments.algorithm import learn_topics
from labelry.embeddings.moments.bounds import (
    ConvergenceBound,
    MomentStatistics,
    SampleSizeWarning,
    convergence_bound,
    most_topics,
)
from labelry.embeddings.moments.documents import present_words
from labelry.embeddings.moments.tensor import tensor_eigenpairs
from labelry.embeddings.moments.topics import Estimate, Topics, choose_topics

__all__ = [
    "ConvergenceBound",
    "Estimate",
    "MomentStatistics",
    "SampleSizeWarning",
    "Topics",
    "choose_topics",
    "convergence_bound",
    "learn_topics",
    "most_topics",
    "present_words",
    "tensor_eigenpairs",
]
