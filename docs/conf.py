"""How Sphinx builds the pages of this folder: ``make docs``; every warning is an error there."""

from __future__ import annotations

import sys
from pathlib import Path

from coco_opt import __version__

sys.path.insert(0, str(Path(__file__).parent / "_ext"))
sys.path.insert(0, str(Path(__file__).parents[1]))  # the page of evidence is made of a table of the tests

project = "coco-opt"
author = "The coco-opt contributors"
project_copyright = author
release = version = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "coco_pages"]
exclude_patterns = ["_build", "_ext"]
myst_heading_anchors = 4
myst_enable_extensions = ["deflist"]

napoleon_google_docstring = False
napoleon_use_ivar = True  # attributes as a list, like parameters
napoleon_use_param = napoleon_use_rtype = False  # words of a type, such as "cells", are no links to attributes
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_class_signature = "mixed"
python_use_unqualified_type_names = True

html_theme = "furo"
html_title = f"coco-opt {release}"
html_copy_source = False
html_show_sourcelink = False
