"""Every compression: its size, its bias, its error, and that rows do not depend on their group."""

import math
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fedsim.learning.compression import Compression, Draws
from fedsim.learning.compression.eden import normal_quantizer
from fedsim.learning.compression.sparse import _largest
from fedsim.parts.catalog import CATALOG
from fedsim.randomness import Purpose, Stream
from fedsim.tasks.layout import Layout

LAYOUT = Layout.of(
    [("weight", (30, 20)), ("bias", (30,)), ("kernel", (8, 4, 3, 3)), ("last", (82,))]
)
"""1,000 parameters: a matrix of 600, a kernel that is an 8 x 36 matrix, and vectors of 30 and 82."""

EVERY: list[tuple[str, dict[str, Any]]] = [
    ("none", {}),
    ("factor", {"factor": 0.25}),
    ("cast", {"dtype": "float16"}),
    ("cast", {"dtype": "bfloat16"}),
    ("qsgd", {"levels": 7, "bucket": 512}),
    ("qsgd", {"levels": 1, "bucket": 64, "norm": "max"}),
    ("eden", {"bits": 1}),
    ("eden", {"bits": 3}),
    ("topk", {"share": 0.05}),
    ("randk", {"share": 0.05}),
    ("randk", {"share": 0.05, "error_feedback": False}),
    ("signsgd", {}),
    ("signsgd", {"magnitude": 0.01, "error_feedback": False}),
    ("powersgd", {"rank": 2}),
    ("sparseloco", {"share": 0.05, "chunk": 300}),
]
"""Every compression, with parameters that leave something to compress of 1,000 entries."""


def made(name: str, **params: Any) -> Compression:
    kind = CATALOG.parts("compression")[name]
    part: Compression = kind(kind.Params(**params), LAYOUT)
    return part


def draws(count: int, first: int = 0, elements: int = 1000, kept: Tensor | None = None) -> Draws:
    """The random numbers of as many rows."""
    keys = Stream(1, Purpose.COMPRESSION).keys(np.arange(first, first + count)).view(np.int64)
    return Draws(torch.from_numpy(keys), elements, kept)


def rows(count: int, elements: int = 1000, dtype: torch.dtype = torch.float32) -> Tensor:
    values = np.random.default_rng(3).standard_t(3, (count, elements))
    return torch.from_numpy(values).to(dtype)


def test_every_compression_is_tested() -> None:
    assert {name for name, _ in EVERY} == set(CATALOG.parts("compression"))


@pytest.mark.parametrize(
    ("name", "params", "bits"),
    [
        ("none", {}, 32_000),
        ("factor", {"factor": 0.25}, 8_000),
        ("cast", {}, 16_000),
        # A sign and 3 bits per entry, and 2 norms.
        ("qsgd", {"levels": 7, "bucket": 512}, 4 * 1000 + 2 * 32),
        # A sign and a bit per entry, and 16 norms.
        ("qsgd", {"levels": 1, "bucket": 64}, 2 * 1000 + 16 * 32),
        # A block of 1,024 and a scale.
        ("eden", {"bits": 3}, 3 * 1024 + 32),
        # 50 numbers and positions of 10 bits.
        ("topk", {"share": 0.05}, 50 * 42),
        ("topk", {"share": 1e-9}, 42),
        ("topk", {"share": 1}, 32_000),
        ("randk", {"share": 0.05}, 50 * 42),
        ("randk", {"share": 0.05, "shared_seed": True}, 50 * 32),
        ("signsgd", {}, 1032),
        ("signsgd", {"magnitude": 0.1}, 1000),
        # (30 + 20) x 2 and (8 + 36) x 2 numbers, and 112 that are not part of a matrix.
        ("powersgd", {"rank": 2}, (100 + 88 + 112) * 32),
        # Of rank 7, the kernel is sent as it is.
        ("powersgd", {"rank": 7}, (350 + 288 + 112) * 32),
        # 3 chunks with 15 entries and one with 5, with positions of 9 bits, and 4 numbers.
        ("sparseloco", {"share": 0.05, "chunk": 300}, 50 * 11 + 4 * 32),
    ],
)
def test_sizes_are_those_of_the_formula(name: str, params: dict[str, Any], bits: int) -> None:
    assert made(name, **params).bits(1000, 32) == bits
    assert made("eden", bits=2).bits(4097, 32) == 2 * (2 * 4096 + 32), "blocks of 4,096"


