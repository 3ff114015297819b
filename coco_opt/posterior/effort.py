"""How long the chains of any kind may run: seconds are counted in moves, so that answers always give the same bits."""

from __future__ import annotations

MOVES_A_SECOND = 5e6  # of a table's chains on two cores, as measured; other work is stated in such moves


def sweeps_within(seconds: float, moves: float) -> float:
    """Return how many sweeps, each of so many moves of all chains together, take so many seconds on two cores."""
    return MOVES_A_SECOND * seconds / max(moves, 1.0)
