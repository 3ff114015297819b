"""Check a release folder against its manifest: every file by digest, the shared files, and the kind's promises.

The checks read the raw files and do not use the code that wrote them; bad content never makes them raise.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from coco_opt.config.model import Config
from coco_opt.errors import CocoOptError, InputError
from coco_opt.files.folder import MANIFEST, SEAL, SIGNATURE, file_digest, read_manifest
from coco_opt.files.measurement import INDEX, is_measurement, read_index, read_measurement
from coco_opt.files.regions import checked_regions
from coco_opt.files.release_checks import Check
from coco_opt.files.unchanged import changed_files
from coco_opt.kinds import kind_row
from coco_opt.privacy.cost import cost_of
from coco_opt.privacy.ledger_chain import Books, Charge, Run
from coco_opt.privacy.measurement import AS_STATED, FOREIGN
from coco_opt.privacy.promise import Promise, joint
from coco_opt.releases.kind import AnyKind, Folder
from coco_opt.releases.manifest import FORMAT
from coco_opt.releases.runs import ledger_of, sweep
from coco_opt.releases.seal import budget_check, seal_check


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
        kind: AnyKind = kind_row(str(manifest.get("kind"))).load()
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
        regions, check = checked_regions(folder)
        if regions is not None and regions.level_names != manifest.get("levels"):
            detail = f"its levels are {', '.join(regions.level_names)}, and the manifest names others"
            regions, check = None, Check("hierarchy", passed=False, detail=detail)
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


def verify_paid(folder: str | Path, config: Config) -> list[Check]:
    """Check that the stated cost of a private release was paid, and that a run recorded this very manifest.

    Keys that stopped commands left of finished runs are erased, or reported where they cannot be.
    """
    return [*_key_checks(config), *_paid_checks(folder, config)]


def _key_checks(config: Config) -> list[Check]:
    """Return a check for each sentence on the keys of finished runs; none where no command left any."""
    lines: list[str] = []
    swept = sweep(config, lines.append)
    return [Check("keys", line in swept.erased, line) for line in lines]


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