@pytest.mark.parametrize(("name", "params"), EVERY)
def test_a_row_depends_on_itself_alone(name: str, params: dict[str, Any]) -> None:
    part, values = made(name, **params), rows(7)
    before = values.clone()
    together = part.compress(values, draws(7))
    assert torch.equal(values, before)
    assert together.shape == values.shape
    for index in range(7):
        alone = part.compress(values[index : index + 1], draws(1, index))
        assert torch.equal(alone[0], together[index])
    assert torch.equal(together, values) != part.lossy


@pytest.mark.parametrize(("name", "params"), EVERY)
def test_blocks_do_not_depend_on_others(name: str, params: dict[str, Any]) -> None:
    part, values = made(name, **params), rows(2, 10_000)
    numbers = draws(2, elements=10_000)
    width = math.lcm(part.block or 10_000, 64)
    pieces = [
        part.compress(values[:, at : at + width], numbers.piece(slice(2), at))
        for at in range(0, 10_000, width)
    ]
    # Products of matrices are rounded otherwise.
    torch.testing.assert_close(torch.cat(pieces, 1), part.compress(values, numbers))


@pytest.mark.parametrize(
    ("values", "count"),
    [
        (rows(4, 5000), 40),
        (rows(1, 5000), 600),
        (torch.ones(3, 5000), 40),
        (torch.zeros(3, 5000), 40),
        (torch.eye(3, 5000), 40),
        (torch.arange(5000.0).remainder(7).repeat(2, 1), 700),
    ],
)
def test_the_largest_entries_are_those_of_a_sort(values: Tensor, count: int) -> None:
    positions = _largest(values, count)
    assert all(len(row.unique()) == count for row in positions)
    chosen = values.abs().gather(1, positions).sort(1).values
    assert torch.equal(chosen, values.abs().sort(1).values[:, -count:])


@pytest.mark.parametrize(("name", "params"), EVERY)
def test_zeros_stay_small_and_nan_is_no_error(name: str, params: dict[str, Any]) -> None:
    part = made(name, **params)
    sent = part.compress(torch.zeros(2, 1000), draws(2))
    assert float(sent.abs().max()) <= (0.01 if name == "signsgd" else 0)
    # The signs alone are also those of a model that diverged.
    diverged = part.compress(torch.full((1, 1000), torch.nan), draws(1))
    assert bool(diverged.isnan().any()) or "magnitude" in params


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("none", {}),
        ("factor", {"factor": 0.1}),
        ("topk", {"share": 1}),
        ("randk", {"share": 1, "error_feedback": False}),
        ("powersgd", {"rank": 16}),
    ],
)
def test_the_full_rate_is_the_identity(name: str, params: dict[str, Any]) -> None:
    values = rows(3)
    assert torch.equal(made(name, **params).compress(values, draws(3)), values)


@pytest.mark.parametrize(
    ("name", "params", "variance"),
    [
        # Rounding between 0 and the norm of the bucket has the variance norm |v| - v^2.
        ("qsgd", {"levels": 1, "bucket": 1000}, lambda v: v.norm() * v.abs().sum() - v @ v),
        ("qsgd", {"levels": 7, "bucket": 100}, None),
        ("qsgd", {"levels": 7, "bucket": 300, "norm": "max"}, None),
        # d/k - 1 times the square.
        ("randk", {"share": 0.05, "error_feedback": False}, lambda v: 19 * v.square().sum()),
        ("eden", {"bits": 1}, lambda v: (math.pi / 2 - 1) * v.square().sum()),
        ("eden", {"bits": 4}, None),
    ],
)
def test_the_mean_over_draws_is_the_vector(
    name: str, params: dict[str, Any], variance: Any
) -> None:
    # Without entries that dominate, so that the bound below is more than three standard deviations away.
    count, vector = 1000, rows(1, dtype=torch.float64)[0].clamp(-3, 3)
    sent = made(name, **params).compress(vector.expand(count, -1), draws(count))
    errors = sent - vector
    spread = errors.square().sum(1).mean()
    # The mean of the errors has a squared norm of spread / count in expectation if there is no bias.
    assert float(errors.mean(0).square().sum()) < 1.2 * float(spread) / count
    if variance is not None:
        assert float(spread) == pytest.approx(float(variance(vector)), rel=0.03)


@pytest.mark.parametrize(
    ("bits", "distortion"), [(1, 1 - 2 / math.pi), (2, 0.11748), (3, 0.03454), (4, 0.009497)]
)
def test_the_quantizer_of_a_normal_number_is_that_of_max(bits: int, distortion: float) -> None:
    """Max, Quantizing for Minimum Distortion, IRE Trans. Inf. Theory 1960, table I."""
    values, bounds = normal_quantizer(bits)
    sample = np.linspace(0, 8, 200_001)
    weights = np.exp(-(sample**2) / 2)
    errors = (sample - values[np.searchsorted(bounds, sample)]) ** 2
    assert np.average(errors, weights=weights) == pytest.approx(distortion, rel=1e-3)


