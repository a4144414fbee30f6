"""Measures of predictions of extreme classification, for all rows or a block at a time.

Predictions are `labels` (n, k): label numbers, best first, -1 where there is none. The truth is
`Y` (n, c), sparse: a label is true where Y is not zero. Y may have labels that the model
never saw in training; they count wherever true labels are counted.

The functions return fractions between 0 and 1; `Evaluation` does all of them at once, in
percent, over any number of blocks of rows. Conventions, which are those of napkinXC and
of the extreme classification repository:

- A row without true labels counts as a row, with zero precision, recall and nDCG.
- P@k divides by k, even where fewer labels are predicted or true.
- The ideal of nDCG@k has min(k, number of true labels) hits.
- A measure whose denominator is zero (no rows; no true label anywhere) is nan.
"""

from labelry.metrics.evaluation import Evaluation
from labelry.metrics.hierarchy import nearest_labels, sibling_fraction
from labelry.metrics.labelwise import (
    coverage_at_k,
    macro_f1,
    macro_f1_at_k,
    micro_f1,
    micro_f1_at_k,
)
from labelry.metrics.matching import keep_above
from labelry.metrics.ranking import (
    error_rate,
    frequency_bins,
    inverse_propensity,
    ndcg_at_k,
    precision_at_k,
    psndcg_at_k,
    psp_at_k,
    recall_at_k,
)
from labelry.metrics.scoring import auc, expected_calibration_error

__all__ = [
    "Evaluation",
    "auc",
    "coverage_at_k",
    "error_rate",
    "expected_calibration_error",
    "frequency_bins",
    "inverse_propensity",
    "keep_above",
    "macro_f1",
    "macro_f1_at_k",
    "micro_f1",
    "micro_f1_at_k",
    "ndcg_at_k",
    "nearest_labels",
    "precision_at_k",
    "psndcg_at_k",
    "psp_at_k",
    "recall_at_k",
    "sibling_fraction",
]
