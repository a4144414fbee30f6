"""Pictures of models (they need the `viz` extra), the label map, and the HTML report."""
