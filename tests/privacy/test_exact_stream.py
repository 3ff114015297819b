"""Noise is a function of key, law, measurement, region and cell: whoever computes it, in whatever order."""

from __future__ import annotations

import copy
import hashlib
import hmac
import os
import pickle
import subprocess
import sys
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given
from hypothesis import strategies as st

from coco_opt.errors import ProblemError
from coco_opt.privacy import RunKey, SecureNoise
from coco_opt.privacy.keyed_stream import KeyedBits
from coco_opt.privacy.secure import CellStream, laplace_stream

SCALE = Fraction(10)
SECRET = bytes(range(32))


def opened(source: SecureNoise, measurement: str = "naive", region: str = "us", scale: Fraction = SCALE) -> CellStream:
    return source.stream(scale, measurement=measurement, region=region)


def digest(secret: bytes, measurement: str, region: str, n: int = 100) -> bytes:
    noise = laplace_stream(RunKey(secret), SCALE, measurement, region).draw(n)
    return hashlib.sha256(noise.tobytes()).digest()


def test_words_are_counter_mode_at_byte_two_width_cell() -> None:
    bits = KeyedBits(RunKey(SECRET), "law", "m", "r")
    labels = [b"coco-opt noise 1", b"words", b"law", b"m", b"r"]
    message = b"".join(len(label).to_bytes(8, "little") + label for label in labels)
    key = hmac.new(SECRET, message, hashlib.sha256).digest()
    block = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
    stream = b"".join(block.update(number.to_bytes(16, "big")) for number in range(60))
    for width in (1, 2, 3, 5):
        for start, cells in [(0, 50), (50, 3), (7, 40), (1, 1), (2, 0)]:
            expected = stream[2 * width * start : 2 * width * (start + cells)]
            words = bits.words(start, cells, width)
            assert words.shape == (cells, width)
            assert words.tobytes() == expected


@pytest.mark.parametrize("block", [2**32, 2**48, 2**56 - 1])
def test_the_counter_runs_on_beyond_32_bits(block: int) -> None:
    key = RunKey(SECRET).derive("coco-opt noise 1", "words", "law")
    cipher = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
    expected = b"".join(cipher.update(number.to_bytes(16, "big")) for number in range(block - 2, block + 3))
    words = KeyedBits(RunKey(SECRET), "law").words(8 * (block - 2) + 3, 37, 1)
    assert words.tobytes() == expected[6:]


def test_further_bits_are_the_cipher_at_the_counter_of_the_symbol() -> None:
    bits = KeyedBits(RunKey(SECRET), "law")
    labels = [b"coco-opt noise 1", b"more", b"law"]
    message = b"".join(len(label).to_bytes(8, "little") + label for label in labels)
    block = Cipher(algorithms.AES(hmac.new(SECRET, message, hashlib.sha256).digest()), modes.ECB()).encryptor()
    more = bits.more(np.array([3, 2**40]), 5, range(1, 3), part=7)
    for row, cell in enumerate((3, 2**40)):
        for column, symbol in enumerate((1, 2)):
            counter = cell.to_bytes(8, "little") + ((5 << 32) + (symbol << 24) + 7).to_bytes(8, "little")
            assert more[row, column].tobytes() == block.update(counter)


@given(st.lists(st.text(max_size=4), max_size=3), st.lists(st.text(max_size=4), max_size=3))
def test_different_labels_derive_different_keys(first: list[str], second: list[str]) -> None:
    key = RunKey(SECRET)
    assert (key.derive(*first) == key.derive(*second)) == (first == second)


def test_every_part_of_the_name_changes_the_noise() -> None:
    other = RunKey(SECRET[::-1])
    streams = [
        opened(SecureNoise(RunKey(SECRET))),
        opened(SecureNoise(other)),
        opened(SecureNoise(RunKey(SECRET)), measurement="rank"),
        opened(SecureNoise(RunKey(SECRET)), region="us/ny"),
        opened(SecureNoise(RunKey(SECRET)), measurement="naiveu", region="s"),
        opened(SecureNoise(RunKey(SECRET)), scale=SCALE + Fraction(1, 10**9)),
        SecureNoise(RunKey(SECRET)).gaussian_stream(SCALE**2, measurement="naive", region="us"),
        SecureNoise(RunKey(SECRET)).gaussian_stream(SCALE, measurement="naive", region="us"),
        SecureNoise(RunKey(SECRET)).gaussian_stream(SCALE**2, measurement="rank", region="us"),
        SecureNoise(RunKey(SECRET)).gaussian_stream(SCALE**2, measurement="naive", region="us/ny"),
        SecureNoise(other).gaussian_stream(SCALE**2, measurement="naive", region="us"),
    ]
    noises = np.array([stream.draw(4000) for stream in streams], dtype=float)
    correlation = np.corrcoef(noises) - np.eye(len(noises))
    assert np.abs(correlation).max() < 5 / np.sqrt(4000)


