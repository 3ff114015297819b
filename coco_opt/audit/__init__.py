"""Measuring the privacy that is really lost: Flaxman's estimates (2019) and sound lower bounds, for every release.

Covered: groups releases (``audit_groups``) and tables of persons (``audit_tables``), which ``coco-opt audit`` runs for
a configuration, universal and unattributed histograms (``audit_ranges``), and Flaxman's counting mechanisms
(``counting``).
An estimate from residuals is neither an upper nor a lower bound; ``lower_bound`` is sound at its confidence. Both are
for data that nobody needs to protect: made data, public data, or a look-alike. Names are imported when first used:
estimates need no compiled kernel.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coco_opt.audit.bounds import CONFIDENCE as CONFIDENCE
    from coco_opt.audit.bounds import Event as Event
    from coco_opt.audit.bounds import LowerBound as LowerBound
    from coco_opt.audit.bounds import expected_bound as expected_bound
    from coco_opt.audit.bounds import lower_bound as lower_bound
    from coco_opt.audit.bulk import bulk_scores as bulk_scores
    from coco_opt.audit.bulk_tables import bulk_table_scores as bulk_table_scores
    from coco_opt.audit.counting import MECHANISMS as MECHANISMS
    from coco_opt.audit.counting import UniformTree as UniformTree
    from coco_opt.audit.counting import children_of as children_of
    from coco_opt.audit.counting import mechanism as mechanism
    from coco_opt.audit.counting import population as population
    from coco_opt.audit.direct import DirectEstimate as DirectEstimate
    from coco_opt.audit.direct import direct_estimate as direct_estimate
    from coco_opt.audit.groups import Audit as Audit
    from coco_opt.audit.groups import AuditRow as AuditRow
    from coco_opt.audit.groups import audit_groups as audit_groups
    from coco_opt.audit.histograms import CellPair as CellPair
    from coco_opt.audit.histograms import UnattributedMechanism as UnattributedMechanism
    from coco_opt.audit.histograms import UniversalMechanism as UniversalMechanism
    from coco_opt.audit.histograms import cell_pair as cell_pair
    from coco_opt.audit.measured import Witness as Witness
    from coco_opt.audit.measured import measured_scores as measured_scores
    from coco_opt.audit.measured import witness as witness
    from coco_opt.audit.neighbours import ChangedCells as ChangedCells
    from coco_opt.audit.neighbours import NeighbourPair as NeighbourPair
    from coco_opt.audit.neighbours import changed_cells as changed_cells
    from coco_opt.audit.neighbours import neighbour_pair as neighbour_pair
    from coco_opt.audit.privacy_loss import CAVEAT as CAVEAT
    from coco_opt.audit.privacy_loss import PrivacyLoss as PrivacyLoss
    from coco_opt.audit.privacy_loss import empirical_privacy_loss as empirical_privacy_loss
    from coco_opt.audit.raking import rake as rake
    from coco_opt.audit.ranges import audit_ranges as audit_ranges
    from coco_opt.audit.ranges import bulk_range_scores as bulk_range_scores
    from coco_opt.audit.ranges import cells_witness as cells_witness
    from coco_opt.audit.released import GroupsMechanism as GroupsMechanism
    from coco_opt.audit.released import released_runs as released_runs
    from coco_opt.audit.residuals import ResidualCounts as ResidualCounts
    from coco_opt.audit.table_answers import TablesMechanism as TablesMechanism
    from coco_opt.audit.table_answers import answer_scores as answer_scores
    from coco_opt.audit.table_answers import tables_witness as tables_witness
    from coco_opt.audit.table_pairs import TablePair as TablePair
    from coco_opt.audit.table_pairs import table_pair as table_pair
    from coco_opt.audit.tables import audit_tables as audit_tables

_NAMES = {
    "bounds": ("CONFIDENCE", "Event", "LowerBound", "expected_bound", "lower_bound"),
    "bulk": ("bulk_scores",),
    "bulk_tables": ("bulk_table_scores",),
    "counting": ("MECHANISMS", "UniformTree", "children_of", "mechanism", "population"),
    "direct": ("DirectEstimate", "direct_estimate"),
    "groups": ("Audit", "AuditRow", "audit_groups"),
    "histograms": ("CellPair", "UnattributedMechanism", "UniversalMechanism", "cell_pair"),
    "measured": ("Witness", "measured_scores", "witness"),
    "neighbours": ("ChangedCells", "NeighbourPair", "changed_cells", "neighbour_pair"),
    "privacy_loss": ("CAVEAT", "PrivacyLoss", "empirical_privacy_loss"),
    "raking": ("rake",),
    "ranges": ("audit_ranges", "bulk_range_scores", "cells_witness"),
    "released": ("GroupsMechanism", "released_runs"),
    "residuals": ("ResidualCounts",),
    "table_answers": ("TablesMechanism", "answer_scores", "tables_witness"),
    "table_pairs": ("TablePair", "table_pair"),
    "tables": ("audit_tables",),
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Import a public name from its module when it is first used (PEP 562)."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'coco_opt.audit' has no attribute {name!r}")
    value = getattr(import_module(f"coco_opt.audit.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(_HOMES)
