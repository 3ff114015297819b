"""One flipped bit in any file of a release with a look, then any command: found, or nothing public changes."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from tests.cli.helpers import Ran, Runner
from tests.releases.towns import entries, write

PUBLIC = ("out", "published", "published-look")
FAST, SLOW = 30, 1000  # pairs of a flipped bit and a verb
VERBS: dict[str, tuple[str, ...]] = {
    "check": ("check", "run.toml", "--json"),
    "plan": ("plan", "run.toml", "--json"),
    "measure": ("measure", "run.toml", "--json"),
    "release": ("release", "run.toml", "--out", "out", "--json"),
    "release anew": ("release", "other.toml", "--out", "new", "--json"),
    "estimate a run": ("estimate", "RUN", "run.toml", "--out", "new", "--json"),
    "estimate": ("estimate", "published", "run.toml", "--out", "new", "--json"),
    "estimate with the look": ("estimate", "published", "published-look", "run.toml", "--out", "new", "--json"),
    "verify": ("verify", "out", "--json"),
    "verify a measurement": ("verify", "published", "--json"),
    "verify a look": ("verify", "published-look", "--json"),
    "verify what was paid": ("verify", "out", "--ledger", "run.toml", "--json"),
    "ledger": ("ledger", "run.toml", "--json"),
    "grant": ("ledger", "run.toml", "--grant", "1", "--json"),
    "forget": ("ledger", "run.toml", "--forget", "RUN", "--json"),
    "export": ("export", "out", "--out", "new"),
    "compare": ("compare", "RUN", "--config", "run.toml", "--size", "2", "--json"),
}
_VARIES = {"seconds", "stages", "time", "head", "hash", "previous", "notes", "record", "data"}
_WAY_ON = re.compile("estore|free|again|publish|check|another name")


@pytest.fixture
def coco(capsys: pytest.CaptureFixture[str]) -> Runner:
    return Runner(capsys)


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with all that runs leave: ledger, runs, release, published measurement and look, signatures."""
    from coco_opt.cli import main

    folder = tmp_path_factory.mktemp("left")
    config = write(folder, 'total = "3"')
    config.write_text(config.read_text().replace('split = "uniform"', "").replace("bucket_growth = 0", ""))
    (folder / "other.toml").write_text(config.read_text().replace('"matching"', '"matching"\nmerge = "average"'))
    secret = Ed25519PrivateKey.generate()
    (folder / "key.pem").write_bytes(secret.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    public = secret.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    (folder / "key.pub").write_bytes(public)
    assert main(["measure", str(config), "--publish", str(folder / "published")]) == 0
    assert main(["release", str(config), "--out", str(folder / "out")]) == 0
    for name in PUBLIC:
        assert main(["sign", str(folder / name), "--key", str(folder / "key.pem")]) == 0
        assert main(["verify", str(folder / name), "--signed-by", str(folder / "key.pub")]) == 0
    return folder


def contents(folder: Path) -> dict[Path, bytes]:
    """Return all files of a run."""
    roots = (folder / "private", *(folder / name for name in PUBLIC))
    return {path: path.read_bytes() for root in roots for path in root.rglob("*") if path.is_file()}


def restore(folder: Path, before: dict[Path, bytes]) -> None:
    """Bring all files back, and remove what was made."""
    shutil.rmtree(folder / "new", ignore_errors=True)
    there = contents(folder)
    for path, content in there.items():
        if path not in before:
            path.unlink()
        elif content != before[path]:
            path.write_bytes(before[path])
    for path in before.keys() - there.keys():
        path.parent.mkdir(mode=0o700, exist_ok=True)
        path.write_bytes(before[path])
        path.chmod(0o600)


def pairs(before: dict[Path, bytes], count: int) -> Iterator[tuple[Path, int, int, str]]:
    """Yield places of bits and a verb: every verb and every file equally often, and each with each in the long run."""
    rng, names = np.random.default_rng(7), list(VERBS)
    files = sorted(path for path, content in before.items() if content)
    for number in range(count):
        place = number if count > len(files) else int(rng.integers(len(files)))
        path = files[place % len(files)]
        verb = names[(number + number // len(files)) % len(names)]
        yield path, int(rng.integers(len(before[path]))), int(rng.integers(8)), verb


def run(verb: str, folder: Path, coco: Runner) -> Ran:
    """Run a verb over the folder; RUN stands for the main run."""
    main = max(folder.glob("private/runs/2*/released-*.json")).parent.name
    names = {"RUN": main, **{name: str(folder / name) for name in ("run.toml", "other.toml", "new", *PUBLIC)}}
    return coco(*(names.get(word, word) for word in VERBS[verb]))


def plain(value: Any) -> Any:
    """Return a JSON value without what varies from call to call.

    Where the queries of a run cannot be read, ``ledger`` names the run and states the sum, which is never less.
    """
    if isinstance(value, dict):
        value = {**value, "together": None} if (value.get("together") or {}).get("unknown_runs") else value
        return {key: plain(entry) for key, entry in value.items() if key not in _VARIES}
    if isinstance(value, list):  # that a damaged input of a finished run was erased is said, and changes nothing
        return [plain(entry) for entry in value if not (isinstance(entry, dict) and entry.get("name") == "keys")]
    return value


def without_guarantee(said: Any) -> Any:
    """Return what a verb said with only the sum for each account."""
    if not isinstance(said, dict) or "accounts" not in said:
        return said
    return {**said, "accounts": [{**account, "together": None} for account in said["accounts"]]}


def published(ran: Ran, folder: Path) -> tuple[Any, dict[str, str]]:
    """Return what a verb said and what it wrote for others to read."""
    said = plain(json.loads(ran.out)) if ran.out.startswith("{") else ran.out
    if isinstance(said, dict) and "release" in said:  # whose files state what was spent
        said = {key: entry for key, entry in said.items() if key != "spent"}
    new = folder / "new"
    written = sorted(new.rglob("*")) if new.is_dir() else []
    files = [*written, *(path for path in sorted((folder / "out").rglob("*")))]
    return said, {str(path.relative_to(folder)): digest(path) for path in files if path.is_file()}


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_public_and_private_files_are_all_tried(left: Path) -> None:
    names = {path.name for path, content in contents(left).items() if content}
    assert {"ledger.sqlite", "ledger.sqlite.key", "ledger.sqlite.head", "input", "ledger.json"} <= names
    assert {"answers.parquet", "hierarchy.parquet", "manifest.json", "measurement.json", "signature.json"} <= names
    assert any(name.startswith("chosen-") for name in names)


@pytest.mark.parametrize("count", [FAST, pytest.param(SLOW, marks=pytest.mark.slow)])
def test_a_flipped_bit_is_found_or_without_effect(count: int, left: Path, coco: Runner) -> None:
    before, kinds = contents(left), entries(left)
    intact: dict[str, tuple[Any, dict[str, str]]] = {}
    for verb in dict.fromkeys(verb for *_, verb in pairs(before, count)):
        ran = run(verb, left, coco)
        assert ran.code == 0, (verb, ran.err)
        intact[verb] = published(ran, left)
        restore(left, before)
    found, wrong = 0, list[str]()
    for path, byte, bit, verb in pairs(before, count):
        content = bytearray(before[path])
        content[byte] ^= 1 << bit
        path.write_bytes(content)
        where = f"{verb} after {path.relative_to(left)}, byte {byte}, bit {bit}"
        ran = run(verb, left, coco)
        wrong += [where] * (ran.code not in (0, 1, 2, 3) or "unexpected" in ran.err + ran.out)
        if ran.code == 0:
            said, files = published(ran, left)
            flipped = str(path.relative_to(left))
            same = said in (intact[verb][0], plain(without_guarantee(intact[verb][0])))
            same &= all(files[name] == stated for name, stated in intact[verb][1].items() if name != flipped)
            wrong += [f"silent: {where}"] * (not same)
        else:
            wrong += [f"no way on: {where}: {ran.err}"] * (_WAY_ON.search(ran.err + ran.out) is None)
            found += 1
        restore(left, before)
        if os.name == "posix":
            assert path.stat().st_mode & 0o777 in (0o600, 0o644)
    assert "\n".join(wrong) == ""
    assert entries(left) == kinds
    sys.stdout.write(f"{count} pairs: {found} found, {count - found} without effect\n")
    assert found > count // 10
