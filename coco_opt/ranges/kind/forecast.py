"""What a release of ranges will be worth, from public numbers alone: exact standard errors by fan-out and size."""

from __future__ import annotations

import numpy as np

from coco_opt.privacy import MeasurementPlan
from coco_opt.ranges.domain import DomainTree
from coco_opt.ranges.estimating.universal import Estimator
from coco_opt.ranges.fan_out import FAN_OUTS, evenly
from coco_opt.ranges.precision import Precision
from coco_opt.releases.clock import slowness
from coco_opt.releases.kind import Figures, Forecast, ResourceCost

_SIZES = 5
_FIRST, _SECONDS = 0.3, 2.5e-6  # what is loaded; a node: least squares with its certificate, standard errors
_BYTES = 250  # a node, in all arrays together
_ROW_SECONDS, _ROW_BYTES = 5e-7, 60
_ROWS = 10  # a cell, unless declared
_PAGE_SECONDS = 1.0


def forecast_of(
    measurement_plan: MeasurementPlan,
    domain: DomainTree,
    estimator: Estimator,
    values: int | None = None,
    how: str = "asked",
) -> Forecast:
    """Return the standard errors of cells and wider ranges for every fan-out; O(cells) a fan-out.

    ``values`` are the rows of the private table, where they are declared; else ten a cell. ``how`` says who decided the
    fan-out: "asked" or "chosen".
    """
    fan_outs = [None, *(k for k in FAN_OUTS if k < domain.cells)]
    if domain.fan_out not in fan_outs:
        fan_outs.append(domain.fan_out)
    sizes = sizes_of(domain.cells)
    rows, plain = [], []
    for fan_out in fan_outs:
        tree = DomainTree(domain.cells, fan_out)
        distribution = measurement_plan.cost.distribution(tree.sensitivity(measurement_plan.neighbours))
        precision = Precision(tree, distribution, fitted=estimator != "noisy")
        errors = [float(np.sqrt(precision.ranges(*evenly(domain.cells, size)).mean())) for size in sizes]
        name = fan_out_name(fan_out) + (f" ({how})" if fan_out == domain.fan_out else "")
        rows.append((name, f"{tree.height}", *(f"{error:,.2f}" for error in errors)))
        of_size = {str(size): error for size, error in zip(sizes, errors, strict=True)}
        plain.append({"fan_out": fan_out, "height": tree.height, "standard_errors": of_size})
    title = f"Standard error (entities) of a range by its number of cells, {words_of(estimator)}"
    header = ("fan-out", "levels", *(f"{size:,}" for size in sizes))
    nodes, slow = domain.tree.nodes, slowness()
    table_rows = _ROWS * domain.cells if values is None else values
    return Forecast(
        tables=(Figures(title, header, tuple(rows)),),
        plain={"fan_out": domain.fan_out, "cells": domain.cells, "predicted": plain},
        notes=(("fan-out", fan_out_name(domain.fan_out)), ("intervals", f"{nodes:,}")),
        reading=ResourceCost(slow * _ROW_SECONDS * table_rows, _ROW_BYTES * table_rows),
        querying=ResourceCost(0.0),
        estimating=ResourceCost(slow * (_FIRST + _SECONDS * nodes), _BYTES * nodes),
        writing=ResourceCost(slow * _PAGE_SECONDS),
    )


def sizes_of(cells: int) -> list[int]:
    """Return a few sizes of ranges from one cell to the whole domain."""
    return sorted({round(size) for size in np.geomspace(1, cells, min(cells, _SIZES)).tolist()})


def fan_out_name(fan_out: int | None) -> str:
    """Return a fan-out in a word."""
    return "cells" if fan_out is None else f"{fan_out:,}"


def words_of(estimator: Estimator) -> str:
    """Return whose standard errors are stated with an estimator's figures."""
    return "of sums of the fewest noisy counts" if estimator == "noisy" else "of the least squares estimate"
