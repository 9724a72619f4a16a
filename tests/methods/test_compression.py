"""Compressed vectors in a run: iterates by hand, errors that clients keep, references of downloads, bytes, bits."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

import fedsim
from benchmarks import compressed_methods
from fedsim.composition.build import build
from fedsim.errors import UserError
from fedsim.learning.compression import Draws
from fedsim.parts.catalog import CATALOG
from fedsim.randomness import Purpose, Stream
from fedsim.scenario.loading import load_scenario_dict
from fedsim.tasks.layout import Layout
from tests.composition.interrupting import interrupted_with_checkpoint
from tests.composition.worlds import digests, digits

Array = npt.NDArray[np.float64]
CENTERS = np.array([[4.0, -3.0, 1.0, 0.5], [-2.0, 1.0, 0.25, 3.5]])
START = np.array([1.0, 2.0, -1.0, 0.0])
SEED, RATE = 5, 0.25

LOSSY: dict[str, dict[str, Any]] = {
    "cast": {"dtype": "bfloat16"},
    "qsgd": {"levels": 3, "bucket": 2},
    "eden": {"bits": 2},
    "topk": {"share": 0.25},
    "randk": {"share": 0.5},
    "signsgd": {},
    "sparseloco": {"share": 0.5, "chunk": 2},
}
"""Compressions of four numbers; PowerSGD needs matrices."""


def scenario(up: Any = "none", down: Any = "none", **server: Any) -> dict[str, Any]:
    """Two clients with f_i(x) = |x - b_i|^2 / 2, whose one step of 1/4 is exact; three rounds."""
    return {
        "name": "wire",
        "seed": SEED,
        "task": {
            "name": "quadratic",
            "centers": CENTERS.tolist(),
            "curvatures": 1.0,
            "initial": START.tolist(),
        },
        "training": {"optimizer": {"lr": RATE}, "local_steps": 1, "dtype": "float64"},
        "devices": {
            "compute": {"name": "values", "step": "1s"},
            "network": {"down": "1Gbps", "up": "1Gbps"},
        },
        "server": {
            "method": {"name": "fedavg", "weights": "uniform"},
            "compression": {"up": up, "down": down},
            **server,
        },
        "stop": {"rounds": 3},
    }


def model_of(run: fedsim.Run) -> Array:
    (values,) = run.model().values()
    return np.asarray(values)


def final_model(folder: Path, content: dict[str, Any]) -> Array:
    return model_of(fedsim.run(content, folder))


def compressed(part: dict[str, Any], way: str, client: int, sequence: int, vector: Array) -> Array:
    """What the receiver decodes; each compression has its own tests."""
    name, params = part["name"], {key: value for key, value in part.items() if key != "name"}
    kind = CATALOG.parts("compression")[name]
    stream = Stream(SEED, Purpose.COMPRESSION, way == "down", 0)
    keys = torch.from_numpy(stream.keys([client], [sequence]).view(np.int64))
    compression = kind(kind.Params(**params), Layout.of([("x", (4,))]))
    return np.asarray(compression.compress(torch.from_numpy(vector)[None], Draws(keys, 4))[0])


@pytest.fixture(scope="module")
def exact(tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    """The final model without compression, at a rate of 0.3."""
    content = scenario()
    content["training"]["optimizer"]["lr"] = 0.3
    return final_model(tmp_path_factory.mktemp("exact") / "run", content).tolist()


PARTS = {name: {"name": name, **params} for name, params in LOSSY.items()}
FED_BACK = [
    {**part, "error_feedback": feedback}
    for name, part in PARTS.items()
    if "error_feedback" in CATALOG.parts("compression")[name].Params.model_fields
    for feedback in (True, False)
]
PLAIN = [part for name, part in PARTS.items() if name not in {one["name"] for one in FED_BACK}]


@pytest.mark.parametrize("part", PLAIN + FED_BACK, ids=str)
def test_uploads_by_hand(tmp_path: Path, part: dict[str, Any], exact: list[float]) -> None:
    decay = 0.95 if part["name"] == "sparseloco" else 1.0
    decay *= part.get("error_feedback", False)
    x, errors = START, np.zeros((2, 4))
    for round_ in range(3):
        change = np.zeros(4)
        for client in range(2):
            value = -0.3 * (x - CENTERS[client]) + decay * errors[client]
            sent = compressed(part, "up", client, round_, value)
            errors[client] = value - sent
            change += sent / 2
        x = x + change
    content = scenario(part)
    content["training"]["optimizer"]["lr"] = 0.3
    result = final_model(tmp_path / "run", content)
    np.testing.assert_allclose(result, x, rtol=1e-12)
    assert result.tolist() != exact


def test_topk_by_hand_to_the_last_number(tmp_path: Path) -> None:
    """One number of four, errors kept, all numbers dyadic: nothing of it uses the code under test."""
    # Round 1: changes (3/4, -5/4, 1/2, 1/8) and (-3/4, -1/4, 5/16, 7/8).
    x = START + np.array([0, -5 / 8, 0, 7 / 16])
    # Round 2: errors (3/4, 0, 1/2, 1/8) and (-3/4, -1/4, 5/16, 0), x = (1, 11/8, -1, 7/16).
    first = (CENTERS[0] - x) / 4 + [3 / 4, 0, 1 / 2, 1 / 8]
    second = (CENTERS[1] - x) / 4 + [-3 / 4, -1 / 4, 5 / 16, 0]
    assert (np.abs(first).argmax(), np.abs(second).argmax()) == (0, 0)
    x = x + np.array([(first[0] + second[0]) / 2, 0, 0, 0])
    # Round 3: what was left.
    first, second = first * [0, 1, 1, 1], second * [0, 1, 1, 1]
    first, second = first + (CENTERS[0] - x) / 4, second + (CENTERS[1] - x) / 4
    assert (np.abs(first).argmax(), np.abs(second).argmax()) == (1, 3)
    x = x + np.array([0, first[1] / 2, 0, second[3] / 2])
    result = final_model(tmp_path / "run", scenario({"name": "topk", "share": 0.25}))
    assert result.tolist() == x.tolist()


def test_powersgd_by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A matrix of 3 x 3 with rank 1: M is sent as p p^T M with p = M q / |M q|, and the next q is M^T p."""
    matrix = Layout.of([("x", (3, 3))])
    monkeypatch.setattr(Layout, "of", lambda *_: matrix)
    centers = np.random.default_rng(0).normal(size=(2, 3, 3))
    keys = Stream(SEED, Purpose.COMPRESSION, False, 0).keys([0, 1], [0, 0]).view(np.int64)
    uniform = Draws(torch.from_numpy(keys), 9).centered(3, torch.float64) + 0.5
    q = torch.special.ndtri(uniform).numpy()
    x, errors = np.ones((3, 3)), np.zeros((2, 3, 3))
    for _ in range(3):
        change = np.zeros((3, 3))
        for client in range(2):
            m = RATE * (centers[client] - x) + errors[client]
            p = m @ q[client] / np.linalg.norm(m @ q[client])
            q[client] = m.T @ p
            errors[client] = m - np.outer(p, q[client])
            change += np.outer(p, q[client]) / 2
        x = x + change
    content = scenario({"name": "powersgd", "rank": 1})
    content["task"] |= {"centers": centers.reshape(2, 9).tolist(), "initial": [1.0] * 9}
    np.testing.assert_allclose(final_model(tmp_path / "run", content), x, rtol=1e-9)