def test_positions_run_on_and_any_cell_can_be_asked_for() -> None:
    whole = opened(SecureNoise(RunKey(SECRET))).draw(1000)
    stream = opened(SecureNoise(RunKey(SECRET)))
    values = np.arange(300)
    np.testing.assert_array_equal(stream.add_to(values), values + whole[:300])
    np.testing.assert_array_equal(stream.draw(50, start=700), whole[700:750])
    np.testing.assert_array_equal(stream.add_to(values, start=0), values + whole[:300])
    np.testing.assert_array_equal(stream.draw(700), whole[300:])
    np.testing.assert_array_equal(values, np.arange(300))
    assert len(stream.draw(0)) == 0
    with pytest.raises(ProblemError, match="cell"):
        stream.draw(1, start=-1)


def test_values_keep_64_bits_and_other_strides() -> None:
    values = np.arange(2**61, 2**61 + 40, dtype=np.int64)[::2]
    noisy = opened(SecureNoise(RunKey(SECRET))).add_to(values)
    assert noisy.dtype == np.int64
    np.testing.assert_array_equal(noisy - values, opened(SecureNoise(RunKey(SECRET))).draw(20))


def test_two_runs_share_nothing() -> None:
    assert not np.array_equal(opened(SecureNoise()).draw(100), opened(SecureNoise()).draw(100))


def test_threads_compute_the_same_cells_and_share_out_the_next_ones() -> None:
    def pair(number: int) -> None:
        source = SecureNoise(RunKey(hashlib.sha256(number.to_bytes(4, "little")).digest()))
        shared = opened(source)
        tasks = [lambda: shared.draw(40), lambda: shared.draw(40), lambda: opened(source, region="us/ny").draw(80)]
        first, second, elsewhere = (future.result() for future in [pool.submit(task) for task in tasks])
        whole = laplace_stream(source.key, SCALE, "naive", "us").draw(80)
        assert {first.tobytes(), second.tobytes()} == {whole[:40].tobytes(), whole[40:].tobytes()}
        assert first.tobytes() != second.tobytes()
        assert elsewhere.tobytes() != whole.tobytes()

    with ThreadPoolExecutor(2) as pool:
        for number in range(1000):
            pair(number)


def test_threads_build_one_sampler_and_bulk_chunks_agree() -> None:
    stream = laplace_stream(RunKey(SECRET), Fraction(54_321), "m", "r")
    whole = stream.draw(80_000, start=0)
    with ThreadPoolExecutor(4) as pool:
        parts = list(pool.map(lambda start: stream.draw(5000, start=start), range(0, 80_000, 5000)))
    np.testing.assert_array_equal(np.concatenate(parts), whole)


def forked(tasks: list[Callable[[], bytes]]) -> list[bytes]:
    """Run each task in a forked worker of its own, all alive together, and return what they answer."""
    pipes = []
    for task in tasks:
        reader, writer = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of forking beside the test runner's threads
            child = os.fork()
        if child == 0:
            status = 1
            try:
                os.write(writer, task())
                status = 0
            finally:
                os._exit(status)
        os.close(writer)
        pipes.append((child, reader))
    answers = []
    for child, reader in pipes:
        answers.append(os.read(reader, 4096))
        os.close(reader)
        assert os.waitpid(child, 0)[1] == 0
    return answers


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_the_place_reached_is_not_cloned_by_a_fork() -> None:
    inherited = opened(SecureNoise(RunKey(SECRET)))
    whole = inherited.draw(30)

    def task() -> bytes:
        try:
            inherited.draw(10)
        except ProblemError as error:
            return str(error).encode() + inherited.draw(10, start=20).tobytes()
        return b"drawn"

    for answer in forked([task, task]):
        assert b"forked" in answer
        assert answer.endswith(whole[20:].tobytes())
    assert len(inherited.draw(10)) == 10


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.parametrize("pairs", [20, pytest.param(1000, marks=pytest.mark.slow)])
def test_forked_workers_repeat_only_what_the_function_says(pairs: int) -> None:
    seen: set[bytes] = set()
    source = SecureNoise(RunKey(SECRET))
    opened(source, region="warm").draw(10)  # everything is loaded and compiled before the fork
    for pair in range(pairs):
        inherited = opened(source, region=f"inherited/{pair}")
        inherited.draw(5)

        def task(worker: int, pair: int = pair, inherited: CellStream = inherited) -> bytes:
            own = opened(source, region=f"own/{pair}/{worker}").draw(40)
            fresh = opened(SecureNoise()).draw(40)
            return b"".join(
                hashlib.sha256(part.tobytes()).digest() for part in (own, fresh, inherited.draw(40, start=5))
            )

        first, second = forked([lambda: task(0), lambda: task(1)])
        assert len({first[:32], first[32:64], second[:32], second[32:64]}) == 4
        assert first[64:] == second[64:] == hashlib.sha256(inherited.draw(40).tobytes()).digest()
        for worker, answer in enumerate((first, second)):
            assert answer[:32] == digest(SECRET, "naive", f"own/{pair}/{worker}", 40)
        new = {first[:32], first[32:64], second[:32], second[32:64], first[64:]}
        assert not new & seen
        seen |= new
    assert len(seen) == 5 * pairs


