"""The cost and the expected errors of a release, from public inputs alone: the table behind ``coco-opt plan``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import process_time
from typing import Any

from coco_opt.config.model import Config
from coco_opt.privacy.composition import Composition
from coco_opt.privacy.cost import Cost
from coco_opt.releases.kind import Forecast, ForecastOptions, Plan, ResourceCost, kind_of
from coco_opt.releases.planning import planned
from coco_opt.releases.reporter import Reporter, default_reporter
from coco_opt.releases.resource_cost import BYTES, stages_of
from coco_opt.releases.runs import PaymentStatus, payment_status_of


@dataclass(frozen=True, slots=True)
class QueryCost:
    """What one query measures and costs: ``answers`` in all its ``regions``, ``noise`` in words."""

    level: str
    regions: int
    query: str
    answers: int
    cost: Cost | None
    noise: str

    def as_dict(self) -> dict[str, Any]:
        """Return plain values; the cost of answers declared exact is None."""
        return {**asdict(self), "cost": None if self.cost is None else self.cost.as_dict()}


@dataclass(frozen=True, eq=False, slots=True)
class PlanForecast:
    """A plan, what each query costs, and what its kind predicts; ``sealed`` are bytes before compression.

    ``stages`` are the resources that a release takes, by stage, None where its kind does not predict them. Memory is
    that of the whole process during the stage. ``payment`` says whether the dataset's account allows the measurement.
    """

    plan: Plan
    queries: tuple[QueryCost, ...]
    predicted: Forecast
    sealed: int
    stages: Mapping[str, ResourceCost] | None
    payment: PaymentStatus

    @property
    def cost(self) -> Cost:
        """Return what measuring costs."""
        return self.plan.measurement_plan.cost

    @property
    def paid_by(self) -> str | None:
        """Return a run that was paid to measure the same, None without."""
        return self.payment.run

    @property
    def meaning(self) -> str:
        """Return in a few words what else the cost means."""
        return Composition.of(self.plan.measurement_plan.queries).meaning(self.plan.config.privacy.delta)

    @property
    def seconds(self) -> float | None:
        """Return the seconds of this machine's cores that a release takes, kernels compiled."""
        return None if self.stages is None else sum(stage.seconds for stage in self.stages.values())

    @property
    def memory(self) -> int | None:
        """Return the bytes of memory that a release takes at its peak."""
        return None if self.stages is None else max(stage.memory for stage in self.stages.values())

    def as_dict(self) -> dict[str, Any]:
        """Return plain values."""
        delta = self.plan.config.privacy.delta
        stages = None if self.stages is None else {name: asdict(stage) for name, stage in self.stages.items()}
        return {
            **self.cost.as_dict(),
            "implied": Composition.of(self.plan.measurement_plan.queries).implied(delta),
            "questions": [level_query.as_dict() for level_query in self.queries],
            **self.predicted.plain,
            "seconds": self.seconds,
            "memory_bytes": self.memory,
            "stages": stages,
            "sealed_bytes": self.sealed,
            "paid_by": self.paid_by,
            "budget": self.payment.as_dict(),
        }


def forecast(
    config: Config,
    public: Path | None = None,
    *,
    runs: int = 1,
    rows: int | None = None,
    reporter: Reporter | None = None,
) -> PlanForecast:
    """Predict a release: cost, errors, seconds and memory. Reads public tables only and spends nothing.

    Parameters
    ----------
    config : Config
        The planned release.
    public : Path, optional
        Public data in the form of the private table, in place of simulated data.
    runs : int, default 1
        How many simulated releases a predicted error is the mean of.
    rows : int, optional
        The rows of the private table, for the predicted time.
    reporter : Reporter, optional
        Receives the progress.

    Returns
    -------
    PlanForecast
        Cost, queries with their noise, predicted errors by level and method, seconds and memory.

    Raises
    ------
    ConfigError, InputError, ProblemError
        The config or a public table is wrong.
    BudgetError
        The ledger is damaged.
    """
    reporter = default_reporter(reporter)
    start = process_time()
    plan = planned(config, reporter, outline=True)
    reading = process_time() - start
    kind = kind_of(config)
    kind.method(config, plan.measurement_plan)
    predicted, ranking = kind.forecast(plan, ForecastOptions(public, runs, rows), reporter), plan.ranking()
    choices = [dict(zip(table.header, row, strict=True)) for table in ranking for row in table.rows]
    plain = {**predicted.plain, "choices": choices}
    tables, notes = (*ranking, *predicted.tables), (*predicted.notes, *plan.promised)
    predicted = replace(predicted, tables=tables, plain=plain, notes=notes)
    measurement_plan, queries = plan.measurement_plan, list[QueryCost]()
    for query in measurement_plan.queries:
        level, regions = measurement_plan.levels[query.level], len(measurement_plan.hierarchy.level_range(query.level))
        noise = "none: published as it is" if query.exact else str(query.distribution)
        answers = measurement_plan.answers_to(query)[0]
        queries.append(QueryCost(level, regions, query.name, answers, query.cost, noise))
    payment, stages = payment_status_of(plan.config, measurement_plan), stages_of(plan, predicted, reading)
    return PlanForecast(plan, tuple(queries), predicted, BYTES * measurement_plan.answers, stages, payment)
