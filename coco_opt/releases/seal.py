"""The seal of an index: a digest over all that it says, and what its budget must add up to.

It shows any change to who has not made the seal anew; who has is found by ``verify --ledger`` and by a signature.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

from coco_opt.errors import CocoOptError
from coco_opt.files.checked import Check
from coco_opt.files.folder import as_json, sealed
from coco_opt.files.measurement import question_of
from coco_opt.privacy.budget import stated_fraction
from coco_opt.privacy.composition import Composition
from coco_opt.privacy.cost import Cost, Epsilon, Rho, cost_of, cost_together
from coco_opt.privacy.measurement import AS_STATED, FOREIGN, identity_of
from coco_opt.releases.manifest import OF, noise_of, sources_of

_LAST_DIGIT = Fraction(2, 10**6)


def seal_check(path: Path, index: Mapping[str, Any]) -> Check:
    """Check that an index's file is, to the byte, what its seal covers."""
    holds = path.read_bytes() == as_json(sealed(index))
    return Check("seal", holds, f"{path.name} is as it was sealed" if holds else f"{path.name} was changed: restore it")


def budget_check(manifest: Mapping[str, Any]) -> Check:
    """Check that the stated budget is what the stated questions cost, and the noise what that buys."""
    problem = ""
    try:
        problem = _contradiction(manifest, manifest["budget"], manifest["config"]["privacy"])
        amount = f"{cost_of(manifest['budget'])}, the sum over all questions"
    except CocoOptError as error:
        problem = str(error)
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError):
        problem = "an entry of the budget is missing or wrong"
    return Check("budget", not problem, problem or amount)


def _contradiction(manifest: Mapping[str, Any], budget: Mapping[str, Any], privacy: Mapping[str, Any]) -> str:
    """Return what contradicts what, "" for nothing."""
    cost = cost_of(budget)
    questions = [question_of(plain) for plain in budget["questions"]]
    asked = cost_together(question.cost for question in questions if question.cost is not None)
    delta = _number(privacy["delta"]) if "delta" in privacy else None
    if asked != cost:
        return f"the budget says {cost}, and its questions cost {asked}"
    whole = Composition.of(questions)
    if "rho" not in privacy and privacy["mechanism"] == "discrete_gaussian":
        pair = _number(privacy["epsilon"]), _number(privacy["delta"])
        if budget["asked"] != {"epsilon": str(pair[0]), "delta": str(pair[1])}:
            return "budget and configuration differ in the (epsilon, delta) that was asked for"
        if whole.delta(pair[0]) > pair[1]:
            return f"the budget says {cost}, beyond the ({pair[0]}, {pair[1]}) that its configuration asks for"
    elif _configured(privacy) != cost:
        return f"the budget says {cost}, and its configuration asks {_configured(privacy)}"
    if not _alike(budget["implied"], whole.implied(delta)):
        return "the budget implies other guarantees than it says"
    if (budget["neighbours"], budget["noise"]) != (privacy["neighbours"], privacy["noise"]):
        return "budget and configuration differ in neighbours or noise"
    sources = sources_of(budget["noise"])
    wanted = "NOT PRIVATE" if "seeded" in sources else AS_STATED if FOREIGN in sources else "private"
    if manifest["status"] != wanted or manifest["private"] is not (wanted == "private"):
        return f"it says {manifest['status']}, and its noise was {budget['noise']!r}"
    return _of_several(manifest, budget) if "measurements" in manifest else ""


def _of_several(manifest: Mapping[str, Any], budget: Mapping[str, Any]) -> str:
    """Return what contradicts what in the account of several measurements, "" for nothing."""
    entries, questions = manifest["measurements"], budget["questions"]
    numbers = range(1, len(entries) + 1)
    if len(entries) < 2 or any(question[OF] not in numbers for question in questions):
        return "its questions are not those of its measurements"
    if len({entry["answers"] for entry in entries}) < len(entries):
        return "it counts a measurement twice"
    if identity_of(entry["measurement"] for entry in entries) != manifest["measurement"]:
        return "the digest of its measurements is not theirs"
    if noise_of(list(dict.fromkeys(entry["noise"] for entry in entries))) != budget["noise"]:
        return "its measurements have other noise than its budget says"
    for number, entry in zip(numbers, entries, strict=True):
        own = [question_of(one) for one in questions if one[OF] == number]
        asked = cost_together(one.cost for one in own if one.cost is not None)
        if asked != cost_of(entry):
            return f"measurement {number} says {cost_of(entry)}, and its questions cost {asked}"
        if (entry["status"] == "private") is not entry["private"] or entry["private"] is (
            entry["noise"] in ("seeded", FOREIGN)
        ):
            return f"measurement {number} says {entry['status']}, and its noise was {entry['noise']!r}"
    return ""


def _alike(stated: Any, found: Any) -> bool:
    """Tell whether guarantees are the same but for the last digits of floating-point sums, in which machines differ."""
    if isinstance(found, Mapping):
        return (
            isinstance(stated, Mapping)
            and stated.keys() == found.keys()
            and all(_alike(stated[key], value) for key, value in found.items())
        )
    one, two = stated_fraction(stated), stated_fraction(found)
    if one is None or two is None:
        return bool(stated == found)
    return abs(one - two) <= _LAST_DIGIT * two


def _number(stated: Any) -> Fraction:
    """Return the number that a manifest states; ValueError for anything else."""
    number = stated_fraction(stated)
    if number is None:
        raise ValueError("no exact number")
    return number


def _configured(privacy: Mapping[str, Any]) -> Cost:
    """Return the whole budget that a manifest's configuration states as one amount."""
    if privacy["mechanism"] == "geometric":
        return Epsilon(_number(privacy["epsilon"]))
    return Rho(_number(privacy["rho"]))
