"""What a release will cost and how far off it will be, from public facts alone: the table behind ``coco-opt plan``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coco_opt.config.model import Config
from coco_opt.privacy.answers import offsets_of
from coco_opt.privacy.cost import Cost
from coco_opt.releases.kind import Forecast, Plan
from coco_opt.releases.measure import kind_of, planned
from coco_opt.releases.reporter import Reporter, Silent

_BYTES = 8
_COPIES = 4  # of the largest level's answers in memory at once: exact, noise, noisy, fit


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
    """A plan, what each question costs, and what its kind predicts; ``sealed`` and ``memory`` are bytes."""

    plan: Plan
    questions: tuple[QuestionCost, ...]
    predicted: Forecast
    sealed: int
    memory: int

    @property
    def cost(self) -> Cost:
        """Return what measuring costs."""
        return self.plan.asked.cost

    def as_dict(self) -> dict[str, Any]:
        """Return plain values."""
        delta = self.plan.config.privacy.delta
        return {
            **self.cost.as_dict(),
            "implied": self.cost.implied(delta),
            "questions": [question.as_dict() for question in self.questions],
            **self.predicted.plain,
            "seconds": self.predicted.seconds,
            "memory_bytes": self.memory,
            "sealed_bytes": self.sealed,
        }


def forecast(
    config: Config, public: Path | None = None, *, runs: int = 3, reporter: Reporter | None = None
) -> PlanForecast:
    """Predict a release; ``public`` are data like the private, made public by their owner.

    Reads public tables only and spends nothing. Raises ConfigError, InputError, ProblemError.
    """
    told = Silent() if reporter is None else reporter
    plan = planned(config, told)
    kind = kind_of(config)
    kind.method(config, plan.asked)
    predicted = kind.forecast(plan, public, runs, told)
    questions = tuple(_costs(plan))
    answers = [question.answers for question in questions]
    memory = _BYTES * (sum(answers) + _COPIES * max(answers))
    return PlanForecast(plan, questions, predicted, _BYTES * sum(answers), predicted.memory or memory)


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
