"""Place all labels on a plane, similar labels side by side, and group them."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.manifold import TSNE
from threadpoolctl import threadpool_limits

from labelry.arrays import F32, I32, I64, Ints
from labelry.linalg.clusters import nearest_centre, unit_centres
from labelry.linalg.matrices import scaled_rows
from labelry.linalg.topk import topk_blocks
from labelry.report.label_groups import GREY, dense_groups

LEADERS = 3  # most frequent labels that name a group

_UMAP_LABELS = 20_000  # most labels for UMAP, which then takes about a minute; not tuned
_LANDMARKS = 1_200  # labels, or centres of labels, that t-SNE places; not tuned
_FEW = 8  # up to so many labels are placed on a circle; not tuned
_GOLDEN_ANGLE = np.pi * (3 - np.sqrt(5))


class LabelMap(NamedTuple):
    """Labels on a plane, and groups of labels that lie close together.

    `leaders` are the most frequent labels of each group, in that order; -1 if there are fewer.
    `words` name the groups; a word is empty where the labels of a group have none in common.
    """

    points: F32  # (n_labels, 2) in the unit square; y grows upwards
    groups: NDArray[np.uint8]  # of each label, or `GREY`; the group with the most rows is 0
    leaders: I32  # (n_groups, LEADERS)
    words: list[str]  # (n_groups,)


def label_map(
    vectors: F32, counts: Ints, names: Sequence[str], rng: np.random.Generator
) -> LabelMap:
    """Place labels by their vectors: the larger the cosine of two labels, the nearer they are.

    With at most 20,000 labels, UMAP places them if it is installed (the ``map`` extra). Otherwise
    t-SNE places 1,200 centres of labels, and each label lies between the centres that are most
    similar to it; this takes seconds for 100,000 labels. It runs in one thread, because a server
    needs the others. `counts` are the rows of each label, `names` the texts whose words name the
    groups.

    References
    ----------
    van der Maaten, Hinton: Visualizing data using t-SNE, JMLR 2008.
    McInnes, Healy, Melville: UMAP, arXiv 1802.03426.

    Examples
    --------
    >>> names = ["red fox", "arctic fox", "grey fox"]
    >>> found = label_map(np.eye(3, dtype=np.float32), np.ones(3), names, np.random.default_rng(0))
    >>> found.points.shape, found.groups.tolist(), found.words  # too few for a group
    ((3, 2), [255, 255, 255], [])
    """
    for what, given in (("counts", counts), ("names", names)):
        if len(vectors) != len(given):
            raise ValueError(f"{what} must have {len(vectors)} values, got {len(given)}")
    with threadpool_limits(1):
        U = scaled_rows(np.ascontiguousarray(vectors, dtype=np.float32))
        # Labels with equal vectors, such as the zeros of labels without rows, would all lie on one
        # point; a little noise separates them.
        U = U + rng.normal(0, 1e-3 / np.sqrt(max(1, U.shape[1])), U.shape).astype(np.float32)
        points = _in_unit_square(_placed(U, rng))
        groups, words = dense_groups(points, U, np.asarray(counts), names)
        return LabelMap(points, groups, _leaders(groups, counts, len(words)), words)


def _placed(U: F32, rng: np.random.Generator) -> F32:
    n = len(U)
    if n <= _FEW:
        angle = 2 * np.pi * np.arange(n) / n
        return np.column_stack([np.cos(angle), np.sin(angle)]).astype(np.float32)
    umap = _installed_umap() if n <= _UMAP_LABELS else None
    if umap is not None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # UMAP warns that a seed means one thread
            neighbours = min(15, n - 1)
            layout = umap(metric="cosine", n_neighbors=neighbours, random_state=_seed(rng))
            return layout.fit_transform(U)
    return _tsne(U, rng) if n <= _LANDMARKS else _around_landmarks(U, rng)


def _installed_umap() -> Any | None:
    try:
        from umap import UMAP
    except ImportError:
        return None
    return UMAP


def _tsne(U: F32, rng: np.random.Generator) -> F32:
    perplexity = min(30.0, (len(U) - 1) / 3)
    return TSNE(perplexity=perplexity, init="pca", random_state=_seed(rng)).fit_transform(U)


def _around_landmarks(U: F32, rng: np.random.Generator) -> F32:
    """Place the centres of many small clusters by t-SNE, and the labels between and around them."""
    landmarks = _centres(U, _LANDMARKS, rng)
    plane = _tsne(np.ascontiguousarray(landmarks.T), rng)
    near, cosine = topk_blocks(lambda rows: U[rows] @ landmarks, len(U), _LANDMARKS, 3)
    # Place a label between its three most similar landmarks, weighted by similarity, ...
    weight = np.exp(12 * (cosine - cosine[:, :1]))
    weight /= weight.sum(axis=1, keepdims=True)
    between = np.einsum("ij,ijk->ik", weight, plane[near])
    # ... and spread labels of one place like the seeds of a sunflower.
    rank = _rank_within(near[:, 0], -cosine[:, 0])
    spacing = _typical_distance(plane) / np.sqrt(len(U) / _LANDMARKS)
    radius, angle = spacing * np.sqrt(rank) / 2, rank * _GOLDEN_ANGLE
    seed = np.column_stack([radius * np.cos(angle), radius * np.sin(angle)])
    return (between + seed).astype(np.float32)


def _centres(U: F32, n_clusters: int, rng: np.random.Generator) -> F32:
    """Return unit centres (k, n_clusters) of labels: random labels, then two rounds of Lloyd.

    Landmarks only have to lie among the labels, so two rounds are enough.
    """
    start = np.sort(rng.choice(len(U), n_clusters, replace=False))
    centres = np.ascontiguousarray(scaled_rows(U[start]).T)
    for _ in range(2):
        found = np.asarray(unit_centres(U, nearest_centre(U, centres), n_clusters))
        centres = np.where(found.any(axis=0), found, centres)
    return centres


def _leaders(groups: NDArray[np.uint8], counts: Ints, n_groups: int) -> I32:
    rank = _rank_within(groups, -np.asarray(counts))
    first = np.flatnonzero((rank < LEADERS) & (groups != GREY))
    leaders = np.full((n_groups, LEADERS), -1, dtype=np.int32)
    leaders[groups[first], rank[first]] = first
    return leaders


def _rank_within(group: Ints, key: NDArray) -> I64:
    """Return the rank of each item within its group, by key; the smallest has 0."""
    order = np.lexsort((key, group))
    sizes = np.bincount(group)
    starts = np.cumsum(sizes) - sizes
    rank = np.empty(len(group), dtype=np.int64)
    rank[order] = np.arange(len(group)) - np.repeat(starts, sizes)
    return rank


def _typical_distance(plane: F32) -> float:
    """Return the side of the square that each point has if all share their area."""
    low, high = np.percentile(plane, [5, 95], axis=0)
    return float(np.sqrt(np.prod(high - low) / len(plane)))


def _in_unit_square(points: F32) -> F32:
    """Move and scale points into the unit square, by the same factor in both directions."""
    low, high = points.min(axis=0), points.max(axis=0)
    side = float((high - low).max()) or 1.0
    return np.clip(0.5 + (points - (low + high) / 2) / side, 0, 1).astype(np.float32)


def _seed(rng: np.random.Generator) -> int:
    return int(rng.integers(2**31))
