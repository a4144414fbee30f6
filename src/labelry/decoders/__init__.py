"""From an embedded row to ranked labels."""

from labelry.decoders.linear import LinearDecoder, least_squares_decoder
from labelry.decoders.logistic import fit_logistic
from labelry.decoders.neighbours import Neighbours, fit_neighbours, unit_rows
from labelry.decoders.random_features import RandomFeatures, make_random_features

__all__ = [
    "LinearDecoder",
    "Neighbours",
    "RandomFeatures",
    "fit_logistic",
    "fit_neighbours",
    "least_squares_decoder",
    "make_random_features",
    "unit_rows",
]
