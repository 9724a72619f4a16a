"""Batches with gradients of every client."""

from __future__ import annotations

from tests.scheduling.stories import run, versions


def test_every_client_is_in_the_batch() -> None:
    # S = 3 and n = 2: 2 / (1/1 + 1/1) = 1 < 3/2 when client 1 arrives for the first time, with 2 updates of client 0:
    # 2 / (1/2 + 1) = 4/3 < 3/2; with 3 of client 0, 2 / (1/3 + 1) = 3/2.
    book = run([1.0, 2.5], {"name": "malenia", "batch": 3}, rounds=2)
    assert versions(book)[0] == (30, [0, 0, 1, 0], [0, 0, 0, 0])
    # Client 1 worked on a stale update until 50; then 55 and 60 of client 0 do not suffice without it.
    time_s, clients, _ = versions(book)[1]
    assert time_s == 75
    assert clients == [0, 0, 0, 0, 1]


def test_a_batch_of_one_per_client() -> None:
    book = run([1.0, 1.5, 4.0], {"name": "malenia", "batch": 3}, rounds=1)
    assert versions(book) == [(40, [0, 1, 0, 1, 0, 2], [0] * 6)]
