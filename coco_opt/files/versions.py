"""On what something ran: the versions of packages, and the machine in words."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

_SHAPING = ("coco-opt", "numpy", "scipy", "numba", "duckdb", "pyarrow", "opendp")


def versions(packages: Sequence[str] = _SHAPING) -> dict[str, str]:
    """Return the versions of Python and of those packages that are installed; those that shape a release if unsaid."""
    installed = {"python": platform.python_version()}
    for package in packages:
        try:
            installed[package] = version(package)
        except PackageNotFoundError:
            continue
    return installed


def machine() -> str:
    """Return the kind of processor, the cores and the Python in words, for whoever reads times."""
    return f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
