"""Noise distributions, costs, samplers, the ledger and measurements: the privacy promise, and what keeps it."""

from __future__ import annotations

from coco_opt.privacy.budget import NEIGHBOURS, Neighbours, Pair, Unit, parse_epsilon, parse_fraction
from coco_opt.privacy.cost import Cost, Epsilon, Rho, Sensitivity
from coco_opt.privacy.ledger import Ledger
from coco_opt.privacy.ledger_chain import Account, Charge, Entry
from coco_opt.privacy.measurement import Drawing, Measurement, MeasurementPlan
from coco_opt.privacy.noise import NOISE_NAMES, NoiseName, NoiseSource, NoiseStream
from coco_opt.privacy.noise_distributions import DiscreteGaussian, Geometric, NoiseDistribution
from coco_opt.privacy.opendp import OpenDPNoise
from coco_opt.privacy.queries import Answers, Exact, LevelQuery
from coco_opt.privacy.run_key import RunKey
from coco_opt.privacy.secure import SecureNoise
from coco_opt.privacy.seeded import SeededNoise
from coco_opt.privacy.sources import resolve_noise

__all__ = [
    "NEIGHBOURS",
    "NOISE_NAMES",
    "Account",
    "Answers",
    "Charge",
    "Cost",
    "DiscreteGaussian",
    "Drawing",
    "Entry",
    "Epsilon",
    "Exact",
    "Geometric",
    "Ledger",
    "LevelQuery",
    "Measurement",
    "MeasurementPlan",
    "Neighbours",
    "NoiseDistribution",
    "NoiseName",
    "NoiseSource",
    "NoiseStream",
    "OpenDPNoise",
    "Pair",
    "Rho",
    "RunKey",
    "SecureNoise",
    "SeededNoise",
    "Sensitivity",
    "Unit",
    "parse_epsilon",
    "parse_fraction",
    "resolve_noise",
]
