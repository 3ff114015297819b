"""An explorer of all regions of a release: choose them by name or on the tree, plot, compare and download them."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from typing import Any

import numpy as np

from coco_opt.array_types import Floats, Ints
from coco_opt.files.geometry import Outlines
from coco_opt.histograms import Hierarchy
from coco_opt.report.choropleth import map_data

Numbers = Ints | Floats

MOST_ROWS = 1_500_000
"""The maximum number of rows in a page: deeper levels are left out, and the page says so."""


_LEVEL = 5  # of compression: the highest takes twenty times as long and saves a tenth


@dataclass(frozen=True, eq=False, slots=True)
class Explored:
    """What a page shows of every region: rows (region, key, value), sorted by region, and their names.

    ``weight`` int64[regions] is a region's size (its groups, its persons). ``keys`` are integers, or positions in
    ``labels``; unless ``from_zero``, the axis begins at a region's first key. ``lower`` and ``upper`` are the ends of
    the values' intervals, where there are any. ``words`` name the weight, the key and the value, in
    the plural where there are many, and the ``places`` if they are not regions. With ``outlines`` there is a map.
    ``attributes`` have, for each of the ``labels``, the place of its value in a list of values: the map counts the keys
    of one value together. ``widths`` float64[regions] are those of the intervals of weights, where there are any.
    """

    hierarchy: Hierarchy
    levels: Sequence[str]
    region_ids: Sequence[str | None]
    weight: Ints
    regions: Ints
    keys: Ints
    values: Numbers
    words: Mapping[str, str]
    labels: Sequence[str] | None = None
    lower: Numbers | None = None
    upper: Numbers | None = None
    from_zero: bool = True
    outlines: Outlines | None = None
    attributes: Mapping[str, tuple[Sequence[str], Ints]] | None = None
    widths: Floats | None = None


def explorer_section(explored: Explored, note: str = "") -> str:
    """Return the section: a program of a few kilobytes and its compressed data; ``note`` explains them."""
    levels, rows = _fitting_levels(explored)
    notes = [escape(note)] if note else []
    if levels < explored.hierarchy.levels:
        omitted = ", ".join(explored.levels[levels:])
        notes.append(f"Too large for a page: {escape(omitted)}. The files of the release hold these levels.")
    shown = "".join(f"<p class='note'>{line}</p>" for line in notes)
    packed = base64.b64encode(gzip.compress(_payload(explored, levels, rows), _LEVEL, mtime=0)).decode("ascii")
    programs = ("explorer.js",) if explored.outlines is None else ("choropleth.js", "explorer.js")
    program = "\n".join((files("coco_opt.report") / name).read_text(encoding="utf-8") for name in programs)
    return (
        f"<h2>Look closer</h2>\n{shown}"
        '<section class="explorer" id="explorer" aria-label="Every region">'
        "<noscript>Choosing a region needs JavaScript; nothing is fetched.</noscript></section>\n"
        f'<script type="application/octet-stream" id="explorer-data">{packed}</script>\n<script>{program}</script>'
    )


def _fitting_levels(explored: Explored) -> tuple[int, int]:
    """Return how many levels, root first, a page holds, and how many rows they have."""
    tree = explored.hierarchy
    ends = np.array([tree.level_range(level).stop for level in range(tree.levels)])
    rows = np.searchsorted(explored.regions, ends)
    levels = max(1, int(np.count_nonzero(rows + ends <= MOST_ROWS)))
    return levels, int(rows[levels - 1])


def _payload(explored: Explored, levels: int, rows: int) -> bytes:
    tree = explored.hierarchy
    regions = tree.level_range(levels - 1).stop
    drawn = None if explored.outlines is None else map_data(explored.outlines, tree, levels)
    data: dict[str, Any] = {
        "levels": list(explored.levels[:levels]),
        "words": dict(explored.words),
        "names": list(tree.names[:regions]),
        "parent": tree.parent[:regions].tolist(),
        "level": tree.level[:regions].tolist(),
        "ids": list(explored.region_ids[:regions]) or [None] * regions,
        "weight": explored.weight[:regions].tolist(),
        "rows": np.bincount(explored.regions[:rows], minlength=regions).tolist(),
        "keys": explored.keys[:rows].tolist(),
        "values": explored.values[:rows].tolist(),
        "from_zero": explored.from_zero,
        "labels": None if explored.labels is None else list(explored.labels),
        "lower": None if explored.lower is None else explored.lower[:rows].tolist(),
        "upper": None if explored.upper is None else explored.upper[:rows].tolist(),
        **({} if drawn is None else {"map": {**drawn, **_for_map(explored, regions)}}),
    }
    return json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode("utf-8")


def _for_map(explored: Explored, regions: int) -> dict[str, Any]:
    """Return what the map shows besides the rows: the attributes of keys, and widths of intervals, -1 for none."""
    attributes = explored.attributes or {}
    known = None if explored.widths is None else np.where(np.isfinite(explored.widths), explored.widths, -1.0)
    return {
        "attributes": [[name, list(values), codes.tolist()] for name, (values, codes) in attributes.items()],
        "widths": None if known is None else known[:regions].round(1).tolist(),
    }
