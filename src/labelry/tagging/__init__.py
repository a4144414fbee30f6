"""The parts of the tagger: retrieval, blend, calibrated trees, explanation, growth, time budget."""
