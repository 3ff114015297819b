"""The files of a release of ranges: ``ranges.parquet``, one row an interval of the tree, and the way back.

Columns: ``tree_level`` (0 is the whole domain, the last level are the cells), ``start`` and ``stop`` (the interval's
values are start to stop - 1), ``estimate`` (entities; an integer unless `fractions` are wanted) and
``standard_error`` of the unbiased estimate. An only child counts the same values as its parent.

Check the intervals of a release folder from its raw columns: the tree, the promises, and every standard error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from coco_opt.array_types import Floats
from coco_opt.errors import CocoOptError, InputError, Place
from coco_opt.estimators import estimator_row, estimator_rows
from coco_opt.files.folder import MANIFEST, FileTable, read_columns
from coco_opt.files.release_checks import BrokenError, Check, checked, int64_column, refuse, refuse_types
from coco_opt.files.unchanged import unchanged_manifest
from coco_opt.privacy.cost import cost_of
from coco_opt.privacy.noise_distributions import distribution_of
from coco_opt.ranges.domain import DomainTree
from coco_opt.ranges.estimating.universal import Estimator, UniversalHistogram
from coco_opt.ranges.interval_counts import RANGES, Noise, Precision, domain_of
from coco_opt.ranges.kind.intervals import PROMISE_OF, interval_checks, read_spans
from coco_opt.ranges.kind.section import MAX_CELLS
from coco_opt.ranges.measuring.measure import plan_ranges
from coco_opt.releases.kind import Folder

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
    manifest = unchanged_manifest(folder, kind=RANGES)
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


_OF_ESTIMATES = ("finite", "nonnegative", "whole_numbers", "children_sum_to_parents", "standard_errors")
_OF_OTHERS = ("finite", "standard_errors")  # that are not installed here
PROMISES = (*_OF_ESTIMATES, *PROMISE_OF.values())

_TOLERANCE = 1e-9


@dataclass(frozen=True, eq=False, slots=True)
class _Content:
    """What the manifest states and the columns of figures, float64[nodes] each."""

    domain: DomainTree
    distribution: Noise
    estimator: Estimator
    estimate: Floats
    errors: Floats


def promises_of(estimator: Estimator, fan_out: int | Sequence[int] | None, *, fractions: bool) -> tuple[str, ...]:
    """Return what a release by an estimator promises; ``fractions`` were not rounded."""
    keeps = estimator_row(RANGES, estimator).keeps
    promised = {
        "finite": True,
        "nonnegative": "nonnegative" in keeps,
        "whole_numbers": "integers" in keeps or not fractions,
        "children_sum_to_parents": "sums" in keeps or fan_out is None,
        "standard_errors": True,
    }
    return tuple(name for name in _OF_ESTIMATES if promised[name])


def verify_ranges(folder: Folder) -> Iterator[Check]:
    """Yield the checks of ranges.parquet against its manifest; O(intervals)."""
    domain, distribution, estimator = stated(folder.manifest)
    yield _measurement(folder.manifest, domain, folder.regions.paths[0])
    table = read_columns(folder.path / RANGES_FILE, tuple(TYPES))
    yield (typed := checked("integers", partial(_integers, table)))
    not_checked = Check("rows", passed=False, detail="not checked")
    yield (rows := checked("rows", partial(_rows, table, domain)) if typed.passed else not_checked)
    known = any(row.name == estimator for row in estimator_rows(RANGES))
    fractions = folder.manifest[RANGES].get("fractions", True)  # which releases of before may hold
    due = promises_of(estimator, domain.fan_out, fractions=fractions) if known else _OF_OTHERS
    missing = [name for name in due if name not in folder.manifest["promises"]]
    detail = f"does not promise {', '.join(missing)}" if missing else f"what {estimator!r} estimates keep is promised"
    yield Check("promises", not missing, detail)
    if not rows.passed:
        return
    columns = (np.asarray(table.column(name).to_numpy(), np.float64) for name in ("estimate", "standard_error"))
    content = _Content(domain, distribution, estimator, *columns)
    kept = (name for name in _OF_ESTIMATES if name in folder.manifest["promises"])
    yield from (checked(name, partial(_CHECKS[name], content)) for name in kept)
    yield from interval_checks(folder, domain, content.estimate)


def _measurement(manifest: Mapping[str, Any], domain: DomainTree, region: str) -> Check:
    """Check that the domain and the noise match the measurement that the manifest names."""
    digest = ""
    try:
        budget = manifest["budget"]
        cost, outside = cost_of(budget), manifest[RANGES]["outside"]
        measurement_plan = plan_ranges(domain, cost, neighbours=budget["neighbours"], outside=outside, label=region)
        matches = all(
            query.cost == cost_of(written["cost"]) and query.distribution.as_dict().items() <= written.items()
            for query, written in zip(measurement_plan.queries, budget["questions"], strict=True)
        )
        digest = measurement_plan.digest if matches else ""
    except (LookupError, TypeError, ValueError, CocoOptError):
        pass
    passed = digest != "" and digest == manifest.get("measurement")
    words = "are those" if passed else "are not those"
    return Check("measurement", passed, f"domain, tree, cost and noise {words} of the measurement")


def _integers(table: Any) -> str:
    refuse_types(table, TYPES, RANGES_FILE)
    return "levels, starts and stops are integers"


def _rows(table: Any, domain: DomainTree) -> str:
    if table.num_rows != domain.tree.nodes:
        raise BrokenError(f"{table.num_rows:,} rows, but the tree has {domain.tree.nodes:,} intervals")
    for name, values in interval_columns(domain).items():
        refuse(int64_column(table, name) != values, f"not the tree's {name}", RANGES_FILE)
    return f"one row for each of the tree's {domain.tree.nodes:,} intervals"


def _finite(content: _Content) -> str:
    refuse(~(np.isfinite(content.estimate) & np.isfinite(content.errors)), "is no finite number", RANGES_FILE)
    return "every figure is a finite number"


def _nonnegative(content: _Content) -> str:
    refuse(~(content.estimate >= 0), "is negative", RANGES_FILE)
    return "no estimate is negative"


def _integral(content: _Content) -> str:
    refuse(content.estimate != np.rint(content.estimate), "is no integer", RANGES_FILE)
    return "every estimate is an integer"


def _sums(content: _Content) -> str:
    tree = content.domain.tree
    total, size = np.zeros((2, tree.nodes))
    np.add.at(total, tree.parent[1:], content.estimate[1:])
    np.add.at(size, tree.parent[1:], np.abs(content.estimate[1:]))
    near = np.abs(content.estimate - total) <= _TOLERANCE * np.maximum(1.0, size)
    refuse(~(near | tree.is_leaf), "is not the sum of its parts", RANGES_FILE)
    return "every interval is the sum of its parts"


def _standard_errors(content: _Content) -> str:
    fitted = content.estimator != "noisy"
    expected = np.sqrt(Precision(content.domain, content.distribution, fitted=fitted).intervals())
    near = np.abs(content.errors - expected) <= _TOLERANCE * expected
    refuse(~near, "has another standard error than its noise gives", RANGES_FILE)
    return "all are those of the stated noise and tree"


_CHECKS: dict[str, Callable[[_Content], str]] = {
    "finite": _finite,
    "nonnegative": _nonnegative,
    "whole_numbers": _integral,
    "children_sum_to_parents": _sums,
    "standard_errors": _standard_errors,
}
