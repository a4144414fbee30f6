"""The tools that are compared: where they come from, and with which settings."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import labelry


@dataclass(frozen=True)
class Tool:
    """A line of the table.

    `runner` names its script and its environment, made by one call of pip for each of `installs`
    (none: this interpreter). `tuned` has the settings that differ on a dataset.
    """

    runner: str
    title: str
    settings: dict[str, Any]
    installs: tuple[str, ...] = ()
    tuned: dict[str, dict[str, Any]] = field(default_factory=dict)

    def settings_for(self, dataset: str) -> dict[str, Any]:
        return {**self.settings, **self.tuned.get(dataset, {})}

    @property
    def is_there(self) -> bool:
        return "quality" not in self.settings or getattr(labelry, "Tagger", None) is not None


OMIKUJI = ("omikuji==0.5.2 numpy scipy",)
NAPKINXC = ("napkinxc==0.7.2 numpy scipy",)
PECOS = ("numpy<2 scipy<1.14 scikit-learn<1.6", "--no-deps libpecos==1.2.8")
LIBMULTILABEL = ("libmultilabel==0.10.0",)
FASTTEXT = ("fasttext-wheel==0.9.2 numpy<2 scipy",)
VOWPALWABBIT = ("vowpalwabbit==9.11.9 numpy scipy",)

TOOLS = {
    "linear-tree": Tool("labelry", "labelry linear-tree", {"system": "linear-tree"}),
    "linear-tree-x3": Tool(
        "labelry", "labelry linear-tree, 3 trees", {"system": "linear-tree", "n_trees": 3}
    ),
    "blend": Tool("labelry", "labelry blend", {"system": "blend"}),
    "tagger-fast": Tool("labelry", "labelry Tagger, fast", {"quality": "fast"}),
    "tagger-balanced": Tool("labelry", "labelry Tagger, balanced", {"quality": "balanced"}),
    "tagger-best": Tool("labelry", "labelry Tagger, best", {"quality": "best"}),
    "omikuji-parabel": Tool("omikuji", "omikuji 0.5.2, Parabel", {"n_trees": 3}, OMIKUJI),
    "omikuji-bonsai": Tool(
        "omikuji",
        "omikuji 0.5.2, Bonsai",
        {"n_trees": 3, "cluster_k": 100, "cluster_balanced": False, "max_depth": 3},
        OMIKUJI,
    ),
    "napkinxc": Tool("napkinxc", "napkinXC 0.7.2", {}, NAPKINXC),
    "napkinxc-x3": Tool("napkinxc", "napkinXC 0.7.2, 3 trees", {"ensemble": 3}, NAPKINXC),
    "libpecos": Tool(
        "libpecos",
        "libpecos 1.2.8, XR-Linear",
        {
            "nr_splits": 16,
            "max_leaf_size": 100,
            "Cp": 1.0,
            "Cn": 1.0,
            "threshold": 0.1,
            "beam_size": 10,
        },
        PECOS,
    ),
    "libmultilabel": Tool(
        "libmultilabel",
        "LibMultiLabel 0.10.0, tree",
        {"options": "-s 1 -B 1"},  # with a bias, which the other trees have by themselves
        LIBMULTILABEL,
    ),
    "fasttext": Tool(
        "fasttext",
        "fastText 0.9.2",
        {"loss": "ova", "epoch": 25, "lr": 0.1},
        FASTTEXT,
        # On held-out training rows: more labels bear less (at 0.2 delicious diverges). One
        # classifier per label takes hours with very many: for those it has hierarchical softmax.
        tuned={
            "bibtex": {"lr": 0.3},
            "delicious": {"lr": 0.05},
            "deb-depends": {"loss": "hs", "lr": 0.3},
            "wordnet-hypernym": {"loss": "hs", "lr": 0.6},
            "icd-10-cm": {"loss": "hs", "lr": 0.6},  # not tried: as for wordnet
            "icd-10-cm-codes": {"loss": "hs", "lr": 0.6},
        },
    ),
    "vowpalwabbit": Tool(
        "vowpalwabbit",
        "Vowpal Wabbit 9.11.9, PLT",
        {"kary_tree": 16, "loss_function": "logistic", "learning_rate": 0.5, "passes": 5},
        VOWPALWABBIT,
    ),
}

NOTES = """
All tools got the same rows, scaled to unit length, and {jobs} threads where they accept a number of
threads. Each predicted five labels. P and PSP (A = 0.55, B = 1.5) are in percent. omikuji has no
seed, and fastText ignores it with several threads, so their results differ from run to run. Each
line is a process of its own:

- Training is wall time and CPU time from data in memory to a model in memory. It includes reading
  a text file for omikuji, fastText and Vowpal Wabbit, and writing the model for napkinXC and
  Vowpal Wabbit, because these tools do not separate the steps. labelry first fits 400 rows, so that
  its kernels are compiled, as those of the other tools are.
- A batch is all test rows; the table has the quickest of up to three runs. omikuji and Vowpal
  Wabbit have no batch call in Python and predict row by row. One row is the median of 200 calls
  with one row in Python, for libpecos on one thread. napkinXC reads the trees of an ensemble at
  each call.
- Model is the size on disk as the tool saves it. Peak is the resident memory of the whole process,
  with interpreter, data and predictions.
- fastText reads words: each feature is a word, and the weights of features are dropped. fastText,
  LibMultiLabel and Vowpal Wabbit predict on one thread. Vowpal Wabbit also trains on one thread,
  in a table of at most 2^26 weights.

Settings; all others are the defaults of the tool:
"""
