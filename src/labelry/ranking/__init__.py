"""From an embedded row to ranked labels."""

from labelry.ranking.correction import Correction, fit_correction, log_odds, out_of_fold
from labelry.ranking.linear import LinearDecoder, least_squares_decoder
from labelry.ranking.logistic import fit_logistic
from labelry.ranking.neighbours import Neighbours, fit_neighbours
from labelry.ranking.random_features import RandomFeatures, make_random_features

__all__ = [
    "Correction",
    "LinearDecoder",
    "Neighbours",
    "RandomFeatures",
    "fit_correction",
    "fit_logistic",
    "fit_neighbours",
    "least_squares_decoder",
    "log_odds",
    "make_random_features",
    "out_of_fold",
]
