"""From vectors and candidates to ranked labels, and what rows are held out for that."""
