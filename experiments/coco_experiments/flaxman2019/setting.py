"""What the experiments share: the paper's databases, its three mechanisms with their budgets, and their residuals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from coco_experiments.flaxman2019.counting import (
    MECHANISMS,
    MechanismName,
    SamplerName,
    UniformTree,
    children_of,
    mechanism,
    population,
)
from coco_experiments.outcome import Statement

NOT_PRIVATE = "Noise is numpy's, from a seed: NOT PRIVATE."
MOVED = (
    "He moves a person, which changes two cells, while the noise is calibrated to one: GDPC, RDPC and ADPC at epsilon "
    "are epsilon-DP when neighbours add or remove a person, 2 epsilon when they move one."
)
TAILS = "ADPC's true tail slope tends to epsilon: half the budget holds only mid-range."

# Each budget is the one that makes the loss of a count about 0.025.
EPSILONS: dict[MechanismName, float] = {"GDPC": 0.025, "RDPC": 0.1, "ADPC": 0.05}
HIS_NAMES: dict[MechanismName, str] = {
    "GDPC": "geometric eps=0.025",
    "RDPC": "raked eps=0.1",
    "ADPC": "averaged eps=0.05",
}


# What the empirical loss is, of the budget; another seed and another database give it within the band.
SHARES: dict[MechanismName, tuple[float, str]] = {
    "GDPC": (1.0, "matches its budget"),
    "ADPC": (0.5, "is roughly half of its budget"),
    "RDPC": (0.25, "is roughly a quarter of its budget"),
}
SHARE_BAND = 0.2  # relative


def share_claims(shares: Mapping[MechanismName, float]) -> list[Statement]:
    """Return what section 3 says of the mean loss of the plateau over the budget."""
    return [
        Statement(
            "section 3, Figure 1",
            f"the empirical privacy loss of {name} {words}",
            f"{shares[name]:.3f} of it",
            abs(shares[name] / published - 1.0) <= SHARE_BAND,
            "" if abs(shares[name] / published - 1.0) <= SHARE_BAND else TAILS,
        )
        for name, (published, words) in SHARES.items()
    ]


@dataclass(frozen=True, slots=True)
class Database:
    """N people, on average mu a cell, in J nested levels."""

    people: int = 1_000_000
    per_cell: Fraction = Fraction(100)
    levels: int = 3

    @property
    def tree(self) -> UniformTree:
        """Return the regions."""
        return UniformTree.of(children_of(self.people, self.per_cell, self.levels), self.levels)


PAPERS = Database()
SMALL = Database(people=125_000)


def residuals(
    database: Database,
    seed: int,
    sampler: SamplerName,
    epsilons: dict[MechanismName, float] = EPSILONS,
) -> dict[MechanismName, NDArray[np.float64]]:
    """Return one run's residuals (exact minus noisy, people) of every cell and mechanism, on one made database.

    Two databases of unlike sizes or seeds share no noise, and neither do two mechanisms of one database.
    """
    tree = database.tree
    rng = np.random.default_rng([2019, database.people, database.levels, seed])
    leaves = population(database.people, tree, rng)
    return {
        name: leaves - mechanism(name, tree, leaves, epsilons[name], sampler=sampler)(rng)
        for name in MECHANISMS
        if name in epsilons
    }
