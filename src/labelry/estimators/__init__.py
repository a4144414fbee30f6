"""The scikit-learn shells and the registry of systems; the mathematics is in the rooms below."""

from labelry.estimators.registry import SYSTEMS, load, system_class

__all__ = ["SYSTEMS", "load", "system_class"]
