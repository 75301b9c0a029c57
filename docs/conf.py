import re
from importlib.metadata import version as installed_version
from typing import Any

project = "onebasin"
author = "The onebasin authors"
project_copyright = "The onebasin authors"
release = version = installed_version("onebasin")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.mathjax",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "onebasin"

autodoc_member_order = "bysource"
# Fields of named tuples are members too: an Attributes section must not define them again.
napoleon_use_ivar = True
autodoc_typehints = "description"
myst_enable_extensions = ["deflist", "dollarmath"]


def setup(app: Any) -> None:
    app.connect("autodoc-process-docstring", _code_in_backticks)


def _code_in_backticks(*arguments: Any) -> None:
    # Docstrings mark code as Markdown does; reStructuredText wants two backticks and a word's end.
    lines = arguments[-1]
    lines[:] = [re.sub(r"(?<![`:])`([^`]+)`(?!`)", r"``\1``\\ ", line) for line in lines]
