"""Measure the privacy that is really lost: Flaxman's estimates (2019) and sound lower bounds, for every release.

``audit_release`` audits a ``Subject``, a release of any kind on two neighbouring tables; ``coco-opt audit`` makes one
from a configuration. ``counting`` has Flaxman's own counting mechanisms. ``lost`` is the exact privacy loss of a pair;
``lower_bound`` is sound at its confidence; an estimate from residuals is neither an upper nor a lower bound. All are
for data that need no protection: simulated or public data. Names are imported when first used: estimates need no
compiled kernel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coco_opt.lazy_names import lazy_names

if TYPE_CHECKING:
    from coco_opt.audit.bounds import CONFIDENCE as CONFIDENCE
    from coco_opt.audit.bounds import Event as Event
    from coco_opt.audit.bounds import LowerBound as LowerBound
    from coco_opt.audit.bounds import lower_bound as lower_bound
    from coco_opt.audit.bounds import measured_scores as measured_scores
    from coco_opt.audit.counting import MECHANISMS as MECHANISMS
    from coco_opt.audit.counting import DirectEstimate as DirectEstimate
    from coco_opt.audit.counting import UniformTree as UniformTree
    from coco_opt.audit.counting import children_of as children_of
    from coco_opt.audit.counting import direct_estimate as direct_estimate
    from coco_opt.audit.counting import mechanism as mechanism
    from coco_opt.audit.counting import population as population
    from coco_opt.audit.counting import rake as rake
    from coco_opt.audit.privacy_loss import CAVEAT as CAVEAT
    from coco_opt.audit.privacy_loss import PrivacyLoss as PrivacyLoss
    from coco_opt.audit.privacy_loss import ResidualCounts as ResidualCounts
    from coco_opt.audit.privacy_loss import empirical_privacy_loss as empirical_privacy_loss
    from coco_opt.audit.rows import Audit as Audit
    from coco_opt.audit.rows import AuditRow as AuditRow
    from coco_opt.audit.rows import audit_release as audit_release
    from coco_opt.audit.rows import bulk_scores as bulk_scores
    from coco_opt.audit.rows import released_runs as released_runs
    from coco_opt.audit.subject import Differing as Differing
    from coco_opt.audit.subject import Pair as Pair
    from coco_opt.audit.subject import Sources as Sources
    from coco_opt.audit.subject import Subject as Subject
    from coco_opt.audit.subject import lost as lost
    from coco_opt.audit.subject import witness as witness

_NAMES = {
    "bounds": ("CONFIDENCE", "Event", "LowerBound", "lower_bound", "measured_scores"),
    "counting": (
        "MECHANISMS",
        "DirectEstimate",
        "UniformTree",
        "children_of",
        "direct_estimate",
        "mechanism",
        "population",
        "rake",
    ),
    "privacy_loss": ("CAVEAT", "PrivacyLoss", "ResidualCounts", "empirical_privacy_loss"),
    "released": ("bulk_scores", "released_runs"),
    "rows": ("Audit", "AuditRow", "audit_release"),
    "subject": ("Differing", "Pair", "Sources", "Subject", "lost", "witness"),
}
__getattr__ = lazy_names("coco_opt.audit", _NAMES)


def __dir__() -> list[str]:
    return sorted(name for names in _NAMES.values() for name in names)
