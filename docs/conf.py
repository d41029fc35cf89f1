"""Sphinx configuration of the documentation site: `make docs` writes build/site, its sources, and build/docs."""

import re

from docutils import nodes

from ampscale import __version__

project, author, copyright, release = "ampscale", "the ampscale authors", "the ampscale authors", __version__
extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_files"]
root_doc = "index"
default_role = "py:obj"  # of the docstrings: `scale` links to the function if there is one
suppress_warnings = ["myst.header"]  # chapters of the specification have headings of levels 1 and 3 only

smartquotes_action = "D"  # dashes only: quotation marks of options can be copied
toc_object_entries = False  # each object of the API has a heading

myst_heading_anchors = 6
myst_links_external_new_tab = False

# The theme of NumPy and of the Array API standard: readers know it, it needs no other host, and it has light and dark colors.
html_theme = "pydata_sphinx_theme"
html_title = "ampscale"
html_static_path = ["_static"]
templates_path = ["_templates"]
html_css_files = ["site.css"]
html_js_files = ["filter.js"]
html_extra_path = ["../build/site/_files"]
html_sidebars = {"**": ["all-pages"]}
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "navbar_start": ["navbar-logo"],
    "navbar_center": [],
    "navbar_end": ["theme-switcher"],
    "secondary_sidebar_items": ["page-toc"],
    "show_toc_level": 2,
    "footer_start": ["copyright"],
    "footer_end": [],
    "back_to_top_button": False,
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}


def setup(app):
    """Connect the event before that in which the contents of a page are collected."""
    app.connect("doctree-read", name_clauses, priority=0)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def name_clauses(_, doctree):
    """Make the id of a clause the anchor of its heading: the URL ends in #SCALING-scale."""
    for section in doctree.findall(nodes.section):
        if clause := re.fullmatch(r"([A-Z]+-[a-z0-9-]+) · \w+", section[0].astext()):
            section["ids"].insert(0, clause[1])
