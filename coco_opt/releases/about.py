"""What a release is about, for its readers: title, date, the words for its units, and its privacy in a sentence."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from coco_opt.config.model import Config
from coco_opt.privacy.cost import cost_of
from coco_opt.privacy.measurement import AS_STATED
from coco_opt.releases.plan_notes import protects_hardly

ABOUT = "about"
"""The key of the manifest."""


@dataclass(frozen=True, slots=True)
class Words:
    """What readers call one group and several, one entity and several, and the value that ranges are of."""

    group: str = "group"
    groups: str = "groups"
    entity: str = "entity"
    entities: str = "entities"
    value: str = "value"


def about_of(config: Config, unit: str) -> dict[str, Any]:
    """Return the manifest's entry: title and date where they are configured, and the words.

    Words are those of [output], else the public column of groups without its "_id"; ``unit`` is an entity's word.
    """
    output, columns = config.output, getattr(config.data, "columns", {})
    words: dict[str, str] = {"entity": unit}
    words.update((str(key), word) for key, word in output.words.items())
    column = columns.get("group_id", "") if "groups" not in config.private_tables else ""
    if "group" not in words and isinstance(column, str) and re.fullmatch(r"[^\W\d_]{3,}_id", column, re.IGNORECASE):
        words["group"] = column.lower().removesuffix("id").removesuffix("_")
    for one, several in (("group", "groups"), ("entity", "entities")):
        if one in words:
            words.setdefault(several, plural(words[one]))
    stated = {"title": output.title, "date": output.date}
    return {**{key: text for key, text in stated.items() if text}, "words": asdict(Words(**words))}


def plural(word: str) -> str:
    """Return the regular English plural of a word."""
    if re.search(r"[^aeiou]y$", word):
        return f"{word[:-1]}ies"
    return f"{word}es" if re.search(r"(s|x|z|ch|sh)$", word) else f"{word}s"


def unit_words(manifest: Mapping[str, Any]) -> Words:
    """Return the words of a manifest, the default ones where it has none."""
    return Words(**manifest.get(ABOUT, {}).get("words", {}))


def title_of(manifest: Mapping[str, Any]) -> str:
    """Return the configured title, else the name of the data; where the ledger has none, that of the configuration."""
    name: str = manifest.get("config", {}).get("privacy", {}).get("dataset") or manifest["name"]
    return manifest.get(ABOUT, {}).get("title") or ("Release" if name == "release" else name)


def date_of(manifest: Mapping[str, Any]) -> str:
    """Return when the counts were true, "" where the configuration does not say."""
    date: str = manifest.get(ABOUT, {}).get("date", "")
    return date


def protection(manifest: Mapping[str, Any]) -> str:
    """Return in a sentence whom the noise in a release protects."""
    entity = unit_words(manifest).entity
    if manifest["status"] == AS_STATED:
        return "Others published the noisy counts behind these figures; whom their noise protects is for them to say."
    if not manifest["private"]:
        return "These are trial figures: anybody can undo their noise, so they protect nobody (NOT PRIVATE)."
    cost = cost_of(manifest.get("budget") or manifest["cost"])
    if protects_hardly(cost):
        return (
            f"The noise in these figures is so little ({cost}) that it protects hardly anybody: share them where the "
            "records themselves may be shared, and nowhere else."
        )
    return (
        "These figures may be read and shared by anybody: before publication every count that is not called exact was "
        f"changed a little at random, which limits what they tell about whether any one {entity} was counted ({cost})."
    )
