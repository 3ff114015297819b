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
from coco_opt.privacy.accounting import rho_of_epsilon_delta
from coco_opt.privacy.cost import Cost, Epsilon, Rho, cost_of, total


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
    if _configured(privacy) != cost:
        return f"the budget says {cost}, and its configuration asks {_configured(privacy)}"
    if budget["implied"] != cost.implied(delta):
        return "the budget implies other guarantees than it says"
    if (budget["neighbours"], budget["noise"]) != (privacy["neighbours"], privacy["noise"]):
        return "budget and configuration differ in neighbours or noise"
    if manifest["private"] is (budget["noise"] == "seeded"):
        return f"it says {manifest['status']}, and its noise was {budget['noise']!r}"
    return ""


def _configured(privacy: Mapping[str, Any]) -> Cost:
    """Return the whole budget that a manifest's configuration asks for."""
    if "rho" in privacy:
        return Rho(Fraction(privacy["rho"]))
    if privacy["mechanism"] == "geometric":
        return Epsilon(Fraction(privacy["epsilon"]))
    return Rho(rho_of_epsilon_delta(Fraction(privacy["epsilon"]), Fraction(privacy["delta"])))
