"""Pictures of models; they need the `viz` extra."""
