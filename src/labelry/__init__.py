"""labelry: the right few labels out of very many.

Names are imported when they are first used, so that the command line starts at once.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from labelry._version import __version__

if TYPE_CHECKING:
    from labelry.data import Dataset, TextFeatures
    from labelry.errors import DataError, LabelryError, ModelError
    from labelry.estimators import load
    from labelry.estimators.baselines import NearestNeighbours, OneVsRest
    from labelry.estimators.embeddings import (
        CCA,
        CPLST,
        MLCSSP,
        PCA,
        PLST,
        CompressedSensing,
        Rembrandt,
    )
    from labelry.estimators.joint import (
        WSABIE,
        JointEmbedding,
        LabelEmbeddingTree,
        SequentialEmbedding,
    )
    from labelry.estimators.local import LEML, SLEEC, LocalLEML
    from labelry.estimators.moments import Moments
    from labelry.estimators.tagging import Blend, Tagger
    from labelry.estimators.trees import (
        LPSR,
        ConditionalProbabilityTree,
        FastXML,
        FilterTree,
        LabelTree,
        LinearLabelTree,
    )
    from labelry.evaluation.evaluate import evaluate

__all__ = [
    "CCA",
    "CPLST",
    "LEML",
    "LPSR",
    "MLCSSP",
    "PCA",
    "PLST",
    "SLEEC",
    "WSABIE",
    "Blend",
    "CompressedSensing",
    "ConditionalProbabilityTree",
    "DataError",
    "Dataset",
    "FastXML",
    "FilterTree",
    "JointEmbedding",
    "LabelEmbeddingTree",
    "LabelTree",
    "LabelryError",
    "LinearLabelTree",
    "LocalLEML",
    "ModelError",
    "Moments",
    "NearestNeighbours",
    "OneVsRest",
    "Rembrandt",
    "SequentialEmbedding",
    "Tagger",
    "TextFeatures",
    "__version__",
    "evaluate",
    "load",
]

_HOME = {
    "Blend": "estimators.tagging",
    "CCA": "estimators.embeddings",
    "CPLST": "estimators.embeddings",
    "CompressedSensing": "estimators.embeddings",
    "ConditionalProbabilityTree": "estimators.trees",
    "DataError": "errors",
    "Dataset": "data",
    "FastXML": "estimators.trees",
    "FilterTree": "estimators.trees",
    "JointEmbedding": "estimators.joint",
    "LEML": "estimators.local",
    "LPSR": "estimators.trees",
    "LabelEmbeddingTree": "estimators.joint",
    "LabelTree": "estimators.trees",
    "LabelryError": "errors",
    "LinearLabelTree": "estimators.trees",
    "LocalLEML": "estimators.local",
    "MLCSSP": "estimators.embeddings",
    "ModelError": "errors",
    "Moments": "estimators.moments",
    "NearestNeighbours": "estimators.baselines",
    "OneVsRest": "estimators.baselines",
    "PCA": "estimators.embeddings",
    "PLST": "estimators.embeddings",
    "Rembrandt": "estimators.embeddings",
    "SLEEC": "estimators.local",
    "SequentialEmbedding": "estimators.joint",
    "Tagger": "estimators.tagging",
    "TextFeatures": "data",
    "WSABIE": "estimators.joint",
    "evaluate": "evaluation.evaluate",
    "load": "estimators",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'labelry' has no attribute {name!r}")
    value = getattr(import_module(f"labelry.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
