"""Check a release folder against its manifest: files by digest, seal, budget, the shared files, the kind's promises.

The checks read the raw files and do not use the code that wrote them; bad content never makes them raise. The seal, a
digest over all entries of an index, shows any change, unless whoever changed the index also renewed the seal: ``verify
--ledger`` and a signature find that too.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from coco_opt.config.model import Config
from coco_opt.errors import CocoOptError, InputError
from coco_opt.files.folder import MANIFEST, SEAL, SIGNATURE, file_digest, is_as_sealed, read_manifest
from coco_opt.files.measurement import INDEX, is_measurement, query_from_dict, read_index, read_measurement
from coco_opt.files.regions import stored_regions
from coco_opt.files.release_checks import Check, Regions
from coco_opt.files.unchanged import changed_files
from coco_opt.privacy.budget import stated_fraction
from coco_opt.privacy.composition import Composition
from coco_opt.privacy.cost import Cost, Epsilon, Rho, cost_of, cost_together
from coco_opt.privacy.ledger_chain import Books, Charge, Run
from coco_opt.privacy.measurement import AS_STATED, FOREIGN, identity_of
from coco_opt.privacy.promise import Promise, joint
from coco_opt.releases.kind import AnyKind, Folder, kind_named
from coco_opt.releases.manifest import FORMAT, OF, noise_of, sources_of
from coco_opt.releases.runs import ledger_of, sweep


def verify_folder(folder: str | Path, signed_by: Path | None = None, earlier: Sequence[str | Path] = ()) -> list[Check]:
    """Check a release or a published measurement, and its signature where there is one or a public key is given.

    ``earlier`` is as in ``verify_release``.
    Raises InputError (file-not-found, bad-key) where the key cannot be read.
    """
    folder = Path(folder)
    checks = _measurement_checks(folder) if is_measurement(folder) else verify_release(folder, earlier)
    if signed_by is None and not os.path.lexists(folder / SIGNATURE):
        return checks
    from coco_opt.releases.signing import signature_check

    return [*checks, signature_check(folder, signed_by)]


def _measurement_checks(folder: Path) -> list[Check]:
    """Check a measurement: its files by digest, its index by its seal, and that the folder holds nothing else."""
    try:
        index = read_index(folder)
        seal = _measurement_seal_check(folder, index)
        if not seal.passed:
            return [seal]
        measurement, _ = read_measurement(folder)
    except CocoOptError as error:
        return [Check("files", passed=False, detail=str(error))]
    foreign = sorted({path.name for path in folder.iterdir()} - {INDEX, SIGNATURE, *index["files"]})
    detail = f"not of this measurement: {', '.join(foreign)}" if foreign else "all files are those that were written"
    cost = f"{measurement.status}: {measurement.cost}"
    return [
        Check("files", not foreign, detail),
        seal,
        Check("cost", passed=True, detail=cost),
    ]


def _measurement_seal_check(folder: Path, index: Mapping[str, Any]) -> Check:
    """Check the seal; a measurement that was written elsewhere may have none."""
    if index.get("noise") == FOREIGN and SEAL not in index:
        return Check("seal", passed=True, detail="not sealed: written elsewhere, a signature would bind it")
    return seal_check(folder / INDEX, index)


def verify_release(folder: str | Path, earlier: Sequence[str | Path] = ()) -> list[Check]:
    """Check that a release folder is complete and holds what its manifest promises.

    Parameters
    ----------
    folder : str or Path
        The release folder.
    earlier : sequence of str or Path, default ()
        Where to look for releases that this release agrees with: their folders, or folders that hold them. Folders next
        to it are searched too.

    Returns
    -------
    list of Check
        What was checked: ``name``, ``passed`` and ``detail``.

    Notes
    -----
    O(rows log rows).

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> import pandas as pd
    >>> from coco_opt import configure, release, verify_release
    >>> visits = pd.DataFrame({"value": [3, 1, 4, 1, 5]})
    >>> privacy = {"epsilon": "1", "noise": "seeded", "seed": 7}
    >>> with TemporaryDirectory() as folder:
    ...     config = configure(folder=folder, data={"values": visits}, privacy=privacy, ranges={"cells": 8})
    ...     written = release(config).folder
    ...     _ = (written / "manifest.json").write_text("{}")
    ...     all(check.passed for check in verify_release(written))
    False
    """
    folder = Path(folder)
    try:
        manifest = read_manifest(folder)
        if manifest.get("format") != FORMAT:
            detail = f"{MANIFEST}: the format {manifest.get('format')!r} is not {FORMAT!r}, which this version checks"
            return [Check("files", passed=False, detail=detail)]
        kind = kind_named(str(manifest.get("kind")))
    except InputError as error:
        return [Check("files", passed=False, detail=str(error))]
    checks = [_file_check(folder, manifest), seal_check(folder / MANIFEST, manifest), _manifest_check(manifest, kind)]
    if not checks[-1].passed:
        return checks
    return [*checks, budget_check(manifest), *_content_checks(folder, manifest, kind, earlier)]


def _file_check(folder: Path, manifest: Mapping[str, Any]) -> Check:
    """Compare every file with the digest that the manifest states."""
    stated = manifest.get("files")
    if not isinstance(stated, dict):
        return Check("files", passed=False, detail=f"{MANIFEST} states no digests of files")
    present = {path.name for path in folder.iterdir()} - {MANIFEST, SIGNATURE}
    foreign, missing = sorted(present - set(stated)), sorted(set(stated) - present)
    problem = ""
    if missing:
        problem = f"missing: {', '.join(missing)}"
    elif foreign:
        problem = f"not of this release: {', '.join(foreign)}"
    else:
        changed = changed_files(folder, stated)
        problem = f"changed since it was released: {', '.join(changed)}" if changed else ""
    return Check("files", not problem, problem or f"all {len(stated)} files are those that were written")


def _manifest_check(manifest: Mapping[str, Any], kind: AnyKind) -> Check:
    promises = manifest.get("promises")
    least, problem = ("integers", *kind.least), ""
    if not isinstance(promises, list) or not all(isinstance(name, str) for name in promises):
        problem = "promises must be a list of names"
    elif unknown := [name for name in promises if name not in ("integers", *kind.promises)]:
        problem = f"promises what this version cannot check: {', '.join(unknown)}"
    elif missing := [name for name in least if name not in promises]:
        problem = f"does not promise what every release of {kind.name} keeps: {', '.join(missing)}"
    elif not isinstance(manifest.get("private"), bool):
        problem = "does not say whether the release is private"
    elif manifest.get("status") not in (("private",) if manifest["private"] else ("NOT PRIVATE", AS_STATED)):
        problem = "its status contradicts itself"
    return Check("manifest", not problem, problem or f"promises {len(promises or [])} properties")


def _content_checks(
    folder: Path, manifest: Mapping[str, Any], kind: AnyKind, earlier: Sequence[str | Path]
) -> Iterator[Check]:
    """Yield the checks of the shared files, then the kind's; promises that cannot be checked count as broken."""
    failure, seen = "", set()
    try:
        regions, check = _regions(folder, manifest)
        yield check
        if regions is not None:
            for check in kind.verify(Folder(folder, manifest, regions, tuple(map(Path, earlier)))):
                seen.add(check.name)
                yield check
    except CocoOptError as error:
        failure = str(error)
    except Exception as error:  # any failure on foreign files is a finding about these files
        failure = f"the files are not what they should be ({type(error).__name__})"
    if failure:
        yield Check("content", passed=False, detail=failure)
    for name in manifest["promises"]:
        if name not in seen:
            yield Check(name, passed=False, detail="not checked: the files are not sound")


