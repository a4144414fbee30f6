"""labelry: the right few labels out of very many.

Names are imported when they are first used, so that the command line starts at once.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from labelry._version import __version__

if TYPE_CHECKING:
    from labelry.baselines import OneVsRest
    from labelry.baselines.conditional_probability_tree import ConditionalProbabilityTree
    from labelry.baselines.fastxml import FastXML
    from labelry.baselines.filter_tree import FilterTree
    from labelry.baselines.lpsr import LPSR
    from labelry.data import Dataset, TextFeatures
    from labelry.errors import DataError, LabelryError, ModelError
    from labelry.evaluation import evaluate
    from labelry.systems import load
    from labelry.systems.blend import Blend
    from labelry.systems.embedding_relatives import (
        CCA,
        CPLST,
        MLCSSP,
        PCA,
        PLST,
        CompressedSensing,
    )
    from labelry.systems.joint_embedding import WSABIE, JointEmbedding, SequentialEmbedding
    from labelry.systems.label_embedding import Rembrandt
    from labelry.systems.label_embedding_tree import LabelEmbeddingTree
    from labelry.systems.label_tree import LabelTree
    from labelry.systems.leml import LEML
    from labelry.systems.linear_tree import LinearLabelTree
    from labelry.systems.local_leml import LocalLEML
    from labelry.systems.moments import Moments
    from labelry.systems.neighbours import NearestNeighbours
    from labelry.systems.sleec import SLEEC
    from labelry.systems.tagger import Tagger

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
    "Blend": "systems.blend",
    "CCA": "systems.embedding_relatives",
    "CPLST": "systems.embedding_relatives",
    "CompressedSensing": "systems.embedding_relatives",
    "ConditionalProbabilityTree": "baselines.conditional_probability_tree",
    "DataError": "errors",
    "Dataset": "data",
    "FastXML": "baselines.fastxml",
    "FilterTree": "baselines.filter_tree",
    "JointEmbedding": "systems.joint_embedding",
    "LEML": "systems.leml",
    "LPSR": "baselines.lpsr",
    "LabelEmbeddingTree": "systems.label_embedding_tree",
    "LabelTree": "systems.label_tree",
    "LabelryError": "errors",
    "LinearLabelTree": "systems.linear_tree",
    "LocalLEML": "systems.local_leml",
    "MLCSSP": "systems.embedding_relatives",
    "ModelError": "errors",
    "Moments": "systems.moments",
    "NearestNeighbours": "systems.neighbours",
    "OneVsRest": "baselines",
    "PCA": "systems.embedding_relatives",
    "PLST": "systems.embedding_relatives",
    "Rembrandt": "systems.label_embedding",
    "SLEEC": "systems.sleec",
    "SequentialEmbedding": "systems.joint_embedding",
    "Tagger": "systems.tagger",
    "TextFeatures": "data",
    "WSABIE": "systems.joint_embedding",
    "evaluate": "evaluation",
    "load": "systems",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'labelry' has no attribute {name!r}")
    value = getattr(import_module(f"labelry.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
