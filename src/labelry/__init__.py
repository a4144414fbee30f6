"""labelry: the right few labels out of very many.

Names are imported when they are first used, so that the command line starts at once.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from labelry._version import __version__

if TYPE_CHECKING:
    from labelry.baselines import OneVsRest
    from labelry.data import Dataset, TextFeatures
    from labelry.errors import DataError, LabelryError, ModelError
    from labelry.evaluation import evaluate
    from labelry.systems import load
    from labelry.systems.label_embedding import (
        CCA,
        CPLST,
        PCA,
        PLST,
        CompressedSensing,
        Rembrandt,
    )

__all__ = [
    "CCA",
    "CPLST",
    "PCA",
    "PLST",
    "CompressedSensing",
    "DataError",
    "Dataset",
    "LabelryError",
    "ModelError",
    "OneVsRest",
    "Rembrandt",
    "TextFeatures",
    "__version__",
    "evaluate",
    "load",
]

_HOME = {
    "CCA": "systems.label_embedding",
    "CPLST": "systems.label_embedding",
    "CompressedSensing": "systems.label_embedding",
    "DataError": "errors",
    "Dataset": "data",
    "LabelryError": "errors",
    "ModelError": "errors",
    "OneVsRest": "baselines",
    "PCA": "systems.label_embedding",
    "PLST": "systems.label_embedding",
    "Rembrandt": "systems.label_embedding",
    "TextFeatures": "data",
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
