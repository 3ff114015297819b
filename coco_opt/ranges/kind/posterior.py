"""What a release says of its posterior: the account of the chains in the manifest, and notes for the user."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from coco_opt.groups.estimating.posterior.convergence import Criterion
from coco_opt.ranges.estimating.universal import UniversalHistogram

WORDS = (
    "central intervals of each range alone under the posterior of all cells' counts, whose prior is learned from the "
    "same noisy counts; each holds its released count"
)


def posterior_account(histogram: UniversalHistogram, coverage: float, draws: int) -> dict[str, Any]:
    """Return the manifest's account of the chains and of the released counts, empty for other estimators."""
    posterior = histogram.posterior
    if posterior is None:
        return {}
    sampled, criterion = posterior.sampled, Criterion()
    account = {
        "converged": sampled.converged,
        "criterion": {"r_hat_at_most": criterion.r_hat, "effective_size_at_least": criterion.effective},
        "draws": int(sampled.cells.shape[0]),
        "draws_published": draws,
        "rounds": sampled.rounds,
        "worst_r_hat": sampled.r_hat if math.isfinite(sampled.r_hat) else None,
        "least_effective_size": sampled.effective,
        "mean_squared_distance_to_posterior_mean": posterior.excess,
    }
    intervals = {"intervals": {"coverage": coverage, "words": WORDS}} if coverage else {}
    return {"posterior": account, **intervals}


def posterior_notes(histogram: UniversalHistogram) -> Iterator[str]:
    """Yield a note where the chains have not converged."""
    if histogram.posterior is not None and not histogram.posterior.sampled.converged:
        sampled = histogram.posterior.sampled
        doubtful = "differ in the number of empty cells alone" if sampled.counts_agree else "differ in counts"
        yield (
            f"the chains of the posterior have not converged after {sampled.rounds:,} rounds (R-hat "
            f"{sampled.r_hat:.2f}, effective sample size {sampled.effective:.0f}): they {doubtful}, and intervals of "
            f"{'such cells' if sampled.counts_agree else 'all ranges'} are less certain. The standard errors of "
            'estimator = "consistent" need no chains'
        )
