"""The seal of an index: a digest over all its entries; and the checks of its budget.

The seal shows any change, unless whoever changed the index also renewed the seal; ``verify --ledger`` and a signature
find that too.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

from coco_opt.errors import CocoOptError
from coco_opt.files.folder import is_as_sealed
from coco_opt.files.measurement import query_from_dict
from coco_opt.files.release_checks import Check
from coco_opt.privacy.budget import stated_fraction
from coco_opt.privacy.composition import Composition
from coco_opt.privacy.cost import Cost, Epsilon, Rho, cost_of, cost_together
from coco_opt.privacy.measurement import AS_STATED, FOREIGN, identity_of
from coco_opt.privacy.promise import Promise
from coco_opt.releases.manifest import OF, noise_of, sources_of

_LAST_DIGIT = Fraction(2, 10**6)


def seal_check(path: Path, index: Mapping[str, Any]) -> Check:
    """Check that an index's file is, to the byte, what its seal covers."""
    holds = is_as_sealed(path.read_bytes(), index)
    return Check("seal", holds, f"{path.name} is as it was sealed" if holds else f"{path.name} was changed: restore it")


def budget_check(manifest: Mapping[str, Any]) -> Check:
    """Check that the stated budget is the cost of the stated queries, and that the noise agrees with it."""
    problem = ""
    try:
        problem = _contradiction(manifest, manifest["budget"], manifest["config"]["privacy"])
        amount = f"{cost_of(manifest['budget'])}, the sum over all queries"
    except CocoOptError as error:
        problem = str(error)
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError):
        problem = "an entry of the budget is missing or wrong"
    return Check("budget", not problem, problem or amount)


def _contradiction(manifest: Mapping[str, Any], budget: Mapping[str, Any], privacy: Mapping[str, Any]) -> str:
    """Return the first contradiction, "" for none."""
    cost = cost_of(budget)
    queries = [query_from_dict(plain) for plain in budget["questions"]]
    queries_cost = cost_together(query.cost for query in queries if query.cost is not None)
    delta = _number(privacy["delta"]) if "delta" in privacy else None
    if queries_cost != cost:
        return f"the budget says {cost}, and its queries cost {queries_cost}"
    guaranteed = Composition.of(queries, adaptive="measurements" in manifest)
    if "rho" not in privacy and privacy["mechanism"] == "discrete_gaussian":
        pair = _number(privacy["epsilon"]), _number(privacy["delta"])
        if budget["asked"] != {"epsilon": str(pair[0]), "delta": str(pair[1])}:
            return "budget and configuration differ in the (epsilon, delta) that was requested"
        if guaranteed.delta(pair[0]) > pair[1]:
            return f"the budget says {cost}, beyond the ({pair[0]}, {pair[1]}) of its configuration"
    elif _configured_cost(privacy) != cost:
        return f"the budget says {cost}, and its configuration states {_configured_cost(privacy)}"
    if not _same_guarantees(budget["implied"], guaranteed.implied(delta)):
        return "the budget does not imply the guarantees that it states"
    if (budget["neighbours"], budget["noise"]) != (privacy["neighbours"], privacy["noise"]):
        return "budget and configuration differ in neighbours or noise"
    if Promise.of(budget["promise"]).neighbours != budget["neighbours"]:
        return "the budget promises other neighbours than it states"
    sources = sources_of(budget["noise"])
    status = "NOT PRIVATE" if "seeded" in sources else AS_STATED if FOREIGN in sources else "private"
    if manifest["status"] != status or manifest["private"] is not (status == "private"):
        return f"it says {manifest['status']}, and its noise was {budget['noise']!r}"
    return _several_contradiction(manifest, budget) if "measurements" in manifest else ""


def _several_contradiction(manifest: Mapping[str, Any], budget: Mapping[str, Any]) -> str:
    """Return the first contradiction in the entries of several measurements, "" for none."""
    entries, queries = manifest["measurements"], budget["questions"]
    numbers = range(1, len(entries) + 1)
    if len(entries) < 2 or any(query[OF] not in numbers for query in queries):
        return "its queries are not those of its measurements"
    if len({entry["answers"] for entry in entries}) < len(entries):
        return "it counts a measurement twice"
    if identity_of(entry["measurement"] for entry in entries) != manifest["measurement"]:
        return "the digest of its measurements is not theirs"
    if noise_of(list(dict.fromkeys(entry["noise"] for entry in entries))) != budget["noise"]:
        return "its measurements have other noise than its budget says"
    for number, entry in zip(numbers, entries, strict=True):
        own_queries = [query_from_dict(query) for query in queries if query[OF] == number]
        queries_cost = cost_together(query.cost for query in own_queries if query.cost is not None)
        if queries_cost != cost_of(entry):
            return f"measurement {number} says {cost_of(entry)}, and its queries cost {queries_cost}"
        if (entry["status"] == "private") is not entry["private"] or entry["private"] is (
            entry["noise"] in ("seeded", FOREIGN)
        ):
            return f"measurement {number} says {entry['status']}, and its noise was {entry['noise']!r}"
    return ""


def _same_guarantees(stated: Any, expected: Any) -> bool:
    """Return whether guarantees are equal up to the last digits of floating-point sums, which differ by machine."""
    if isinstance(expected, Mapping):
        return (
            isinstance(stated, Mapping)
            and stated.keys() == expected.keys()
            and all(_same_guarantees(stated[key], value) for key, value in expected.items())
        )
    first, second = stated_fraction(stated), stated_fraction(expected)
    if first is None or second is None:
        return bool(stated == expected)
    return abs(first - second) <= _LAST_DIGIT * second


def _number(stated: Any) -> Fraction:
    """Return the number that a manifest states; ValueError for anything else."""
    number = stated_fraction(stated)
    if number is None:
        raise ValueError("no exact number")
    return number


def _configured_cost(privacy: Mapping[str, Any]) -> Cost:
    """Return the total budget that a manifest's configuration states as one amount."""
    if privacy["mechanism"] == "geometric":
        return Epsilon(_number(privacy["epsilon"]))
    return Rho(_number(privacy["rho"]))
