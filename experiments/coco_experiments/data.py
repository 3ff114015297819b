"""Find the real data sets where the user has them; they are never part of the package."""

from __future__ import annotations

import os
from pathlib import Path

from coco_opt.errors import ConfigError
from coco_opt.tables.private import PrivateCounts

VARIABLE = "COCO_OPT_DATA"
DEFAULT = Path("..", "shared", "data")

_REPOSITORY = Path(__file__).resolve().parents[2]


def data_file(relative: str, folder: Path | None = None) -> Path:
    """Return the path of a data file below ``folder``, $COCO_OPT_DATA or ../shared/data (first that is given).

    Raises ConfigError, saying where to put it, where it is absent.
    """
    found = find_data_file(relative, folder)
    if found is None:
        looked = ", ".join(str(root) for root in _roots(folder))
        raise ConfigError(
            "",
            f"the data file {relative} is not below {looked}: put it there, or set {VARIABLE} to the folder "
            f"that holds {Path(relative).parts[0]!r} (or use --small, which makes its own data)",
        )
    return found


def find_data_file(relative: str, folder: Path | None = None) -> Path | None:
    """Return the path of a data file, or None where it is absent."""
    return next((root / relative for root in _roots(folder) if (root / relative).is_file()), None)


def _roots(folder: Path | None) -> list[Path]:
    given = folder or (Path(os.environ[VARIABLE]) if os.environ.get(VARIABLE) else None)
    return [given] if given is not None else [DEFAULT, _REPOSITORY / DEFAULT]


def taxi(folder: Path | None = None) -> PrivateCounts:
    """Read Taxi: 360,872 taxis by neighbourhood of Manhattan, sizes are pickups; 3 levels, 28 leaves."""
    from coco_opt.tables import read_sizes

    return read_sizes(data_file("kuo2018/taxi_neighbourhoods.csv", folder))


def hawaiian(folder: Path | None = None) -> PrivateCounts:
    """Read Hawaiian: native Hawaiians in each of 11,155,486 census blocks; one region."""
    from coco_opt.tables import read_sizes

    return read_sizes(data_file("kuo2018/hawaiian_blocks_nation.csv", folder), root="nation")
