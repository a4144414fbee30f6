"""Measures of a fitted model on labelled rows, and searches that maximise them; no learning."""
