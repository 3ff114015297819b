"""What a release will cost and how far off it will be, from public facts alone: the table behind ``coco-opt plan``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from time import process_time
from typing import Any

from coco_opt.config.model import Config
from coco_opt.privacy.answers import offsets_of
from coco_opt.privacy.composition import Composition
from coco_opt.privacy.cost import Cost
from coco_opt.releases.expense import BYTES, stages_of
from coco_opt.releases.kind import Expense, Forecast, Plan, Wanted
from coco_opt.releases.measure import kind_of, planned
from coco_opt.releases.reporter import Reporter, Silent


@dataclass(frozen=True, slots=True)
class QuestionCost:
    """What one question asks and costs: ``answers`` in all its ``regions``, ``noise`` in words."""

    level: str
    regions: int
    query: str
    answers: int
    cost: Cost | None
    noise: str

    def as_dict(self) -> dict[str, Any]:
        """Return plain values; None for the cost of answers declared exact."""
        cost = None if self.cost is None else self.cost.as_dict()
        return {
            "level": self.level,
            "regions": self.regions,
            "query": self.query,
            "answers": self.answers,
            "cost": cost,
            "noise": self.noise,
        }


@dataclass(frozen=True, eq=False, slots=True)
class PlanForecast:
    """A plan, what each question costs, and what its kind predicts; ``sealed`` are bytes before compression.

    ``stages`` are what a release takes, by stage, None where its kind does not predict that: memory is then that of the
    whole process during the stage.
    """

    plan: Plan
    questions: tuple[QuestionCost, ...]
    predicted: Forecast
    sealed: int
    stages: Mapping[str, Expense] | None

    @property
    def cost(self) -> Cost:
        """Return what measuring costs."""
        return self.plan.asked.cost

    @property
    def meaning(self) -> str:
        """Return in a few words what else the cost means."""
        return Composition.of(self.plan.asked.questions).meaning(self.plan.config.privacy.delta)

    @property
    def seconds(self) -> float | None:
        """Return the seconds of this machine's cores that a release takes, kernels compiled."""
        return None if self.stages is None else sum(stage.seconds for stage in self.stages.values())

    @property
    def memory(self) -> int | None:
        """Return the bytes that a release takes, at most at once."""
        return None if self.stages is None else max(stage.memory for stage in self.stages.values())

    def as_dict(self) -> dict[str, Any]:
        """Return plain values."""
        delta = self.plan.config.privacy.delta
        stages = None if self.stages is None else {name: asdict(stage) for name, stage in self.stages.items()}
        return {
            **self.cost.as_dict(),
            "implied": Composition.of(self.plan.asked.questions).implied(delta),
            "questions": [question.as_dict() for question in self.questions],
            **self.predicted.plain,
            **({"lines": list(self.predicted.lines)} if self.predicted.lines else {}),
            "seconds": self.seconds,
            "memory_bytes": self.memory,
            "stages": stages,
            "sealed_bytes": self.sealed,
        }


def forecast(
    config: Config,
    public: Path | None = None,
    *,
    runs: int = 1,
    rows: int | None = None,
    optimise: bool = False,
    reporter: Reporter | None = None,
) -> PlanForecast:
    """Predict a release: cost, errors, seconds and memory; ``Wanted`` says what else may be asked for.

    ``public`` are data like the private, made public by their owner. Reads public tables only and spends nothing.
    Raises ConfigError, InputError, ProblemError.
    """
    told = Silent() if reporter is None else reporter
    start = process_time()
    plan = planned(config, told, outline=True)
    reading = process_time() - start
    kind = kind_of(config)
    kind.method(config, plan.asked)
    predicted = kind.forecast(plan, Wanted(public, runs, rows, optimise), told)
    questions = tuple(_costs(plan))
    sealed = BYTES * sum(question.answers for question in questions)
    return PlanForecast(plan, questions, predicted, sealed, stages_of(plan, predicted, reading))


def _costs(plan: Plan) -> list[QuestionCost]:
    asked = plan.asked
    rows = []
    for question in asked.questions:
        regions = len(asked.hierarchy.level_range(question.level))
        answers = int(offsets_of(question, asked.hierarchy, asked.per_region)[-1])
        noise = "none: declared public" if question.exact else str(question.law)
        level = asked.levels[question.level]
        rows.append(QuestionCost(level, regions, question.query, answers, question.cost, noise))
    return rows
