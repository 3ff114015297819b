"""Noise sources, budgets and sealed noisy measurements: the only part that sees private counts and noise."""

from __future__ import annotations

from coco_opt.privacy.budget import (
    NEIGHBOURS,
    QUERIES,
    Neighbours,
    PureBudget,
    Query,
    noise_scale,
    parallel,
    parse_epsilon,
    parse_fraction,
    sensitivity,
    sequential,
    split,
    uniform_split,
)
from coco_opt.privacy.measurement import LOSSES, RAW_LIMIT, Loss, Measurement, measure
from coco_opt.privacy.measurements import Measurements, measure_hierarchy
from coco_opt.privacy.noise import (
    NOISE_NAMES,
    NoiseName,
    NoiseSource,
    NoiseStream,
    OpenDPNoise,
    SeededNoise,
    resolve_noise,
)

__all__ = [
    "LOSSES",
    "NEIGHBOURS",
    "NOISE_NAMES",
    "QUERIES",
    "RAW_LIMIT",
    "Loss",
    "Measurement",
    "Measurements",
    "Neighbours",
    "NoiseName",
    "NoiseSource",
    "NoiseStream",
    "OpenDPNoise",
    "PureBudget",
    "Query",
    "SeededNoise",
    "measure",
    "measure_hierarchy",
    "noise_scale",
    "parallel",
    "parse_epsilon",
    "parse_fraction",
    "resolve_noise",
    "sensitivity",
    "sequential",
    "split",
    "uniform_split",
]
