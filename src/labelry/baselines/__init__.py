"""Systems that the papers compare with."""

from labelry.baselines.one_vs_rest import OneVsRest

__all__ = ["OneVsRest"]