def _regions(folder: Path, manifest: Mapping[str, Any]) -> tuple[Regions | None, Check]:
    """Return the regions, None where they are no tree of the manifest's levels, and the check of them."""
    try:
        regions = stored_regions(folder)
    except InputError as error:
        return None, Check("hierarchy", passed=False, detail=error.words)
    if [*regions.levels] != manifest.get("levels"):
        detail = f"its levels are {', '.join(regions.levels)}, and the manifest names others"
        return None, Check("hierarchy", passed=False, detail=detail)
    number = regions.hierarchy.regions
    return regions, Check("hierarchy", passed=True, detail=f"a tree of {number:,} region{'' if number == 1 else 's'}")


def verify_paid(folder: str | Path, config: Config) -> list[Check]:
    """Check that the stated cost of a private release was paid, and that a run recorded this very manifest.

    Keys that stopped commands left of finished runs are erased, or reported where they cannot be.
    """
    lines: list[str] = []
    swept = sweep(config, lines.append)
    return [*(Check("keys", line in swept.erased, line) for line in lines), *_paid_checks(folder, config)]


def _paid_checks(folder: str | Path, config: Config) -> list[Check]:
    path, failure = Path(folder) / MANIFEST, ""
    try:
        manifest, books = read_manifest(Path(folder)), ledger_of(config).books()
        statements = _statements(manifest)
        if not any(statement["private"] is not False or _sealed_runs(statement, books) for statement in statements):
            detail = f"{manifest['status']}: there was nothing to pay here"
            return [Check("paid", passed=True, detail=detail)]
        payments = [
            statement
            for statement in statements
            if len(statements) == 1 or statement["private"] is not False or _sealed_runs(statement, books)
        ]
        earlier = [
            replace(_payment_check(entry, books), name=f"paid: {entry['release']}")
            for entry in manifest.get("agrees_with", ())
            if entry["private"]
        ]
        return [
            *(_payment_check(statement, books) for statement in payments),
            _record_check(file_digest(path), books),
            *earlier,
        ]
    except (KeyError, TypeError, ValueError):
        failure = f"{MANIFEST} does not say what was measured at which cost"
    except CocoOptError as error:
        failure = str(error)
    return [Check("paid", passed=False, detail=failure)]


