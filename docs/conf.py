"""How the site is built: `sphinx-build -W --keep-going docs site`, without a network and without scripts from one."""

import sys
from pathlib import Path

from sphinx.application import Sphinx

import covopt

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_extensions"))

project, author, copyright = "covopt", "covopt developers", "covopt developers"
version = release = covopt.__version__

extensions = [
    "commands",
    "docstrings",
    "mathml",
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx_gallery.gen_gallery",
]
templates_path = ["_templates"]
exclude_patterns = ["_extensions", "_templates", "examples/*.ipynb", "examples/*.py"]
suppress_warnings = ["config.cache"]  # sphinx-gallery's sorting key has no stable text

smartquotes = False  # two hyphens are two hyphens

html_theme = "furo"
html_title = f"covopt {version}"
html_static_path = ["_static"]
html_css_files = ["covopt.css"]
html_math_renderer = "mathml"
html_copy_source = False
html_show_copyright = False
pygments_style = "default"
pygments_dark_style = "github-dark"

myst_enable_extensions = ["amsmath", "attrs_inline", "deflist", "dollarmath"]
myst_heading_anchors = 4

default_role = "py:obj"
autosummary_filename_map = {  # Path and path would be one file where names have no case
    f"covopt.{name}": f"covopt.{name}-class" for name in covopt.__all__ if name.lower() != name
}
autodoc_default_options = {
    "member-order": "bysource",
    "exclude-members": "words, set_fit_request, set_score_request",  # a module of texts; scikit-learn's own methods
}
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_class_signature = "mixed"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = False
napoleon_use_param = False  # parameters that share an entry stay together
strip_signature_backslash = True  # napoleon writes an attribute that ends in _ with one

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "examples",
    "filename_pattern": r"/\d\d_",
    "within_subsection_order": "FileNameSortKey",
    "abort_on_example_error": True,
    "download_all_examples": False,
    "show_memory": False,
    "write_computation_times": False,
    "show_signature": False,
    "remove_config_comments": True,
    "plot_gallery": True,
    "thumbnail_size": (320, 224),
}


def keep_out_of_search(app: Sphinx, name: str, source: list[str]) -> None:
    """Notes are for developers: they stay readable, and out of the search for users."""
    if name.startswith("notes/"):
        source[0] = f"---\nnosearch: true\n---\n{source[0]}"


def setup(app: Sphinx) -> None:
    app.connect("source-read", keep_out_of_search)
