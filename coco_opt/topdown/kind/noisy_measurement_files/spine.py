"""A hierarchy from the geocodes of noisy measurement files alone.

The codes of a level have one length, and begin with the code of the region above, as those of the 2020 Census's spine
do: "050" is a state without its American Indian areas, "150" those areas, "050100011" a county of the first. Only a
code that stands alone at the top, such as "0" for the United States, need not begin the others. Where several do, a
region above them is added. A region that the spine bypasses has one region below it, with no answers of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import numpy as np

from coco_opt.errors import InputError, Place
from coco_opt.files.regions import PublicRegions
from coco_opt.histograms import Hierarchy
from coco_opt.histograms.texts import Texts

ROOT = "all"
"""The region above all others where the geocodes have none."""
_PLACE = Place("the files", None, "geocode")


def regions_of(codes: Mapping[str, str]) -> PublicRegions:
    """Return the regions of geocodes, given the name of each code's level.

    Raises InputError (bad-geocode) for a code that begins with no code of the level above, and for a code with which
    none of the level below begins.
    """
    by_length: dict[int, list[str]] = {}
    for code in sorted(codes):
        by_length.setdefault(len(code), []).append(code)
    levels = [by_length[length] for length in sorted(by_length)]
    stated = [codes[own[0]] for own in levels]
    titles = stated if len(set(stated)) == len(stated) else [f"length {len(own[0])}" for own in levels]
    if len(levels[0]) > 1:
        levels, titles = [[ROOT], *levels], ["root", *titles]
    parent, start = [-1], 0
    for number, (above, own) in enumerate(pairwise(levels)):
        parent += [start + place for place in (_parents(above, own) if number else [0] * len(own))]
        start += len(above)
    hierarchy = Hierarchy.from_parents(np.array(parent), [code for own in levels for code in own])
    leaves = Texts.of(hierarchy.names[region] for region in hierarchy.leaves)
    return PublicRegions(hierarchy, tuple(titles), leaves, np.arange(len(leaves)))


def _parents(above: list[str], own: list[str]) -> list[int]:
    """Return the places of the codes of the level above with which the codes of a level begin."""
    width, place = len(above[0]), {code: number for number, code in enumerate(above)}
    parents = [place.get(code[:width], -1) for code in own]
    if -1 in parents:
        code = own[parents.index(-1)]
        message = f"{code!r} begins with no code of {width} characters: read the files of that level too"
        raise InputError("bad-geocode", message, _PLACE)
    if len(set(parents)) < len(above):
        code = above[min(set(range(len(above))) - set(parents))]
        message = f"no code of {len(own[0])} characters begins with {code!r}: read those files too, or leave it out"
        raise InputError("bad-geocode", message, _PLACE)
    return parents