@pytest.mark.parametrize("name", [*LOSSY, "powersgd"])
def test_downloads_by_hand(tmp_path: Path, name: str) -> None:
    """The first is complete; others are differences to what the client received before."""
    part = {"name": name, **LOSSY.get(name, {})}
    x, references = START, np.zeros((2, 4))
    for round_ in range(3):
        change = np.zeros(4)
        for client in range(2):
            sent = compressed(part, "down", client, round_, x - references[client])
            references[client] = references[client] + sent if round_ else x
            change -= RATE * (references[client] - CENTERS[client]) / 2
        x = x + change
    result = final_model(tmp_path / "run", scenario("none", part))
    np.testing.assert_allclose(result, x, rtol=1e-12)


def test_a_client_without_a_used_update_downloads_everything(tmp_path: Path) -> None:
    """Client 1 is late three times, in time four times, late again, and in time; the third late one changes nothing."""
    content = scenario("none", {"name": "topk", "share": 0.25})
    slow = [(0, "4s"), ("9s", "10s")]
    content["devices"]["compute"] = {
        "name": "values",
        "step": ["1s", "1s"],
        "perturbations": [
            {"at": begins, "until": ends, "factor": 2, "clients": [1]} for begins, ends in slow
        ],
    }
    content["server"]["schedule"] = {"name": "sync", "deadline": "1.5s"}
    content["stop"] = {"rounds": 10}
    run = fedsim.run(content, tmp_path / "run")
    table = run.dispatches.sort_values("dispatch_id")
    of_one = table[table["client_id"] == 1]
    used = of_one["aggregated_version"].notna().to_numpy()
    assert not used[0]
    assert used[-1]
    assert not used[used.argmax() :].all()
    # 4 numbers of 64 bits, or one with its position in 2 bits.
    first = used.argmax()
    expected = [32.0] * (first + 1) + [8.25] * (len(used) - first - 1)
    np.testing.assert_allclose(of_one["bytes_down"], np.rint(expected))
    x, references, known = START, np.zeros((2, 4)), [False, False]
    for _, round_ in table[table["aggregated_version"].notna()].groupby("aggregated_version"):
        change = np.zeros(4)
        for client in round_["client_id"]:
            difference = x - references[client]
            sent = np.where(np.arange(4) == np.abs(difference).argmax(), difference, 0)
            references[client] = references[client] + sent if known[client] else x
            known[client] = True
            change -= RATE * (references[client] - CENTERS[client]) / len(round_)
        x = x + change
    np.testing.assert_allclose(model_of(run), x, rtol=1e-12)


