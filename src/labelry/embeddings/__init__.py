"""Methods that turn labels or rows into short vectors, one module each; no trees, no estimators.

A module of a method holds its settings, its fit function and its fitted value.
"""
