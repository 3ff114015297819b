"""A measurement as it is drawn from a plan and private data, and as it is stored; paying for it is done elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from coco_opt.config.model import Config
from coco_opt.privacy.measurement import Drawing, Measurement
from coco_opt.privacy.noise import NoiseSource
from coco_opt.privacy.queries import NoisyPart, noisy_parts
from coco_opt.releases.kind import Plan
from coco_opt.releases.planning import kind_of
from coco_opt.releases.reporter import Reporter, default_reporter


@dataclass(frozen=True, eq=False, slots=True)
class Measured:
    """A measurement and where it is stored; ``paid`` says that this call paid for it.

    ``run`` is its id, ``folder`` where it is sealed (None where it is in memory only), ``identity`` the counts of the
    rows that were measured, for the private record. ``config`` is its configuration, which says how to estimate it.
    """

    config: Config = field(repr=False)
    measurement: Measurement
    run: str
    folder: Path | None
    paid: bool
    identity: Mapping[str, int] = field(repr=False)


def noisy(plan: Plan, private: object, source: NoiseSource, reporter: Reporter | None = None) -> Measurement:
    """Return the noisy measurement of a plan, in memory; paying for it is the caller's responsibility."""
    return drawing(plan, private, source, reporter).measurement()


def drawing(plan: Plan, private: object, source: NoiseSource, reporter: Reporter | None = None) -> Drawing:
    """Return the answers to a plan's queries, whose noise is drawn as they are consumed, region after region."""
    reporter, measurement_plan = default_reporter(reporter), plan.measurement_plan

    def parts() -> Iterator[NoisyPart]:
        with reporter.stage("Measuring") as progress:
            exact = kind_of(plan.config).exact_answers(plan, private)
            yield from noisy_parts(
                measurement_plan.queries,
                exact,
                measurement_plan.hierarchy,
                measurement_plan.per_region,
                source,
                progress,
            )

    return Drawing(measurement_plan, parts(), source.name, source.private)
