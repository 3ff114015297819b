"""Read and check input tables, and write, read and verify release folders."""

from __future__ import annotations

from coco_opt.tables.checked import Check
from coco_opt.tables.persons import TablesRelease, read_tables_release
from coco_opt.tables.private import PrivateCounts
from coco_opt.tables.reader import PublicTables, read_private, read_public, read_tables
from coco_opt.tables.release import Release, read_release, write_release
from coco_opt.tables.sizes import read_public_sizes, read_sizes
from coco_opt.tables.verify import verify_release

__all__ = [
    "Check",
    "PrivateCounts",
    "PublicTables",
    "Release",
    "TablesRelease",
    "read_private",
    "read_public",
    "read_public_sizes",
    "read_release",
    "read_sizes",
    "read_tables",
    "read_tables_release",
    "verify_release",
    "write_release",
]
