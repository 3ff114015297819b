"""Measure the privacy that is really lost: Flaxman's estimates (2019) and sound lower bounds, for every release.

``audit_release`` audits a ``Subject``, a release of any kind on two neighbouring tables; ``coco-opt audit`` makes one
from a configuration. ``lost`` is the exact privacy loss of a pair;
``lower_bound`` is sound at its confidence; an estimate from residuals is neither an upper nor a lower bound. All are
for data that need no protection: simulated or public data.
"""

from __future__ import annotations

from coco_opt.audit.bounds import CONFIDENCE, Event, LowerBound, lower_bound, measured_scores
from coco_opt.audit.privacy_loss import CAVEAT, PrivacyLoss, ResidualCounts, empirical_privacy_loss
from coco_opt.audit.rows import Audit, AuditRow, audit_release, released_runs
from coco_opt.audit.subject import Differing, Sources, Subject, lost, witness
from coco_opt.privacy import Pair

__all__ = [
    "CAVEAT",
    "CONFIDENCE",
    "Audit",
    "AuditRow",
    "Differing",
    "Event",
    "LowerBound",
    "Pair",
    "PrivacyLoss",
    "ResidualCounts",
    "Sources",
    "Subject",
    "audit_release",
    "empirical_privacy_loss",
    "lost",
    "lower_bound",
    "measured_scores",
    "released_runs",
    "witness",
]
