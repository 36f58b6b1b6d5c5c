"""Settings of Sphinx for the site; `tools/site/__main__.py` names this folder with `-c`."""

from pathlib import Path
from typing import Any

from pygments.lexers.data import JsonLexer
from pygments.lexers.special import TextLexer

project = "Assay"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
root_doc = "index"
html_theme = "pydata_sphinx_theme"
html_title = "Assay"
html_theme_options = {"header_links_before_dropdown": 8, "show_prev_next": False, "collapse_navigation": True}
html_show_sourcelink = False
html_copy_source = False
html_extra_path = [str(path) for path in (Path(__file__).parents[2] / "library/assay/reports").glob("*.schema.json")]
html_show_copyright = False

# GitHub's anchors, of which the links between pages make use.
myst_heading_anchors = 4

# Docstrings mark code as Markdown does, with single backticks.
default_role = "code"
autodoc_typehints = "description"
autodoc_member_order = "bysource"
autodoc_inherit_docstrings = False
autodoc_class_signature = "separated"


def setup(app: Any) -> dict[str, bool]:
    """Register lexers for languages that Pygments lacks, so that an unknown language stays an error."""
    app.add_lexer("jsonl", JsonLexer)
    app.add_lexer("csv", TextLexer)
    app.add_lexer("mermaid", TextLexer)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