def test_a_model_is_sent_as_its_difference(tmp_path: Path) -> None:
    """FedAsync sends models; the largest entry of the change is sent, not of the model."""
    content = scenario({"name": "topk", "share": 0.25, "error_feedback": False})
    content["server"] |= {"method": {"name": "fedasync", "alpha": 0.5}, "schedule": "async"}
    content["server"]["selection"] = {"name": "uniform", "cohort": 1}
    content["stop"] = {"rounds": 1}
    run = fedsim.run(content, tmp_path / "run")
    client = int(run.dispatches["client_id"].iloc[0])
    change = RATE * (CENTERS[client] - START)
    change[np.arange(4) != np.abs(change).argmax()] = 0
    np.testing.assert_allclose(model_of(run), START + change / 2, rtol=1e-12)


@pytest.mark.parametrize("method", ["scaffold", "fedasync", "fedvarp"])
def test_the_full_rate_gives_the_bits_of_no_compression(tmp_path: Path, method: str) -> None:
    all_of_it = {"name": "topk", "share": 1}
    schedule = {"name": "buffered", "buffer_size": 3} if method == "fedasync" else "sync"
    server = {"method": method, "selection": {"cohort": 4}, "schedule": schedule}
    results = [
        digests(fedsim.run(digits(server={**server, **more}), tmp_path / str(number)).path)
        for number, more in enumerate(({}, {"compression": {"up": all_of_it, "down": all_of_it}}))
    ]
    assert results[0] == results[1]


COMPRESSED = {"up": {"name": "topk", "share": 0.05}, "down": {"name": "qsgd", "levels": 15}}


ALL_LARGE = 64
"""Entries compressed at once, for which all errors are large enough to be changed in place."""


@pytest.mark.parametrize("up", ["eden", "randk", "powersgd", "sparseloco", "topk"])
def test_groups_threads_deferral_and_resuming_do_not_change_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, up: str
) -> None:
    """Nor does it whether errors are changed in place: in all but the last run, where memories lie on disk."""
    if up in ("sparseloco", "topk"):
        monkeypatch.setattr("fedsim.methods.compression._CPU_ENTRIES", ALL_LARGE)
    method = "scaffold" if up == "eden" else "fedavg"
    server = {**digits()["server"], "method": method, "compression": {**COMPRESSED, "up": up}}
    results = []
    for training in ({}, {"threads": 3}, {"verify": "eager", "memory": "disk"}):
        content = digits(server=server)
        content["training"] |= training
        results.append(digests(fedsim.run(content, tmp_path / str(len(results))).path))
    if up in ("topk", "eden"):
        interrupted_with_checkpoint(tmp_path / "resumed", digits(server=server), 2)
        results.append(digests(fedsim.resume(tmp_path / "resumed").path))
    assert results == results[:1] * len(results)


