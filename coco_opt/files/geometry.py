"""Outlines of regions from a public GeoJSON file, each found by the ``region_id`` of its feature."""

from __future__ import annotations

import json
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from coco_opt.array_types import Floats
from coco_opt.errors import InputError, Place
from coco_opt.files.folder import file_digest
from coco_opt.histograms import Hierarchy
from coco_opt.plugins import near

Ring = Floats
"""The corners of a closed line, float64[corners, 2]: longitude and latitude in degrees; the first is not repeated."""

_LISTED = 10  # features or regions that a message names
_COMPARED = 50_000  # names that a misspelt name is compared with
_KEY = "region_id"


@dataclass(frozen=True, eq=False, slots=True)
class Outlines:
    """The outlines that a file has of the regions of a hierarchy, as rings by region; ``digest`` is its SHA-256."""

    file: str
    digest: str
    rings: Mapping[int, Sequence[Ring]]

    def missing(self, tree: Hierarchy) -> list[int]:
        """Return the regions without an outline on the lowest level that has any."""
        level = max(tree.level[region] for region in self.rings)
        return [region for region in tree.level_range(level) if region not in self.rings]


def read_outlines(path: Path, tree: Hierarchy, region_ids: Sequence[str | None]) -> Outlines:
    """Read the outlines of the regions of a hierarchy.

    A feature's ``region_id`` is the id of a region, the path of a region above (``nation/state``), or a name that a
    single region has. InputError: file-not-found, not-geojson, not-degrees, null-id, unknown-region, duplicate-region.
    """
    features = _features(path)
    ids = _ids(features, path.name)
    regions = _regions(ids, tree, region_ids, path.name)
    rings = {
        region: rings
        for number, (region, feature) in enumerate(zip(regions, features, strict=True), start=1)
        if (rings := _rings(feature["geometry"], f"feature {number} ({ids[number - 1]})", path.name))
    }
    if not rings:
        raise InputError("not-geojson", "holds no outline of an area", Place(path.name))
    return Outlines(path.name, file_digest(path), rings)


def without_outline(outlines: Outlines, tree: Hierarchy) -> str:
    """Return a sentence that names the regions which cannot be drawn, "" where all can."""
    missing = outlines.missing(tree)
    if not missing:
        return ""
    names = _listed([tree.paths[region] for region in missing])
    regions = "region has" if len(missing) == 1 else "regions have"
    return f"{outlines.file}: {len(missing):,} {regions} no outline and will be missing on the map: {names}"


def _features(path: Path) -> Sequence[Mapping[str, Any]]:
    """Return the features of a file, each with ``properties`` and ``geometry``."""
    document = _document(path)
    kind = document.get("type") if isinstance(document, dict) else None
    if kind == "Topology":
        raise InputError("not-geojson", "is TopoJSON: convert it to GeoJSON, such as with mapshaper", Place(path.name))
    features = [document] if kind == "Feature" else document.get("features") if kind == "FeatureCollection" else None
    if not isinstance(features, list) or not features:
        message = 'is not GeoJSON: it must be a "FeatureCollection" with a list of features'
        raise InputError("not-geojson", message, Place(path.name))
    for number, feature in enumerate(features, start=1):
        if not isinstance(feature, dict) or not {"properties", "geometry"} <= set(feature):
            message = f"is not GeoJSON: feature {number} has no properties or no geometry"
            raise InputError("not-geojson", message, Place(path.name))
    return features


def _document(path: Path) -> Any:
    failure = ""
    try:
        return json.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise InputError("file-not-found", "no such file of outlines (output.geometry)", Place(path.name)) from None
    except UnicodeDecodeError:
        failure = "it is not UTF-8 text"
    except json.JSONDecodeError as error:
        failure = f"{error.msg} in line {error.lineno}"
    except ValueError:
        failure = "a number has too many digits"
    except RecursionError:
        failure = "it is nested too deeply"
    except OSError as error:
        raise InputError("unreadable-file", f"cannot be read: {error.strerror}", Place(path.name)) from None
    raise InputError(
        "not-geojson", f"is not GeoJSON: {failure}. A shapefile has to be converted first", Place(path.name)
    )


def _ids(features: Sequence[Mapping[str, Any]], file: str) -> list[str]:
    """Return the id of each feature, as tables of regions are read."""
    ids: list[str] = []
    absent = []
    for number, feature in enumerate(features, start=1):
        value = _properties(feature).get(_KEY)
        if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
            absent.append(number)
        ids.append(unicodedata.normalize("NFC", str(value)))
    if absent:
        properties = sorted(_properties(features[absent[0] - 1]))
        have = f"; it has {', '.join(properties[:_LISTED])}" if properties else ""
        message = (
            f"{_numbered(absent)} no {_KEY} in the properties that is a text or an integer{have}: copy the column that "
            "identifies regions there"
        )
        raise InputError("null-id", message, Place(file))
    return ids


