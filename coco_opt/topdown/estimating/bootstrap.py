"""The parametric bootstrap: how much error nonnegativity, sums and rounding leave, which no formula says.

The released tables stand for the truth: noise from the same known distributions is drawn around them by a seeded
generator, the whole method runs again, and its answers are compared with the released ones. It reads public results
only and costs no privacy. Its figures are those of the released tables, which are smoother than the truth where the
noise was large: an estimate, not a bound.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from coco_opt.choices import SolverChoices
from coco_opt.errors import ProblemError
from coco_opt.privacy.measurement import Measurement
from coco_opt.privacy.queries import Exact, add_noise
from coco_opt.privacy.seeded import SeededNoise, derived_seed
from coco_opt.topdown.estimating.estimate import TablesResult, estimate_tables
from coco_opt.topdown.estimating.method import TopdownMethod
from coco_opt.topdown.noisy_measurements import TableMeasurements
from coco_opt.topdown.queries import Query
from coco_opt.topdown.table_queries import TableQueries, noise_label

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False, slots=True)
class BootstrapErrors:
    """Errors in people, float64[levels, queries]: over all regions and answers of a query and all replicates.

    ``root_mean_square`` and ``bias`` (mean of estimate minus truth); ``bias_of_zeros`` is the bias of the answers that
    were released as 0, the positive bias of nonnegative tables (NaN where there are none).
    """

    queries: tuple[str, ...]
    replicates: int
    root_mean_square: Floats
    bias: Floats
    bias_of_zeros: Floats


def bootstrap(
    measurement: Measurement,
    result: TablesResult,
    method: TopdownMethod,
    *,
    queries: Sequence[Query] = (),
    solvers: SolverChoices | None = None,
    replicates: int = 20,
    seed: int = 0,
    threads: int = 1,
) -> BootstrapErrors:
    """Return the errors of ``replicates`` new runs of a method around the tables it released.

    ``queries`` are those measured unless others are given. The same seed gives the same figures. Raises ProblemError
    for fewer than one replicate, and what ``estimate_tables`` raises.
    """
    if replicates < 1:
        raise ProblemError("a bootstrap needs at least one replicate")
    compared = tuple(queries) or TableMeasurements.of(measurement).queries
    truth = [[result.answers(query.operator, level) for query in compared] for level in range(len(result.tables))]
    sums = np.zeros((4, len(truth), len(compared)))
    for replicate in range(replicates):
        drawn = redrawn(measurement, result, derived_seed(seed, replicate))
        # Roundings drawn alike in every replicate would not average out.
        own = method if method.seed is None else replace(method, seed=derived_seed(method.seed, replicate))
        estimated = estimate_tables(drawn, own, solvers, threads=threads)
        for level, exact in enumerate(truth):
            for at, query in enumerate(compared):
                error = (estimated.answers(query.operator, level) - exact[at]).astype(np.float64)
                empty = error[exact[at] == 0]
                sums[:, level, at] += (error**2).mean(), error.mean(), empty.sum(), empty.size
    zeros = np.divide(sums[2], sums[3], out=np.full(sums[3].shape, np.nan), where=sums[3] > 0)
    names = tuple(query.name for query in compared)
    return BootstrapErrors(names, replicates, np.sqrt(sums[0] / replicates), sums[1] / replicates, zeros)


def redrawn(measurement: Measurement, result: TablesResult, seed: int) -> Measurement:
    """Return the same measurements taken of the released tables, with seeded noise."""
    measurements = []
    for number, single in enumerate(measurement.every):
        # Each measurement has noise of its own: streams are named by the query, which may be the same.
        source = SeededNoise(seed if not number else derived_seed(seed, number))
        exact = _exact_answers(TableQueries.of(single.measurement_plan), result)
        answers = add_noise(
            single.measurement_plan.queries, exact, single.hierarchy, single.measurement_plan.per_region, source
        )
        measurements.append(Measurement(single.measurement_plan, answers, source.name, source.private))
    return replace(measurements[0], also=tuple(measurements[1:]))


def _exact_answers(table_queries: TableQueries, result: TablesResult) -> Iterator[Exact]:
    plan = table_queries.plan
    noisy = [(level, plan.queries[query]) for level, query in plan.measured_queries]
    exact = [(invariant.level, invariant.query) for invariant in table_queries.invariants]
    for level_query, (level, query) in zip((*table_queries.noisy, *table_queries.exact), (*noisy, *exact), strict=True):
        values = result.answers(query.operator, level)
        yield Exact(level_query, noise_label(table_queries.hierarchy, level), values.reshape(-1))
