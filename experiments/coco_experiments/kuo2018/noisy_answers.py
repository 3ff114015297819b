"""Noisy answers of single regions under a seed, for experiments: nothing is paid and nothing is released."""

from __future__ import annotations

from fractions import Fraction

from coco_opt.groups import Query, RegionMeasurement, exact_answers, sensitivity
from coco_opt.histograms import CountOfCounts
from coco_opt.privacy import Epsilon, NoiseSource


def answer_of(
    truth: CountOfCounts, query: Query, *, region: str, max_size: int, epsilon: Fraction, source: NoiseSource
) -> RegionMeasurement:
    """Return a region's noisy measurement as a release would measure it, for an entity added or removed."""
    distribution = Epsilon(epsilon).distribution(sensitivity(query, "add_remove"))
    stream = distribution.opened(source, measurement=query, region=region)
    values = stream.add_to(exact_answers(truth, query, max_size))
    return RegionMeasurement(query, region, truth.groups, max_size, distribution, values)


def split_evenly(epsilon: Fraction, levels: int) -> tuple[Fraction, ...]:
    """Return equal parts, one a level (Kuo et al. 2018, Algorithm 1: epsilon / (L + 1))."""
    return (epsilon / levels,) * levels
