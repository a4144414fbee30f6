"""Names such as `labelry.linalg.sketch.range_finder` on any page become links to the reference."""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util.nodes import make_refnode

_NAME = re.compile(r"labelry(\.\w+)+")


class CodeLinks(SphinxPostTransform):
    """Runs when all pages are read, so that every name that is described is known."""

    default_priority = 5

    def run(self, **_: Any) -> None:
        described = self.env.get_domain("py").objects
        for literal in list(self.document.findall(nodes.literal)):
            name = literal.astext()
            if not _NAME.fullmatch(name) or isinstance(literal.parent, nodes.reference):
                continue
            found = next((each for each in (name, home(name)) if each in described), None)
            if found is not None:
                entry = described[found]
                link = make_refnode(
                    self.app.builder,
                    self.env.docname,
                    entry.docname,
                    entry.node_id,
                    literal.deepcopy(),
                    found,
                )
                literal.replace_self(link)


def home(name: str) -> str:
    """Where something is defined that can be imported as `name`; itself, if that is not to be had.

    >>> home("labelry.metrics.precision_at_k")
    'labelry.metrics.ranking.precision_at_k'
    """
    module, _, attribute = name.rpartition(".")
    try:
        value = getattr(import_module(module), attribute)
    except (ImportError, AttributeError):
        return name  # a method, or a command such as labelry.load("x") that looks like a name
    return f"{getattr(value, '__module__', module)}.{getattr(value, '__qualname__', attribute)}"


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_post_transform(CodeLinks)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
