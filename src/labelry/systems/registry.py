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
    "pca": "labelry.systems.label_embedding:PCA",
    "compressed-sensing": "labelry.systems.label_embedding:CompressedSensing",
    "plst": "labelry.systems.label_embedding:PLST",
    "cplst": "labelry.systems.label_embedding:CPLST",
    "cca": "labelry.systems.label_embedding:CCA",
}


def system_class(name: str) -> type[LabelRanker]:
    """The estimator class of a system name.

    >>> system_class("one-vs-rest").__name__
    'OneVsRest'
    """
    if name not in SYSTEMS:
        raise ValueError(f"unknown system {name!r}; there are: {', '.join(SYSTEMS)}")
    module, _, cls = SYSTEMS[name].partition(":")
    return getattr(import_module(module), cls)


def load(path: str | os.PathLike[str], *, verify: bool = True) -> LabelRanker:
    """The model that ``save`` wrote to a directory; its arrays are memory-mapped.

    ``verify=False`` skips the checksums of the arrays, so that a large model opens at once.
    """
    file = modelfile.load(path, verify=verify)
    if file.system not in SYSTEMS:
        raise ModelError(
            f"{path} holds a {file.system!r} model, which labelry here does not know; "
            f"it knows: {', '.join(SYSTEMS)}"
        )
    return system_class(file.system).from_file(file)
