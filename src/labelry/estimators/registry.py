"""The systems by name, imported only when asked for."""

from __future__ import annotations

import os
from importlib import import_module

from labelry.errors import ModelError, did_you_mean
from labelry.estimators.base import LabelRanker
from labelry.storage import modelfile

SYSTEMS: dict[str, str] = {
    "one-vs-rest": "labelry.estimators.baselines:OneVsRest",
    "rembrandt": "labelry.estimators.embeddings:Rembrandt",
    "pca": "labelry.estimators.embeddings:PCA",
    "compressed-sensing": "labelry.estimators.embeddings:CompressedSensing",
    "plst": "labelry.estimators.embeddings:PLST",
    "cplst": "labelry.estimators.embeddings:CPLST",
    "cca": "labelry.estimators.embeddings:CCA",
    "ml-cssp": "labelry.estimators.embeddings:MLCSSP",
    "blend": "labelry.estimators.tagging:Blend",
    "linear-tree": "labelry.estimators.trees:LinearLabelTree",
    "label-tree": "labelry.estimators.trees:LabelTree",
    "label-embedding-tree": "labelry.estimators.joint:LabelEmbeddingTree",
    "sequential-embedding": "labelry.estimators.joint:SequentialEmbedding",
    "joint-embedding": "labelry.estimators.joint:JointEmbedding",
    "wsabie": "labelry.estimators.joint:WSABIE",
    "filter-tree": "labelry.estimators.trees:FilterTree",
    "conditional-probability-tree": "labelry.estimators.trees:ConditionalProbabilityTree",
    "fastxml": "labelry.estimators.trees:FastXML",
    "lpsr": "labelry.estimators.trees:LPSR",
    "knn": "labelry.estimators.baselines:NearestNeighbours",
    "local-leml": "labelry.estimators.local:LocalLEML",
    "sleec": "labelry.estimators.local:SLEEC",
    "leml": "labelry.estimators.local:LEML",
    "moments": "labelry.estimators.moments:Moments",
}


# `labelry train` makes this one without --system. It combines systems, so it is not listed as one.
_TAGGER = {"tagger": "labelry.estimators.tagging:Tagger"}


def system_class(name: str) -> type[LabelRanker]:
    """Return the estimator class of a system name.

    >>> system_class("one-vs-rest").__name__
    'OneVsRest'
    """
    homes = SYSTEMS | _TAGGER
    if name not in homes:
        near = did_you_mean(name, SYSTEMS)
        raise ValueError(f"unknown system {name!r}; there are: {', '.join(SYSTEMS)}{near}")
    module, _, cls = homes[name].partition(":")
    return getattr(import_module(module), cls)


def load(path: str | os.PathLike[str], *, verify: bool = True) -> LabelRanker:
    """Return the model that ``save`` wrote to a directory; its arrays are memory-mapped.

    ``verify=False`` skips the checksums of the arrays, so that a large model opens at once.
    """
    file = modelfile.load(path, verify=verify)
    if file.system not in SYSTEMS | _TAGGER:
        raise ModelError(
            f"{path} holds a {file.system!r} model, which this labelry does not have; "
            f"it has: {', '.join(SYSTEMS)}"
        )
    return system_class(file.system).from_file(file)
