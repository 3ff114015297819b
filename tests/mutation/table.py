"""All mutants, by what they are about."""

from __future__ import annotations

from tests.mutation import accounting, estimation, glue, noise, payment, state
from tests.mutation.mutant import Mutant

MUTANTS: tuple[Mutant, ...] = tuple(
    mutant for part in (noise, accounting, payment, state, glue, estimation) for mutant in part.MUTANTS
)
