"""Labels (and features) to thin embeddings: one module per published method."""

from labelry.embeddings.comparisons import (
    cca,
    column_subset,
    compressed_sensing,
    covariance,
    pca,
    plst,
)
from labelry.embeddings.embedding import Embedding
from labelry.embeddings.export import export_embedding, export_files
from labelry.embeddings.rembrandt import PredictionCovariance, rembrandt, updated_rembrandt

__all__ = [
    "Embedding",
    "PredictionCovariance",
    "cca",
    "column_subset",
    "compressed_sensing",
    "covariance",
    "export_embedding",
    "export_files",
    "pca",
    "plst",
    "rembrandt",
    "updated_rembrandt",
]
