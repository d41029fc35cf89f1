"""Sphinx configuration of the documentation site: `make docs` writes build/site, its sources, and build/docs."""

import re

from docutils import nodes
from sphinx.util.nodes import make_refnode

from ampscale import __version__

project, author, copyright, release = "ampscale", "the ampscale authors", "the ampscale authors", __version__
extensions = ["myst_parser", "sphinx_copybutton"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_files"]
root_doc = "index"
default_role = "py:obj"  # of the docstrings: `scale` links to the function if there is one
suppress_warnings = ["myst.header"]  # chapters of the specification have headings of levels 1 and 3 only

copybutton_prompt_text, copybutton_prompt_is_regexp = r">>> |\.\.\. |\$ ", True  # only what follows prompts is copied

smartquotes_action = "D"  # dashes only: quotation marks of options can be copied
toc_object_entries = False  # each object of the API has a heading

myst_heading_anchors = 6
myst_links_external_new_tab = False

linkcheck_ignore = [r"(?!https?:)"]  # `make docs` checks the links within the site
linkcheck_anchors = False  # hosts such as github.com create anchors by a script
linkcheck_retries, linkcheck_timeout = 2, 20

# The theme of NumPy and of the Array API standard: readers know it, it needs no other host, and it has light and dark colors.
html_theme = "pydata_sphinx_theme"
html_title = f"ampscale {release}"
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
    """Connect the functions below to the events of a build."""
    app.connect("doctree-read", name_clauses, priority=0)  # before the contents of a page are collected
    app.connect("doctree-resolved", link_names)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def name_clauses(_, doctree):
    """Make the id of a clause the anchor of its heading: the URL ends in #SCALING-scale."""
    for section in doctree.findall(nodes.section):
        if clause := re.fullmatch(r"([A-Z]+-[a-z0-9-]+) · \w+", section[0].astext()):
            section["ids"].insert(0, clause[1])


def link_names(app, doctree, page):
    """Link the first mention of a public class or function in each section to its description."""
    objects = {name: entry for name, entry in app.env.get_domain("py").objects.items() if entry.objtype in ("class", "function")}
    targets, linked = short_names(objects) | {name: name for name in objects}, set()
    for literal in list(doctree.findall(nodes.literal)):
        target, parents = targets.get(literal.astext().removesuffix("()")), ancestors(literal)
        section = next((parent for parent in parents if isinstance(parent, nodes.section)), None)
        if (
            target
            and page != "api"
            and (section, target) not in linked
            and not any(isinstance(each, UNLINKED) for each in parents)
        ):
            entry = objects[target]
            literal.replace_self(make_refnode(app.builder, page, entry.docname, entry.node_id, literal.deepcopy(), target))
            linked.add((section, target))


UNLINKED = nodes.reference, nodes.title


def short_names(objects):
    """Return full names by short name, except lowercase words without "_", and names that several modules have."""
    names = {}
    for name in objects:
        names.setdefault(name.rpartition(".")[2], []).append(name)
    return {short: full[0] for short, full in names.items() if len(full) == 1 and ("_" in short or not short.islower())}


def ancestors(node):
    """Return the nodes that contain a node, from the inside out."""
    return [node.parent, *ancestors(node.parent)] if node.parent else []
