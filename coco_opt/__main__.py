"""``python -m coco_opt``: the command line without the installed script."""

from __future__ import annotations

from coco_opt.cli import run

if __name__ == "__main__":
    run()
