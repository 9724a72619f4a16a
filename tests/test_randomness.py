"""Counter-based random numbers: a published generator, and forms that agree bit for bit."""

import random
import tempfile
import uuid
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kstest

from fedsim.randomness import GOLDEN, Draws, Purpose, Stream, mix64, watched

MASK = (1 << 64) - 1


def test_splitmix64() -> None:
    """The first outputs for seed 1234567 of the reference implementation (Vigna, splitmix64.c)."""
    published = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    assert [mix64((1234567 + (i + 1) * GOLDEN) & MASK) for i in range(3)] == published


def test_the_numbers_of_purposes_never_change() -> None:
    """They seed every stream. 16 and 17 belonged to earlier versions and are not used again."""
    names = "TRACE COMPUTE_PROFILE COMPUTE_JITTER AVAILABILITY NETWORK_PROFILE NETWORK_JITTER SELECTION FAILURE"
    names += " PARTITION INITIAL_MODEL DATA_ORDER GRADIENT_NOISE DATASET DROPOUT STRAGGLER - -"
    names += " ANALYSIS AUGMENTATION LIMITED_WORK METHOD"
    numbers = {purpose.name: purpose.value for purpose in Purpose}
    assert not {16, 17} & set(numbers.values())
    for number, name in enumerate(names.split(), 1):
        assert name == "-" or numbers[name] == number


@given(
    seed=st.integers(0, 2**40),
    purpose=st.sampled_from(Purpose),
    keys=st.lists(st.integers(0, 99), max_size=2),
    client=st.integers(0, 999),
    k=st.integers(0, 2**30),
)
def test_all_forms_agree(seed: int, purpose: Purpose, keys: list[int], client: int, k: int) -> None:
    stream = Stream(seed, purpose, *keys)
    assert stream.hashes([client], k)[0] == stream.hash(client, k)
    u = stream.uniform(client, k)
    assert 0 < u < 1
    assert stream.uniforms([client], [k])[0] == u
    assert stream.normals([client], k)[0] == pytest.approx(stream.normal(client, k), abs=1e-9)
    drawn = [Stream(seed, purpose, *keys).generator(client, k).integers(1 << 60) for _ in range(2)]
    assert drawn[0] == drawn[1]


@pytest.mark.parametrize("clients", [1, 7, 1000, 5000])
def test_draws_in_blocks_have_the_bits_of_single_draws(
    clients: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A limit so small that blocks are forgotten and made again.
    monkeypatch.setattr(Draws, "_MOST_KEPT", 3000)
    stream = Stream(3, Purpose.FAILURE, 1)
    draws = Draws(stream, clients)
    rng = np.random.default_rng(0)
    for client, k in zip(
        rng.integers(clients, size=2000).tolist(), rng.integers(5, size=2000).tolist(), strict=True
    ):
        assert draws.uniform(client, k) == stream.uniform(client, k)
    assert draws._blocks


def test_streams_differ_by_seed_purpose_keys_client_and_draw() -> None:
    numbers = [
        Stream(seed, purpose, *keys).hash(client, k)
        for seed in range(3)
        for purpose in (Purpose.TRACE, Purpose.SELECTION)
        for keys in ((), (0,), (1,), (0, 0), (0, 1))
        for client in range(5)
        for k in range(5)
    ]
    assert len(set(numbers)) == len(numbers)


def test_uniform_numbers_are_uniform_over_clients_and_over_draws() -> None:
    stream = Stream(0, Purpose.FAILURE)
    assert kstest(stream.uniforms(np.arange(20_000)), "uniform").pvalue > 0.001
    assert kstest(stream.uniforms(0, np.arange(20_000)), "uniform").pvalue > 0.001


def test_keys_of_many_streams_are_those_of_each() -> None:
    stream, sequences = Stream(3, Purpose.DATA_ORDER), np.array([0, 7, 2**40])
    keys = stream.keys(np.array([5, 6, 7]), sequences, 1)
    expected = [Stream(3, Purpose.DATA_ORDER, 5 + i, int(sequences[i]), 1).key for i in range(3)]
    assert keys.tolist() == expected
    assert stream.keys().tolist() == stream.key


def test_prepared_draws_are_those_of_the_stream() -> None:
    stream = Stream(4, Purpose.COMPUTE_JITTER)
    draws = Draws(stream, 50)
    for first in (0, 3):
        clients, k = np.arange(0, 50, 7), np.arange(8) + first
        draws.prepare(clients, k)
        for client in range(50):
            for number in range(12):
                assert draws.uniform(client, number) == stream.uniform(client, number)


@pytest.mark.parametrize(
    ("draw", "is_reported"),
    [
        ("np.random.default_rng()", True),
        ("np.random.Generator(np.random.PCG64())", True),
        ("random.Random()", True),
        ("random.SystemRandom().random()", True),
        ("np.random.default_rng(1)", False),
        ("np.random.RandomState(1)", False),
        ("random.Random('a')", False),
        ("np.random.normal() + random.random()", False),
        ("tempfile.mktemp()", False),
        ("uuid.uuid4()", False),
    ],
)
@pytest.mark.parametrize("folder", ["app", "lib/site-packages"])
def test_seeds_taken_from_the_system_are_reported(
    draw: str, is_reported: bool, folder: str, tmp_path: Path
) -> None:
    file = tmp_path / folder / "drawing.py"
    file.parent.mkdir(parents=True)
    file.write_text(draw)
    names = {"__name__": "app", "np": np, "random": random, "tempfile": tempfile, "uuid": uuid}
    code, seen = compile(draw, str(file), "exec"), list[str]()
    with watched(seen.append):
        exec(code, names)
        exec(code, names)
    exec(code, names)
    assert seen == ([f"{file}:1"] if is_reported and folder == "app" else [])
