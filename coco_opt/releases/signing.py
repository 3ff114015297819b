"""Detached signatures: an office signs the index of a release or of a published measurement with its own key.

The index holds the SHA-256 of every other file. Keys are Ed25519 in PEM files, as OpenSSL writes them:
``openssl genpkey -algorithm ed25519 -out office.key`` and ``openssl pkey -in office.key -pubout -out office.pub``.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key

from coco_opt.errors import InputError, Place
from coco_opt.files.folder import MANIFEST, SIGNATURE, as_json, file_digest, parsed_json, write_file
from coco_opt.files.foreign_errors import quietly
from coco_opt.files.measurement import INDEX, is_measurement
from coco_opt.files.release_checks import Check

FORMAT = "coco-opt signature 1"


def sign(folder: Path, key: Path) -> Path:
    """Sign the index of a folder, and return the new file that holds the signature.

    Raises InputError: file-not-found, bad-key, folder-exists (signed already), cannot-write.
    """
    index = _index_of(folder)
    secret: Ed25519PrivateKey = _load_key(key, lambda text: load_pem_private_key(text, None), Ed25519PrivateKey)
    entries = {
        "format": FORMAT,
        "signed": index.name,
        "public_key": secret.public_key().public_bytes_raw().hex(),
        "signature": secret.sign(_message(index)).hex(),
    }
    write_file(folder / SIGNATURE, as_json(entries))
    return folder / SIGNATURE


def signature_check(folder: Path, public: Path | None) -> Check:
    """Check a folder's signature against the ``public`` key, if there is a key.

    Without a key this only shows that the holder of the key named in the signature signed this very index.
    """
    expected = None if public is None else _load_key(public, load_pem_public_key, Ed25519PublicKey)
    if not (folder / SIGNATURE).is_file():
        return Check("signature", passed=False, detail=f"there is no {SIGNATURE}: nobody signed it")
    content = quietly(folder / SIGNATURE, (folder / SIGNATURE).read_bytes)
    entries, index = parsed_json(content), _index_of(folder)
    problem = f"{SIGNATURE} is no signature of {index.name}"
    try:
        if (
            entries is None
            or as_json(entries) != content
            or (entries["format"], entries["signed"]) != (FORMAT, index.name)
        ):
            return Check("signature", passed=False, detail=problem)
        key = Ed25519PublicKey.from_public_bytes(_bytes(entries["public_key"]))
        if expected is not None and expected.public_bytes_raw() != key.public_bytes_raw():
            return Check("signature", passed=False, detail="it is signed with another key")
        key.verify(_bytes(entries["signature"]), _message(index))
    except (InvalidSignature, ValueError, KeyError, TypeError):
        return Check("signature", passed=False, detail=problem)
    whose = "the given key" if expected is not None else f"the key {entries['public_key'][:16]}..., whoever holds it"
    return Check("signature", passed=True, detail=f"{index.name} is signed with {whose}")


def _bytes(text: str) -> bytes:
    """Return the bytes of a text in lower-case hexadecimal; ValueError for any other spelling."""
    content = bytes.fromhex(text)
    if content.hex() != text:
        raise ValueError("not as it was written")
    return content


def _index_of(folder: Path) -> Path:
    if (folder / MANIFEST).is_file():
        return folder / MANIFEST
    if is_measurement(folder):
        return folder / INDEX
    raise InputError("file-not-found", "this is neither a release nor a measurement", Place(str(folder)))


def _message(index: Path) -> bytes:
    return f"{FORMAT}\n{index.name}\n{file_digest(index)}\n".encode()


def _load_key(path: Path, load: Any, kind: type) -> Any:
    """Return the key of a PEM file; hide a library's error text, which may hold a part of the key."""
    if not path.is_file():
        raise InputError("file-not-found", "no such key", Place(str(path)))
    text, key = quietly(path, path.read_bytes), None
    with suppress(ValueError, TypeError, UnsupportedAlgorithm):
        key = load(text)
    if not isinstance(key, kind):
        message = "is no Ed25519 key in a PEM file without a password: openssl genpkey -algorithm ed25519 makes one"
        raise InputError("bad-key", message, Place(path.name))
    return key
