"""Version of the distribution, in one place; and on what something ran: packages, and the machine in words."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from functools import cache

__version__ = "0.1.0"

_SHAPING = ("coco-opt", "numpy", "scipy", "numba", "duckdb", "pyarrow", "opendp")


def versions(packages: Sequence[str] = _SHAPING) -> dict[str, str]:
    """Return the versions of Python and of those packages that are installed; those that shape a release if unsaid."""
    numbers = {package: _version(package) for package in packages}
    return {"python": platform.python_version()} | {name: number for name, number in numbers.items() if number}


@cache
def _version(package: str) -> str:
    """Return the version of a package, "" where it is not installed; read once, for its whole metadata are parsed."""
    # Imported here: ``import coco_opt`` stays fast.
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def machine() -> str:
    """Return the kind of processor, the cores and the Python in words, for whoever reads times."""
    return f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
