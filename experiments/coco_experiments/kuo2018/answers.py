"""Noisy answers of single regions under a seed, for experiments: nothing is paid and nothing is released."""

from __future__ import annotations

from fractions import Fraction

from coco_opt.groups import Query, RegionAnswer, exact_answers, sensitivity
from coco_opt.histograms import CountOfCounts
from coco_opt.privacy import Epsilon, NoiseSource


def answer_of(
    truth: CountOfCounts, query: Query, *, region: str, max_size: int, epsilon: Fraction, source: NoiseSource
) -> RegionAnswer:
    """Return a region's noisy answer as a release would measure it, for an entity added or removed."""
    law = Epsilon(epsilon).law(sensitivity(query, "add_remove"))
    stream = law.opened(source, measurement=query, region=region)
    values = stream.add_to(exact_answers(truth, query, max_size))
    return RegionAnswer(query, region, truth.groups, max_size, law, values)


def split_evenly(epsilon: Fraction, levels: int) -> tuple[Fraction, ...]:
    """Return equal parts, one a level (Kuo et al. 2018, Algorithm 1: epsilon / (L + 1))."""
    return (epsilon / levels,) * levels
