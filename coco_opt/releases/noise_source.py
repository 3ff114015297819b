"""The source that draws the noise of a configuration, and whether it can."""

from __future__ import annotations

from coco_opt.config.model import Config
from coco_opt.errors import ProblemError
from coco_opt.privacy.measurement import MeasurementPlan
from coco_opt.privacy.noise import NoiseSource
from coco_opt.privacy.seeded import SeededNoise
from coco_opt.privacy.sources import resolve_noise

_WARMING = 4  # draws that load the samplers' tables and packages


def source_of(config: Config) -> NoiseSource:
    """Return a fresh noise source of the configured kind; MissingPackageError where its package is absent."""
    return resolve_noise(config.privacy.noise, config.privacy.seed)


def check_noise(measurement_plan: MeasurementPlan, source: NoiseSource) -> None:
    """Raise ProblemError where a source cannot draw the noise distribution of some query."""
    for distribution in {query.distribution for query in measurement_plan.queries if not query.exact}:
        if not distribution.available_from(source):
            raise ProblemError(
                f"noise {source.name!r} draws no {distribution.name.replace('_', ' ')}: use another source"
            )


def warm(measurement_plan: MeasurementPlan, source: NoiseSource) -> None:
    """Draw a little noise under a separate key, so that a missing or broken package fails before anything is paid."""
    probe: NoiseSource = SeededNoise(0) if isinstance(source, SeededNoise) else type(source)()
    for number, distribution in enumerate(
        {query.distribution for query in measurement_plan.queries if not query.exact}
    ):
        distribution.opened(probe, measurement="warming up", region=str(number)).draw(_WARMING)
