"""One flipped bit in any file that a run leaves: found, or without effect; never unexpected, never silent in public."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from coco_opt.cli import main
from tests.releases.towns import entries, write

PUBLIC = ("out", "published")
FAST, SLOW = 20, 600


def run(*arguments: object) -> int:
    """Run a verb in this process and return its exit code."""
    return main([str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with all that a run leaves: ledger, run, release, published measurement, signatures."""
    folder = tmp_path_factory.mktemp("left")
    write(folder)
    config = folder / "run.toml"
    secret = Ed25519PrivateKey.generate()
    (folder / "key.pem").write_bytes(secret.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    public = secret.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    (folder / "key.pub").write_bytes(public)
    assert run("measure", config, "--publish", folder / "published") == 0
    assert run("release", config, "--out", folder / "out") == 0
    for name in PUBLIC:
        assert run("sign", folder / name, "--key", folder / "key.pem") == 0
        assert run("verify", folder / name, "--signed-by", folder / "key.pub") == 0
    return folder


def contents(folder: Path) -> dict[Path, bytes]:
    """Return all files of a run."""
    roots = (folder / "private", *(folder / name for name in PUBLIC))
    return {path: path.read_bytes() for root in roots for path in root.rglob("*") if path.is_file()}


def restore(folder: Path, before: dict[Path, bytes]) -> None:
    """Bring all files back."""
    for path, content in contents(folder).items():
        if path not in before:
            path.unlink()
        elif content != before[path]:
            path.write_bytes(before[path])
    for path in before.keys() - contents(folder).keys():
        path.write_bytes(before[path])
        path.chmod(0o600)


def flips(before: dict[Path, bytes], count: int) -> Iterator[tuple[Path, int, int]]:
    """Yield places of bits, in every file alike often."""
    rng = np.random.default_rng(7)
    files = sorted(path for path, content in before.items() if content)
    for number in range(count):
        path = files[number % len(files)]
        yield path, int(rng.integers(len(before[path]))), int(rng.integers(8))


def test_public_and_private_files_are_all_tried(left: Path) -> None:
    names = {path.name for path, content in contents(left).items() if content}
    assert {"ledger.sqlite", "ledger.sqlite.key", "ledger.sqlite.head", "input", "ledger.json"} <= names
    assert {"answers.parquet", "hierarchy.parquet", "manifest.json", "measurement.json", "signature.json"} <= names


@pytest.mark.parametrize("count", [FAST, pytest.param(SLOW, marks=pytest.mark.slow)])
def test_a_flipped_bit_is_found_or_without_effect(count: int, left: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, config, kinds = contents(left), left / "run.toml", entries(left)
    found = 0
    for path, byte, bit in flips(before, count):
        content = bytearray(before[path])
        content[byte] ^= 1 << bit
        path.write_bytes(content)
        where = f"{path.relative_to(left)}, byte {byte}, bit {bit}"
        capsys.readouterr()
        if path.relative_to(left).parts[0] in PUBLIC:
            folder = left / path.relative_to(left).parts[0]
            assert run("verify", folder) == 1, where
            assert "unexpected" not in capsys.readouterr().err, where
            found += 1
        else:
            code = run("release", config, "--out", left / "out", "--json")
            told = capsys.readouterr()
            assert code in (0, 2, 3), (where, told.err)
            assert "unexpected" not in told.err + told.out, where
            if code:
                error = json.loads(told.out)["error"]["message"]
                assert "free" in error or "estore" in error, (where, error)
                found += 1
            else:
                assert json.loads(told.out)["paid"] is False, where
                assert all(
                    (left / "out" / name).read_bytes() == before[left / "out" / name] for name in public_names(left)
                )
            assert run("ledger", config) in (0, 1, 2, 3), where
            assert "unexpected" not in capsys.readouterr().err, where
        restore(left, before)
        if os.name == "posix":
            assert path.stat().st_mode & 0o777 in (0o600, 0o644)
    assert entries(left) == kinds
    assert found > count // 2


def public_names(left: Path) -> list[str]:
    return [path.name for path in (left / "out").iterdir()]
