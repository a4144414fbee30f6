"""Labels (and features) to thin embeddings: one module per published method."""

from labelry.embeddings.comparisons import cca, compressed_sensing, pca, plst
from labelry.embeddings.embedding import Embedding
from labelry.embeddings.export import export_embedding
from labelry.embeddings.rembrandt import rembrandt

__all__ = ["Embedding", "cca", "compressed_sensing", "export_embedding", "pca", "plst", "rembrandt"]