def _statements(manifest: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return a manifest's statements on each of its measurements, in the form of those on a single measurement."""
    if "measurements" not in manifest:
        return [manifest]
    shared = {key: manifest["budget"][key] for key in ("neighbours", "promise")}
    return [{**entry, "budget": {**entry, **shared}} for entry in manifest["measurements"]]


def _sealed_runs(manifest: Mapping[str, Any], books: Books) -> list[Run]:
    return [run for run in books.runs.values() if run.charge.digest == manifest["measurement"] and run.sealed]


def _payment_check(manifest: Mapping[str, Any], books: Books) -> Check:
    """Look for a run that measured the manifest's queries at its cost."""
    cost, neighbours = cost_of(manifest["budget"]), manifest["budget"]["neighbours"]
    if manifest["private"] is not True:
        return Check("paid", passed=False, detail="says NOT PRIVATE of queries that a run of this ledger measured")
    runs, promise = _sealed_runs(manifest, books), Promise.of(manifest["budget"]["promise"])
    for run in (run for run in runs if run.receipt == manifest["receipt"]):
        paid = run.charge.promise
        # Of measurements that are estimated together, the manifest states the promise of all.
        if paid is not None and joint((paid, promise)) != promise:
            return Check("paid", passed=False, detail=f"run {run.name} was paid for another promise: {paid.words}")
        if _same_cost(Charge(run.charge.dataset, cost.unit, cost.amount, neighbours, ""), run, books):
            return Check("paid", passed=True, detail=f"{cost} of dataset {run.charge.dataset!r}, by run {run.name}")
    if runs and all(run.receipt != manifest["receipt"] for run in runs):
        detail = "these queries were measured, and the receipt is of no payment of this ledger for them"
    elif runs:
        detail = f"run {runs[-1].name} measured these queries at another cost than {cost} for {neighbours!r}"
    else:
        detail = "no run of this ledger measured these queries"
    return Check("paid", passed=False, detail=detail)


def _same_cost(charge: Charge, run: Run, books: Books) -> bool:
    try:
        return books.accounts[charge.dataset].cost(charge) == run.cost
    except CocoOptError:
        return False


def _record_check(digest: str, books: Books) -> Check:
    runs = [run.name for run in books.runs.values() if digest in run.outputs]
    unknown = "no run recorded this manifest: it was changed, or estimated elsewhere from a published measurement"
    return Check("recorded", bool(runs), f"run {runs[-1]} released it" if runs else unknown)


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