@pytest.mark.parametrize(
    ("compression", "down", "first", "up"),
    [
        ({}, 64, 64, 64),
        ({"up": {"factor": 0.5}, "down": {"factor": 0.25}}, 16, 16, 32),
        # 4 entries of 16 bits instead of 64, twice; the first download is complete.
        ({"up": "cast", "down": "cast"}, 16, 64, 16),
        ({"up": {"name": "cast", "vectors": ["delta"]}}, 64, 64, 40),
        ({"down": {"name": "cast", "vectors": ["control"]}}, 40, 64, 64),
    ],
)
def test_bytes_by_vector(
    tmp_path: Path, compression: dict[str, Any], down: int, first: int, up: int
) -> None:
    content = scenario(method="scaffold", compression=compression)
    table = fedsim.run(content, tmp_path / "run").dispatches
    assert set(table["bytes_up"]) == {up}
    assert set(table[table["sequence"] == 0]["bytes_down"]) == {first}
    assert set(table[table["sequence"] > 0]["bytes_down"]) == {down}


def test_a_comparison_counts_compressed_bytes_to_a_target(tmp_path: Path) -> None:
    """Both clients move 32 + 32 bytes in each of two rounds, or 32 + 8.25 (one number and two bits) in three."""
    runs = [
        fedsim.run(scenario(up), tmp_path / up["name"])
        for up in ({"name": "factor"}, {"name": "topk", "share": 0.25})
    ]
    targets = fedsim.compare(runs, targets=["loss=10.5"]).targets
    assert targets["round"].tolist() == [2, 3]
    assert targets["bytes"].tolist() == [2 * 2 * 64, 3 * 2 * 40]


def test_vectors_that_are_not_named_stay_exact(tmp_path: Path) -> None:
    """With no name, results are those without compression."""
    part = {"name": "signsgd", "vectors": []}
    assert (
        final_model(tmp_path / "none", scenario(part, part)).tolist()
        == final_model(tmp_path / "exact", scenario()).tolist()
    )


MEMORIES: list[tuple[str, dict[str, Any]]] = [
    ("scaffold", {}),
    ("scaffold", {"uplink": 1}),
    ("scaffold_p", {}),
    ("scaffold_p", {"personal": "none", "uplink": 1}),
    ("feddyn", {}),
    ("fedsum", {}),
    ("fedsum_b", {}),
    ("fedsum_cr", {}),
]
"""Methods whose server has the sum, or the mean, of what its three clients remember."""


