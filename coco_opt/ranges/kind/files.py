"""The files of a release of ranges: ``ranges.parquet``, one row an interval of the tree, and the way back.

Columns: ``tree_level`` (0 is the whole domain, the last level are the cells), ``start`` and ``stop`` (the interval's
values are start to stop - 1), ``estimate`` (entities; a fraction unless the estimator rounds) and
``standard_error`` of the unbiased estimate. An only child counts the same values as its parent.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from coco_opt.errors import InputError, Place
from coco_opt.files.folder import MANIFEST, FileTable, read_columns
from coco_opt.files.unchanged import unchanged_manifest
from coco_opt.privacy.noise_distributions import distribution_of
from coco_opt.ranges.domain import DomainTree
from coco_opt.ranges.estimating.universal import Estimator, UniversalHistogram
from coco_opt.ranges.interval_counts import RANGES, domain_of
from coco_opt.ranges.kind.intervals import read_spans
from coco_opt.ranges.kind.section import MAX_CELLS
from coco_opt.ranges.precision import Noise

RANGES_FILE = "ranges.parquet"
TYPES = {
    "tree_level": "int32",
    "start": "int64",
    "stop": "int64",
    "estimate": "double",
    "standard_error": "double",
}


def range_table(histogram: UniversalHistogram) -> FileTable:
    """Return ranges.parquet."""
    columns = interval_columns(histogram.domain)
    errors = np.sqrt(histogram.precision.intervals())
    return FileTable.of({**columns, "estimate": histogram.nodes, "standard_error": errors}, TYPES)


def interval_columns(domain: DomainTree) -> dict[str, Any]:
    """Return what is public of every row: its level in the tree and its values."""
    begin, end = domain.spans()
    level = np.repeat(np.arange(domain.height, dtype=np.int32), np.diff(domain.level_start))
    return {"tree_level": level, "start": domain.edges[begin], "stop": domain.edges[end]}


def read_ranges_release(folder: str | Path) -> UniversalHistogram:
    """Read a release folder of an ordered histogram.

    Parameters
    ----------
    folder : str or Path
        The release folder.

    Returns
    -------
    UniversalHistogram
        It answers any range with its standard error; of a posterior, with intervals.

    Raises
    ------
    InputError
        file-not-found, unreadable-file, bad-manifest, missing-column, bad-release (the intervals are not those of the
        manifest; ``coco-opt verify`` says more).
    VerificationError
        The manifest or a table is not what was written.
    """
    folder = Path(folder)
    manifest = unchanged_manifest(folder)
    domain, distribution, estimator = stated(manifest)
    table = read_columns(folder / RANGES_FILE, tuple(TYPES))
    nodes = np.array(table.column("estimate").to_numpy(), dtype=np.float64)
    if nodes.size != domain.tree.nodes:
        raise InputError("bad-release", "has not one row an interval of the manifest's tree", Place(RANGES_FILE))
    spans = None
    if estimator == "posterior" and np.isfinite(nodes).all():
        spans = read_spans(folder, domain, np.rint(nodes[domain.first_leaf :]).astype(np.int64), manifest)
    return UniversalHistogram(domain, distribution, estimator, nodes, spans=spans)


def stated(manifest: Mapping[str, Any]) -> tuple[DomainTree, Noise, Estimator]:
    """Return the domain, the distribution of the noise and the estimator of a manifest; InputError (bad-manifest)."""
    try:
        parameters = manifest[RANGES]
        queries = manifest["budget"]["questions"]
        if parameters["cells"] > MAX_CELLS:
            raise ValueError("more cells than any release has")
        domain, noise = domain_of(parameters), tuple(distribution_of(query) for query in queries)
        if len(noise) != len(domain.measured_parts):
            raise ValueError("not one query for each measured part of the tree")
        return domain, noise[0] if domain.shares is None else noise, parameters["estimator"]
    except (LookupError, TypeError, ValueError):
        pass
    raise InputError("bad-manifest", "does not state the domain and the noise of a release of ranges", Place(MANIFEST))
