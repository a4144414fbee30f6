"""Fitted values on disk: JSON, safetensors, checksums, atomic replacement."""