def test_powersgd_sends_a_matrix_of_low_rank_exactly() -> None:
    left, right = rows(1, 60)[0].double().view(30, 2), rows(1, 40)[0].double().view(2, 20)
    values = rows(2, dtype=torch.float64)
    values[0, :600] = (left @ right).flatten()
    sent = made("powersgd", rank=2).compress(values, draws(2))
    torch.testing.assert_close(sent[0, :600], values[0, :600])
    assert torch.linalg.matrix_rank(sent[1, :600].view(30, 20)) == 2
    # A projection: it contracts, and what is no matrix is untouched.
    assert float((values[1] - sent[1]).norm()) < float(values[1].norm())
    assert torch.equal(sent[:, 600:630], values[:, 600:630])
    assert torch.equal(sent[:, -82:], values[:, -82:])


def test_powersgd_with_warm_starts_finds_the_best_matrix_of_its_rank() -> None:
    """The error of repeated compressions of one matrix is that of the singular value decomposition."""
    part, values = made("powersgd", rank=2), rows(2, dtype=torch.float64)
    assert part.kept(1000) == 20 * 2 + 36 * 2
    kept = torch.zeros(2, part.kept(1000), dtype=torch.float64)
    errors = []
    for sequence in range(200):
        sent = part.compress(values, draws(2, 2 * sequence, kept=kept))
        errors.append(float((values - sent)[1, :600].square().sum()))
    best = torch.linalg.svdvals(values[1, :600].view(30, 20))[2:].square().sum()
    assert errors[0] > 1.05 * float(best)
    assert errors[-1] == pytest.approx(float(best), rel=1e-6)
    assert all(later <= earlier * (1 + 1e-12) for earlier, later in pairwise(errors))


@pytest.mark.parametrize(("dtype", "spacing"), [(torch.float32, 2**-23), (torch.float64, 2**-52)])
def test_centered_numbers_are_uniform_and_independent(dtype: torch.dtype, spacing: float) -> None:
    numbers = draws(2000, elements=3100)
    values = numbers.centered(3100, dtype)
    assert bool((values / spacing % 2 == 1).all())
    assert 0.4999 < float(values.abs().max()) < 0.5
    # Words of one table, and of the same and of other entries of both (1,024 words, of one or two numbers each).
    cells = ((values[:, [0, 1, 2, 2048, 2049, 3072]].double() + 0.5) * 16).long()
    for one, other in combinations(range(6), 2):
        counts = torch.bincount(cells[:, one] * 16 + cells[:, other], minlength=256)
        statistic = float((counts - 2000 / 256).square().sum() / (2000 / 256))
        assert statistic < 255 + 4 * math.sqrt(2 * 255)


def test_signs_are_fair_and_independent() -> None:
    """Those of one word, and of the same entries of a table (1,024 words of 64 signs)."""
    signs = draws(1000, elements=65_600).signs(65_600, torch.int8)[:, [0, 1, 64, 65_536]].float()
    assert float((signs.T @ signs / 1000 - torch.eye(4)).abs().max()) < 4 / math.sqrt(1000)
    assert float(signs.mean(0).abs().max()) < 4 / math.sqrt(1000)


def test_sparseloco_by_hand() -> None:
    """Two chunks of five; of each, the two largest are sent, with their mean and spread over all four."""
    values = torch.tensor([[9.0, 1, -2, -8, 0, 7, 0.5, 0, 6, 1]], dtype=torch.float64)
    sent = made("sparseloco", share=0.4, chunk=5).compress(values, draws(1))
    # The mean of 9, -8, 7, 6 is 3.5, their standard deviation 7.767, a unit 11.65: the codes are 2, 1, 2, 2.
    expected = torch.tensor([[22 / 3, 0, 0, -8, 0, 22 / 3, 0, 0, 22 / 3, 0]], dtype=torch.float64)
    torch.testing.assert_close(sent, expected)


def test_casts_round_to_nearest() -> None:
    values = torch.tensor([[1 + 2**-9, 1 + 2**-7, 70_000.0, -3.0]])
    for dtype, expected in (
        ("bfloat16", [1, 1 + 2**-7, 70_144, -3]),
        ("float16", [1 + 2**-9, 1 + 2**-7, math.inf, -3]),
    ):
        assert made("cast", dtype=dtype).compress(values, draws(1)).tolist() == [expected]