@pytest.mark.parametrize("number", range(len(MEMORIES)))
def test_lossy_uploads_of_memories_reach_the_same_point(
    monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """With two compressions each; all are in the table of benchmarks/README.md."""
    method, options = MEMORIES[number]
    monkeypatch.setattr(compressed_methods, "RATE", 0.3)
    exact = compressed_methods.run(method, rounds=100, **options)
    for up in (("cast", "eden"), ("qsgd", "randk"))[number % 2]:
        model = compressed_methods.run(method, up, rounds=100, **options)
        torch.testing.assert_close(model, exact, rtol=0, atol=1e-10)


UNDECLARED = """
from fedsim.methods.base import LocalUpdate, Memory
from fedsim.methods.fedavg import FedAvg


class Mine(FedAvg):
    'FedAvg whose clients remember their last change.'

    def memories(self):
        return {"own": Memory(self.context.layout.size)}

    def local_update(self, cohort, trainer):
        update = super().local_update(cohort, trainer)
        return LocalUpdate(update.vectors, update.loss, {"own": update.vectors["delta"]})
"""


def test_a_memory_that_is_not_declared_is_refused(tmp_path: Path) -> None:
    """Its clients would keep another number than the server."""
    (tmp_path / "mine.py").write_text(UNDECLARED)
    method = f"{tmp_path / 'mine.py'}:Mine"
    assert np.isfinite(final_model(tmp_path / "run", scenario(method=method))).all()
    with pytest.raises(UserError, match="what clients keep as 'own'") as caught:
        build(load_scenario_dict(scenario("qsgd", method=method), tmp_path))
    assert "server.compression.up" in str(caught.value)
    assert "follows=" in caught.value.hint


NORMALIZED = """
from torch import nn


def model(input_shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, classes))
"""


@pytest.mark.parametrize("method", ["fedavg", {"name": "scaffold", "uplink": 1}])
def test_buffers_are_not_compressed(tmp_path: Path, method: Any) -> None:
    """Running statistics after one round are those without compression, and variances stay positive; bytes agree."""
    (tmp_path / "mine.py").write_text(NORMALIZED)
    runs = []
    compressions = {"up": "signsgd", "down": {"name": "qsgd", "vectors": ["model"]}}
    for compression, rounds in (({}, 1), (compressions, 1), (compressions, 6)):
        content = digits(stop={"rounds": rounds})
        content["task"]["model"] = {"name": f"{tmp_path / 'mine.py'}:model"}
        content["server"] |= {"method": method, "compression": compression}
        runs.append(fedsim.run(content, tmp_path / str(len(runs))))
    exact, lossy, later = (run.model() for run in runs)
    statistics = [name for name in exact if "running" in name]
    assert len(statistics) == 2
    for name in statistics:
        np.testing.assert_allclose(lossy[name], exact[name], rtol=1e-5, atol=1e-6)
        assert "mean" in name or (np.asarray(later[name]) > 0).all()
    # A sign per parameter, their magnitude, and 16 numbers of 32 bits.
    parameters = 64 * 8 + 8 + 2 * 8 + 8 * 10 + 10
    assert max(runs[1].dispatches["bytes_up"]) == round((parameters + 32 + 16 * 32) / 8)
    content["server"] |= {"method": FRAGMENTS, "compression": {"up": "qsgd"}}
    with pytest.raises(UserError, match="fragments contain running statistics"):
        build(load_scenario_dict(content, tmp_path))


FRAGMENTS = {"name": "streaming_diloco", "fragments": 2, "overlap": 0}


@pytest.mark.parametrize(
    ("method", "compression", "where", "message"),
    [
        *(
            (
                "fedavg",
                {way: {"name": "topk", "vectors": ["control"]}},
                f"server.compression.{way}.vectors",
                f"(?s)FedAvg sends no vector 'control'.*it sends '?{sends}",
            )
            for way, sends in (("up", "delta"), ("down", "model"))
        ),
    ],
)
def test_what_cannot_be_compressed_is_refused(
    tmp_path: Path, method: Any, compression: dict[str, Any], where: str, message: str
) -> None:
    with pytest.raises(UserError, match=message) as caught:
        build(load_scenario_dict(scenario(method=method, compression=compression), tmp_path))
    assert where in str(caught.value)


def test_a_prologue_is_compressed(tmp_path: Path) -> None:
    content = scenario({"name": "topk", "share": 0.25}, "cast", method="mifa")
    run = fedsim.run(content, tmp_path / "run")
    # One number with a position of 2 bits.
    assert set(run.dispatches["bytes_up"]) == {8}
    assert set(run.dispatches[run.dispatches["sequence"] == 0]["bytes_down"]) == {32}


USERS = """
import torch
from fedsim.learning.compression import Compression


class Halves(Compression):
    '''Every entry becomes a half of itself.'''

    def bits(self, elements, entry_bits):
        return elements * 10

    def compress(self, rows, draws):
        return rows / 2
"""


def test_a_users_file(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(USERS)
    content = scenario(f"{tmp_path / 'mine.py'}:Halves")
    x = START
    for _ in range(3):
        x = x - RATE / 2 * (x - CENTERS.mean(0))
    np.testing.assert_allclose(final_model(tmp_path / "run", content), x, rtol=1e-12)
