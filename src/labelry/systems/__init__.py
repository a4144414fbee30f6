"""The estimators, by name."""

from labelry.systems.registry import SYSTEMS, load, system_class

__all__ = ["SYSTEMS", "load", "system_class"]
