"""The versions of the packages that shape a measurement or a release, for their files."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

_PACKAGES = ("coco-opt", "numpy", "scipy", "numba", "duckdb", "pyarrow", "opendp")


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that are installed."""
    known = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            known[package] = version(package)
        except PackageNotFoundError:
            continue
    return known
