"""labelry: the right few labels out of very many."""

from labelry._version import __version__

__all__ = ["__version__"]
