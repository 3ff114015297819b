"""A release whose manifest is made to fit what was changed, as whoever wants to deceive would."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from coco_opt.files.folder import MANIFEST, as_json, file_digest, sealed


def restate(folder: Path, **changes: Any) -> None:
    """Write the manifest anew with other entries, the digests of the files as they are, and a seal that fits."""
    manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    files = {name: file_digest(folder / name) for name in manifest["files"]}
    (folder / MANIFEST).write_bytes(as_json(sealed({**manifest, "files": files, **changes})))


def seeded_budget(measurement_plan: Any) -> dict[str, Any]:
    """Return the entries of a manifest that say what seeded geometric noise as for ``asked`` cost."""
    from coco_opt.privacy.composition import Composition
    from coco_opt.privacy.measurement import query_dict

    shared = {"neighbours": measurement_plan.neighbours, "noise": "seeded"}
    queries = [
        {**query_dict(one), "level_name": measurement_plan.levels[one.level]} for one in measurement_plan.queries
    ]
    budget = {
        **measurement_plan.cost.as_dict(),
        "implied": Composition.of(measurement_plan.queries).implied(),
        **shared,
        "questions": queries,
    }
    privacy = {"mechanism": "geometric", "epsilon": str(measurement_plan.cost.amount), **shared}
    levels = list(measurement_plan.levels)
    return {
        "budget": budget,
        "config": {"privacy": privacy},
        "levels": levels,
        "private": False,
        "status": "NOT PRIVATE",
    }