SPAWNED = """
import hashlib, sys
from fractions import Fraction
from coco_opt.privacy import RunKey, SecureNoise
secret = sys.stdin.buffer.read()
for source in (SecureNoise(RunKey(secret)), SecureNoise()):
    for region in ("shared", sys.argv[1]):
        noise = source.stream(Fraction(10), measurement="naive", region=region).draw(100)
        print(hashlib.sha256(noise.tobytes()).hexdigest())
"""


@pytest.mark.parametrize("processes", [2, pytest.param(50, marks=pytest.mark.slow)])
def test_spawned_processes_given_the_key_repeat_only_what_the_function_says(processes: int) -> None:
    def spawn(number: int) -> list[bytes]:
        command = [sys.executable, "-c", SPAWNED, f"own/{number}"]
        answer = subprocess.run(command, input=SECRET, capture_output=True, check=True)
        return [bytes.fromhex(line) for line in answer.stdout.decode().split()]

    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(spawn, range(processes)))
    assert {shared for shared, *_ in answers} == {digest(SECRET, "naive", "shared")}
    for number, (_, own, *_rest) in enumerate(answers):
        assert own == digest(SECRET, "naive", f"own/{number}")
    different = {part for answer in answers for part in answer[1:]}
    assert len(different) == 3 * processes


def test_a_key_is_never_shown_pickled_or_copied() -> None:
    key = RunKey(SECRET)
    source = SecureNoise(key)
    assert repr(key) == "RunKey(hidden)"
    assert repr(source) == "SecureNoise(RunKey(hidden))"
    assert SECRET.hex() not in f"{key!r} {key} {source}"
    assert not hasattr(key, "__dict__")
    for holder in (key, source, opened(source)):
        for act in (pickle.dumps, copy.copy, copy.deepcopy):
            if holder is not key and act is copy.copy:
                continue  # a shallow copy of a holder holds the same key
            with pytest.raises((ProblemError, TypeError)):
                act(holder)
    with pytest.raises(ProblemError, match="pickled"):
        pickle.dumps(key)
    assert RunKey(key.to_bytes()).to_bytes() == SECRET


@pytest.mark.parametrize("size", [0, 16, 31, 33])
def test_keys_have_256_bits(size: int) -> None:
    with pytest.raises(ProblemError, match="32 bytes"):
        RunKey(bytes(size))


def test_generated_keys_differ() -> None:
    assert len({RunKey.generate().to_bytes() for _ in range(100)}) == 100


def test_after_the_key_is_erased_nothing_is_drawn() -> None:
    source = SecureNoise()
    stream = opened(source)
    stream.draw(10)
    buffer = source.key._bytes
    view = memoryview(buffer)
    assert any(view)
    view.release()
    source.key.erase()
    assert source.key.erased
    assert len(buffer) == 0
    assert repr(source) == "SecureNoise(RunKey(erased))"
    for act in (lambda: stream.draw(1), lambda: opened(source, region="x").draw(1), source.key.to_bytes):
        with pytest.raises(ProblemError, match="erased"):
            act()
    source.key.erase()


class ErasedMeanwhile(str):
    """A label whose encoding takes so long that another thread erases the key."""

    key: RunKey

    def encode(self, encoding: str = "utf-8", errors: str = "strict") -> bytes:
        self.key.erase()
        return super().encode(encoding, errors)


def test_a_key_erased_while_it_is_used_derives_nothing() -> None:
    label = ErasedMeanwhile("us")
    label.key = RunKey(SECRET)
    with pytest.raises(ProblemError, match="erased"):
        label.key.derive("words", label)


def test_the_secret_bytes_are_overwritten() -> None:
    key = RunKey(SECRET)

    class Watched(bytearray):
        def clear(self) -> None:
            wiped.append(bytes(self))
            super().clear()

    wiped: list[bytes] = []
    key._bytes = Watched(SECRET)
    key.erase()
    assert wiped == [bytes(32)]
