"""An equal-area projection that suits the places it is given: conic, or cylindrical near the equator and worldwide."""

from __future__ import annotations

import numpy as np

from coco_opt.array_types import Floats

_WIDE = 180.0  # degrees of longitude from which a cone would fold around
_FLAT = 0.1  # constant of a cone that is nearly a cylinder
_SIXTH = 1 / 6  # of the latitudes lies outside each standard parallel (Deetz and Adams 1934)


def projected(degrees: Floats) -> Floats:
    """Return places float64[n, 2] (longitude, latitude in degrees) on a plane, y upwards, areas in one proportion.

    Albers' conic projection with standard parallels a sixth inside the latitudes, or Lambert's cylindrical one
    (Snyder 1987, equations 14-1 to 14-6 and 10-1 to 10-2). Longitudes are cut where the widest gap is, so that places
    on both sides of 180 degrees lie together.
    """
    turned = unwrapped(degrees[:, 0])
    west, east = turned.min(), turned.max()
    longitude = np.radians(turned - (west + east) / 2)
    latitude = np.radians(degrees[:, 1])
    south, north = latitude.min(), latitude.max()
    first, second = south + (north - south) * _SIXTH, north - (north - south) * _SIXTH
    cone = (np.sin(first) + np.sin(second)) / 2
    if abs(cone) < _FLAT or east - west > _WIDE:
        parallel = np.sqrt((np.cos(first) ** 2 + np.cos(second) ** 2) / 2)
        return np.column_stack([longitude * parallel, np.sin(latitude) / parallel])
    constant = np.cos(first) ** 2 + 2 * cone * np.sin(first)
    radius = np.sqrt(np.maximum(0.0, constant - 2 * cone * np.sin(latitude))) / cone
    return np.column_stack([radius * np.sin(cone * longitude), -radius * np.cos(cone * longitude)])


def unwrapped(longitude: Floats) -> Floats:
    """Return longitudes counted eastwards from the middle of the widest gap between them, in degrees."""
    around = np.unique(np.mod(longitude, 360.0))
    gaps = np.diff(around, append=around[0] + 360.0)
    widest = int(gaps.argmax())
    cut = around[widest] + gaps[widest] / 2
    counted: Floats = np.mod(longitude - cut, 360.0)
    return counted
