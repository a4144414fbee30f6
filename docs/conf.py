"""The docs site: `make docs` builds it. Pages ask nothing of any other host."""

import sys
from pathlib import Path

from labelry import __version__

sys.path.insert(0, str(Path(__file__).parent / "_extensions"))

project = "labelry"
html_title = f"labelry {__version__}"
version = release = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "numpydoc",
    "sphinx_copybutton",
    "code_links",
    "command_line",
    "plain_docstrings",
]
exclude_patterns = ["_extensions"]
highlight_language = "none"  # of blocks that do not say what they are
smartquotes = False  # --flags stay as they are
default_role = "code"  # `name` in a docstring
myst_heading_anchors = 3  # the anchors that GitHub makes

autodoc_typehints = "none"  # docstrings tell types in words
autodoc_member_order = "bysource"
autodoc_default_options = {
    # scikit-learn adds these to every estimator
    "exclude-members": "set_fit_request, set_partial_fit_request, set_predict_request, "
    "set_score_request, set_transform_request"
}
numpydoc_show_class_members = False  # autodoc has them

html_theme = "furo"
html_copy_source = False
html_show_copyright = False
html_show_sphinx = False
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_theme_options = {"navigation_with_keys": True}
