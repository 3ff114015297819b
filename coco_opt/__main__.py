"""``python -m coco_opt``: the command line without the installed script."""

from __future__ import annotations

import sys

from coco_opt.cli import main

if __name__ == "__main__":
    sys.exit(main())
