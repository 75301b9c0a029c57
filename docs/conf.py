from importlib.metadata import version as installed_version

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
autodoc_typehints = "description"
myst_enable_extensions = ["deflist", "dollarmath"]