def _properties(feature: Mapping[str, Any]) -> Mapping[str, Any]:
    properties = feature["properties"]
    return properties if isinstance(properties, dict) else {}


def _regions(ids: Sequence[str], tree: Hierarchy, region_ids: Sequence[str | None], file: str) -> list[int]:
    """Return the region of each feature."""
    known = _known(tree, region_ids)
    unknown = [number for number, name in enumerate(ids, start=1) if name not in known]
    if unknown:
        first = ids[unknown[0] - 1]
        message = (
            f"{_numbered(unknown)} a {_KEY} that no region of this release has, such as {first!r}"
            f"{_hint(first, known) or '.'} Remove features of other regions, or correct the ids"
        )
        raise InputError("unknown-region", message, Place(file))
    regions = [known[name] for name in ids]
    times = Counter(regions)
    repeated = [number for number, region in enumerate(regions, start=1) if times[region] > 1]
    if repeated:
        message = f"{_numbered(repeated)} a region in common with another: make one MultiPolygon of a region's parts"
        raise InputError("duplicate-region", message, Place(file))
    return regions


def _known(tree: Hierarchy, region_ids: Sequence[str | None]) -> dict[str, int]:
    """Return the regions by the texts that may name them; ids before paths, and these before names that occur once."""
    times = Counter(tree.names)
    by_name = {name: region for region, name in enumerate(tree.names) if times[name] == 1}
    by_path = {path: region for region, path in enumerate(tree.paths)}
    return {**by_name, **by_path, **{name: k for k, name in enumerate(region_ids) if name is not None}}


def _hint(text: str, known: Mapping[str, int]) -> str:
    bare = text.lstrip("0")
    if any(name.lstrip("0") == bare for name in known):
        return " (one that differs only in leading zeros exists: write both as text, with all their zeros)."
    return near(text, known, "") if len(known) <= _COMPARED else ""


def _rings(geometry: Any, where: str, file: str) -> list[Ring]:
    """Return the rings of a geometry; none where a feature has no geometry."""
    if geometry is None:
        return []
    kind = geometry.get("type") if isinstance(geometry, dict) else None
    if kind not in ("Polygon", "MultiPolygon"):
        raise InputError(
            "not-geojson", f"{where} is a {kind}: a region must be a Polygon or a MultiPolygon", Place(file)
        )
    polygons = [geometry.get("coordinates")] if kind == "Polygon" else geometry.get("coordinates")
    return [ring for ring in (_ring(each, where, file) for each in _each_ring(polygons, where, file)) if len(ring) > 2]


def _each_ring(polygons: Any, where: str, file: str) -> Iterator[Any]:
    if not isinstance(polygons, list) or not all(isinstance(polygon, list) for polygon in polygons):
        raise InputError("not-geojson", f"{where} has no lists of coordinates", Place(file))
    for polygon in polygons:
        yield from polygon


def _ring(positions: Any, where: str, file: str) -> Ring:
    try:
        corners = np.array([position[:2] for position in positions], np.float64).reshape(-1, 2)
    except (TypeError, ValueError, KeyError, OverflowError):
        corners = np.full((1, 2), np.nan)
    if not np.isfinite(corners).all():
        raise InputError("not-geojson", f"{where} has a position that is not a pair of numbers", Place(file)) from None
    if (np.abs(corners) > (360.0, 90.0)).any():
        far = corners[(np.abs(corners) > (360.0, 90.0)).any(axis=1)][0]
        message = (
            f"{where} has the position {far[0]:,.0f}, {far[1]:,.0f}, which is no longitude and latitude: the file is "
            "projected. Convert it to degrees (WGS 84, EPSG:4326)"
        )
        raise InputError("not-degrees", message, Place(file))
    closed = len(corners) > 1 and bool((corners[0] == corners[-1]).all())
    return corners[:-1] if closed else corners


def _numbered(numbers: Sequence[int]) -> str:
    """Return the features by number with a verb: "feature 3 has", "features 3, 4 have"."""
    if len(numbers) == 1:
        return f"feature {numbers[0]} has"
    return f"features {_listed(map(str, numbers[:_LISTED]), len(numbers))} ({len(numbers):,}) have"


def _listed(names: Iterable[str], count: int | None = None) -> str:
    names = list(names)
    count = len(names) if count is None else count
    return ", ".join(names[:_LISTED]) + (", ..." if count > _LISTED else "")
