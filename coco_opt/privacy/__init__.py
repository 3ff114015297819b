"""Noise sources, budgets and sealed noisy measurements: the only part that sees private counts and noise."""

from __future__ import annotations

from coco_opt.privacy.accounting import (
    ConcentratedBudget,
    ImpliedPrivacy,
    delta_of_rho,
    epsilon_of_rho,
    gaussian_variance,
    implied_by,
    renyi_of_epsilon,
    renyi_of_rho,
    replaced,
    rho_of_epsilon,
    rho_of_epsilon_delta,
    squared_sensitivity,
)
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
from coco_opt.privacy.ledger import Ledger
from coco_opt.privacy.ledger_chain import Account, Charge, Entry
from coco_opt.privacy.measurement import LOSSES, RAW_LIMIT, Loss, Measurement, measure
from coco_opt.privacy.measurements import Measurements, measure_hierarchy
from coco_opt.privacy.mechanism import MECHANISMS, Mechanism
from coco_opt.privacy.noise import (
    NOISE_NAMES,
    GaussianSource,
    NoiseName,
    NoiseSource,
    NoiseStream,
    OpenDPNoise,
    SeededNoise,
    resolve_noise,
)
from coco_opt.privacy.run_key import RunKey
from coco_opt.privacy.secure import SecureNoise

__all__ = [
    "LOSSES",
    "MECHANISMS",
    "NEIGHBOURS",
    "NOISE_NAMES",
    "QUERIES",
    "RAW_LIMIT",
    "Account",
    "Charge",
    "ConcentratedBudget",
    "Entry",
    "GaussianSource",
    "ImpliedPrivacy",
    "Ledger",
    "Loss",
    "Measurement",
    "Measurements",
    "Mechanism",
    "Neighbours",
    "NoiseName",
    "NoiseSource",
    "NoiseStream",
    "OpenDPNoise",
    "PureBudget",
    "Query",
    "RunKey",
    "SecureNoise",
    "SeededNoise",
    "delta_of_rho",
    "epsilon_of_rho",
    "gaussian_variance",
    "implied_by",
    "measure",
    "measure_hierarchy",
    "noise_scale",
    "parallel",
    "parse_epsilon",
    "parse_fraction",
    "renyi_of_epsilon",
    "renyi_of_rho",
    "replaced",
    "resolve_noise",
    "rho_of_epsilon",
    "rho_of_epsilon_delta",
    "sensitivity",
    "sequential",
    "split",
    "squared_sensitivity",
    "uniform_split",
]
