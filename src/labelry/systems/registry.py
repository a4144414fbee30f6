"""The systems by name, imported only when asked for."""

from __future__ import annotations

import os
from importlib import import_module

from labelry import modelfile
from labelry.errors import ModelError
from labelry.estimator import LabelRanker

SYSTEMS: dict[str, str] = {
    "one-vs-rest": "labelry.baselines:OneVsRest",
    "rembrandt": "labelry.systems.label_embedding:Rembrandt",
    "pca": "labelry.systems.embedding_relatives:PCA",
    "compressed-sensing": "labelry.systems.embedding_relatives:CompressedSensing",
    "plst": "labelry.systems.embedding_relatives:PLST",
    "cplst": "labelry.systems.embedding_relatives:CPLST",
    "cca": "labelry.systems.embedding_relatives:CCA",
    "ml-cssp": "labelry.systems.embedding_relatives:MLCSSP",
    "blend": "labelry.systems.blend:Blend",
    "linear-tree": "labelry.systems.linear_tree:LinearLabelTree",
    "label-tree": "labelry.systems.label_tree:LabelTree",
    "label-embedding-tree": "labelry.systems.label_embedding_tree:LabelEmbeddingTree",
    "sequential-embedding": "labelry.systems.joint_embedding:SequentialEmbedding",
    "joint-embedding": "labelry.systems.joint_embedding:JointEmbedding",
    "wsabie": "labelry.systems.joint_embedding:WSABIE",
    "filter-tree": "labelry.baselines.filter_tree:FilterTree",
    "conditional-probability-tree": (
        "labelry.baselines.conditional_probability_tree:ConditionalProbabilityTree"
    ),
    "fastxml": "labelry.baselines.fastxml:FastXML",
    "lpsr": "labelry.baselines.lpsr:LPSR",
    "knn": "labelry.systems.neighbours:NearestNeighbours",
    "local-leml": "labelry.systems.local_leml:LocalLEML",
    "sleec": "labelry.systems.sleec:SLEEC",
    "leml": "labelry.systems.leml:LEML",
    "moments": "labelry.systems.moments:Moments",
}


# What `labelry train` makes without --system. It is built of systems, so it is not listed as one.
_TAGGER = {"tagger": "labelry.systems.tagger:Tagger"}


def system_class(name: str) -> type[LabelRanker]:
    """The estimator class of a system name.

    >>> system_class("one-vs-rest").__name__
    'OneVsRest'
    """
    homes = SYSTEMS | _TAGGER
    if name not in homes:
        raise ValueError(f"unknown system {name!r}; there are: {', '.join(SYSTEMS)}")
    module, _, cls = homes[name].partition(":")
    return getattr(import_module(module), cls)


def load(path: str | os.PathLike[str], *, verify: bool = True) -> LabelRanker:
    """The model that ``save`` wrote to a directory; its arrays are memory-mapped.

    ``verify=False`` skips the checksums of the arrays, so that a large model opens at once.
    """
    file = modelfile.load(path, verify=verify)
    if file.system not in SYSTEMS | _TAGGER:
        raise ModelError(
            f"{path} holds a {file.system!r} model, which labelry here does not know; "
            f"it knows: {', '.join(SYSTEMS)}"
        )
    return system_class(file.system).from_file(file)
