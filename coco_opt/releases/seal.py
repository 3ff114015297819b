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
from coco_opt.privacy.composition import Composition
from coco_opt.privacy.cost import Cost, Epsilon, Rho, cost_of, total

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
    asked = total(question.cost for question in questions if question.cost is not None)
    delta = Fraction(privacy["delta"]) if "delta" in privacy else None
    if asked != cost:
        return f"the budget says {cost}, and its questions cost {asked}"
    whole = Composition.of(questions)
    if "rho" not in privacy and privacy["mechanism"] == "discrete_gaussian":
        pair = Fraction(privacy["epsilon"]), Fraction(privacy["delta"])
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
    if manifest["private"] is (budget["noise"] == "seeded"):
        return f"it says {manifest['status']}, and its noise was {budget['noise']!r}"
    return ""


def _alike(stated: Any, found: Any) -> bool:
    """Tell whether guarantees are the same but for the last digits of floating-point sums, in which machines differ."""
    if isinstance(found, Mapping):
        return (
            isinstance(stated, Mapping)
            and stated.keys() == found.keys()
            and all(_alike(stated[key], value) for key, value in found.items())
        )
    try:
        one, two = Fraction(stated), Fraction(found)
    except ValueError:
        return bool(stated == found)
    return abs(one - two) <= _LAST_DIGIT * two


def _configured(privacy: Mapping[str, Any]) -> Cost:
    """Return the whole budget that a manifest's configuration states as one amount."""
    if privacy["mechanism"] == "geometric":
        return Epsilon(Fraction(privacy["epsilon"]))
    return Rho(Fraction(privacy["rho"]))
