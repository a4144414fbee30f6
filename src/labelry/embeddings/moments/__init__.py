"""The method of moments, and nothing else: topics of words and labels, in three passes over rows.

Dasgupta: Multi-label learning with provable guarantee, 2016.
"""
