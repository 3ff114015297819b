"""Hold the house to its size: no folder has more lines than its budget (run by ``make check``).

``python -m tests.lines`` names what is above; ``--write`` lowers budgets to the lines there, and raises none. A budget
is raised by hand in ``tests/lines.json``, by as much as another is lowered in the same commit: new code pays with old.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUDGETS = Path(__file__).with_suffix(".json")
PACKAGES, KINDS = ("coco_opt", "solvers", "experiments", "tests"), (".py", ".js", ".css")


def lines_there(root: Path = ROOT) -> dict[str, int]:
    """Return the lines of code by folder: those of a package's own folders, and the package's as a whole."""
    lines: Counter[str] = Counter()
    for package in PACKAGES:
        for path in (root / package).rglob("*"):
            if path.suffix in KINDS and "__pycache__" not in path.parts:
                folders = path.relative_to(root).parts[:-1]
                count = path.read_bytes().count(b"\n")
                for depth in range(1, min(len(folders), 2) + 1):
                    lines["/".join(folders[:depth])] += count
    return dict(sorted(lines.items()))


def above(lines: dict[str, int], budgets: dict[str, int]) -> list[str]:
    """Return a sentence for each folder that is above its budget, or has none."""
    return [
        f"{folder}: {count:,} lines, {count - budgets.get(folder, 0):,} above its budget"
        for folder, count in lines.items()
        if count > budgets.get(folder, 0)
    ]


def main(arguments: list[str]) -> int:
    """Compare, or lower the budgets; return 1 where a folder is above."""
    lines, budgets = lines_there(), json.loads(BUDGETS.read_text(encoding="utf-8"))
    if arguments == ["--write"]:
        kept = {folder: min(count, budgets.get(folder, count)) for folder, count in lines.items()}
        BUDGETS.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
        return 0
    wrong = above(lines, budgets)
    for sentence in wrong:
        sys.stdout.write(f"{sentence}\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
