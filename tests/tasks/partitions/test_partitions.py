"""All partitions: what they have in common, and what each does."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsim.errors import UserError
from fedsim.parts.catalog import CATALOG
from fedsim.randomness import Purpose, Stream
from fedsim.tasks.dataset import Dataset
from fedsim.tasks.partition import Partition, apportion, partition_table
from tests.tasks.toys import own_test_rows, split, toy_dataset, train_rows

COUNTED: dict[str, dict[str, Any]] = {
    "iid": {},
    "dirichlet": {"alpha": 0.3},
    "dual_dirichlet": {},
    "class_partition": {"classes_min": 3, "classes_max": 5},
    "shards": {},
    "quantity_skew": {},
    "majority_label": {},
}


def test_every_partition_is_tested_here() -> None:
    assert set(CATALOG.parts("partition")) == {*COUNTED, "natural", "file", "flwr"}


@pytest.mark.parametrize("name", COUNTED)
def test_every_sample_is_dealt_once_and_nobody_goes_without(name: str) -> None:
    dataset = toy_dataset(samples=997)
    partition = split(dataset, name, clients=10, **COUNTED[name])
    assert np.array_equal(rows_of(partition), np.arange(997))
    assert partition.clients == 10
    assert partition.samples.min() >= 1
    assert partition.train_offsets.dtype == partition.train_rows.dtype == np.int64
    for client in range(10):
        assert (np.diff(train_rows(partition, client)) > 0).all(), "rows ascend"
    assert partition_table(dataset, partition).sum() == 997
    assert own_test_rows(partition, 0).size == 0
    second, other = (split(dataset, name, seed, clients=10, **COUNTED[name]) for seed in (0, 1))
    assert np.array_equal(partition.train_offsets, second.train_offsets)
    assert np.array_equal(partition.train_rows, second.train_rows)
    assert not np.array_equal(partition.train_rows, other.train_rows)


def test_min_samples_is_kept_and_impossible_ones_are_refused() -> None:
    dataset = toy_dataset(samples=600)
    for name in ("dirichlet", "quantity_skew"):
        params = {"clients": 50, "alpha": 0.05, "min_samples": 9}
        assert split(dataset, name, **params).samples.min() >= 9
        with pytest.raises(
            UserError, match=r"50 clients cannot share 600 .* with at least 13 each"
        ):
            split(dataset, name, **{**params, "min_samples": 13})
    with pytest.raises(UserError, match="100 draws gave no partition"):
        split(dataset, "dual_dirichlet", clients=50, min_samples=11)


@pytest.mark.parametrize(
    ("name", "params", "message"),
    [
        *((name, {"clients": 601}, "601 clients cannot share 600 .* of toy") for name in COUNTED),
        ("shards", {"clients": 4}, "cannot hold the 10 classes"),
        ("shards", {"clients": 61, "classes_per_client": 10}, "need 61 samples of class 0"),
        ("majority_label", {"clients": 9}, "cannot each own one of the 10 labels"),
        ("natural", {}, "toy has no natural groups"),
    ],
)
def test_what_cannot_be_dealt_is_refused(name: str, params: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        split(toy_dataset(), name, **COUNTED.get(name, {}) | params)


@pytest.mark.parametrize("name", ["iid", "dirichlet", "quantity_skew", "majority_label", "shards"])
def test_ten_thousand_clients_are_dealt(name: str) -> None:
    dataset = toy_dataset(samples=50_000, shape=(1,))
    partition = split(dataset, name, clients=10_000, **COUNTED[name])
    assert partition.samples.min() >= 1
    assert partition.samples.sum() == 50_000


@given(
    samples=st.integers(20, 300),
    clients=st.integers(1, 20),
    alpha=st.sampled_from([1e-3, 0.05, 1.0, 1e5]),
    rule=st.sampled_from(["client", "class", "balanced"]),
    seed=st.integers(0, 50),
)
def test_dirichlet_deals_everything_at_any_concentration(
    samples: int, clients: int, alpha: float, rule: str, seed: int
) -> None:
    dataset = toy_dataset(samples=samples, classes=7)
    partition = split(dataset, "dirichlet", seed, clients=clients, alpha=alpha, rule=rule)
    assert np.array_equal(rows_of(partition), np.arange(samples))
    assert partition.samples.min() >= 1


@pytest.mark.parametrize("rule", ["client", "class", "balanced"])
def test_dirichlet_concentration_decides_the_skew(rule: str) -> None:
    dataset = toy_dataset(samples=5000)

    def largest_share(alpha: float) -> float:
        table = partition_table(
            dataset, split(dataset, "dirichlet", clients=20, alpha=alpha, rule=rule)
        )
        return float((table.max(axis=1) / table.sum(axis=1)).mean())

    # A flat mix of ten labels has 0.1, and drawing adds a little; the largest of ten Dirichlet(0.1)
    # parts is 0.66 on average.
    assert largest_share(1e4) < 0.16
    assert largest_share(0.1) > 0.45


def test_equal_and_unequal_sizes() -> None:
    dataset = toy_dataset(samples=1003)
    for name, params, equal in (
        ("iid", {}, True),
        ("dirichlet", {"alpha": 0.1, "rule": "balanced"}, True),
        ("dirichlet", {"alpha": 0.1, "rule": "client"}, False),
    ):
        sizes = split(dataset, name, clients=20, **params).samples
        assert (sizes.max() - sizes.min() <= 1) == equal


def test_dual_dirichlet_follows_its_formula(monkeypatch: pytest.MonkeyPatch) -> None:
    # FedCompass card, hand case: u = (3/4, 1/4), V = ((.8, .2), (.2, .8)), 1000 samples a class.
    drawn = iter([np.array([0.75, 0.25]), np.array([[0.8, 0.2], [0.2, 0.8]])])
    concentrations = []

    class Rigged:
        def dirichlet(self, concentration: np.ndarray, size: int | None = None) -> np.ndarray:
            concentrations.append(concentration.tolist())
            return next(drawn)

        def permutation(self, rows: np.ndarray) -> np.ndarray:
            return rows

    monkeypatch.setattr(Stream, "generator", lambda self, client=0, k=0: Rigged())
    dataset = toy_dataset(samples=2000, classes=2)
    table = partition_table(dataset, split(dataset, "dual_dirichlet", clients=2))
    assert table.tolist() == [[923, 429], [77, 571]]
    assert concentrations == [[1.0, 1.0], [0.25, 0.25]], "alpha1 = N, alpha2 = 0.5 over the classes"


def test_quantity_skew_keeps_the_mix_and_skews_the_sizes() -> None:
    dataset = toy_dataset(samples=20000)
    partition = split(dataset, "quantity_skew", clients=10, alpha=0.5)
    table = partition_table(dataset, partition)
    large = table[table.sum(axis=1) > 2000]
    assert len(large)
    assert (large / large.sum(axis=1, keepdims=True)).max() < 0.14
    # Dirichlet(1/2) over ten: standard deviation of a share is sqrt(0.1 * 0.9 / 6) = 0.122.
    assert 0.05 < (partition.samples / 20000).std() < 0.25
    even = split(dataset, "quantity_skew", clients=10, alpha=1e6).samples
    assert even.max() - even.min() < 30


def test_a_tiny_alpha_gives_one_client_nearly_everything() -> None:
    """NumPy's mean of the largest of five shares is 0.997 at 1e-3; gamma draws would underflow to equal shares."""
    dataset = toy_dataset(samples=1000)
    for seed in range(4):
        for alpha in (1e-3, 1e-5):
            sizes = split(dataset, "quantity_skew", clients=5, alpha=alpha, seed=seed).samples
            assert sizes.max() > 900


def test_shards_are_those_of_lg_fedavg() -> None:
    # FedLGA card 5.4: N = 50, P = 2 on 10 classes: 10 shards of each class.
    dataset = toy_dataset(samples=6030)
    partition = split(dataset, "shards", clients=50)
    table = partition_table(dataset, partition)
    sizes = table[table > 0]
    # 603 samples a class in 10 shards: 3 of 61 and 7 of 60; a device may hold two shards of one class.
    assert set(sizes) <= {60, 61, 120, 121, 122}
    assert (sizes.clip(max=61) >= 60).all()
    assert table.sum(axis=0).tolist() == [603] * 10
    assert (labels_per_client(dataset, partition) <= 2).all()
    shards = np.rint(table / 60).astype(int)
    assert (shards.sum(axis=1) == 2).all()
    assert (shards.sum(axis=0) == 10).all()


def test_shards_that_do_not_divide_evenly_go_to_the_largest_classes() -> None:
    labels = np.repeat([0, 1, 2], [100, 300, 200]).astype(np.int64)
    dataset = toy_dataset(classes=3, labels=labels)
    table = partition_table(dataset, split(dataset, "shards", clients=5, classes_per_client=1))
    assert sorted((table > 0).sum(axis=0)) == [1, 2, 2]
    assert (table > 0).sum(axis=0)[0] == 1, "the smallest class has one shard"


def test_majority_label_without_similarity_is_one_label_in_equal_parts() -> None:
    dataset = toy_dataset(samples=2400)
    partition = split(dataset, "majority_label", clients=24, similarity=0.0)
    table = partition_table(dataset, partition)
    owned = np.arange(24) * 10 // 24
    assert np.array_equal(table.argmax(axis=1), owned)
    assert (labels_per_client(dataset, partition) == 1).all()
    for label in range(10):
        sizes = table[owned == label, label]
        assert sizes.sum() == 240
        assert sizes.max() - sizes.min() <= 1


def test_majority_label_mixes_as_the_paper_does() -> None:
    # Card: N = 250, similarity 5%: about 4.5% of a client's samples are of other labels.
    dataset = toy_dataset(samples=60000, shape=(1,))
    table = partition_table(dataset, split(dataset, "majority_label", clients=250))
    assert 1 - table.max(axis=1).sum() / table.sum() == pytest.approx(0.045, abs=0.004)
    assert np.array_equal(table.argmax(axis=1), np.arange(250) // 25)
    assert table.sum(axis=1).min() >= 225


def test_majority_label_deals_to_the_smallest_owner() -> None:
    # By hand, two clients own label 0, one owns label 1, nothing is random.
    labels = np.array([0, 0, 1, 0, 0], dtype=np.int64)
    partition = split(
        toy_dataset(classes=2, labels=labels), "majority_label", clients=3, similarity=0.0
    )
    assert [train_rows(partition, client).tolist() for client in range(3)] == [[0, 3], [1, 4], [2]]


@pytest.mark.parametrize(("clients", "low", "high"), [(5, 5, 6), (10, 3, 5), (20, 3, 5), (3, 6, 8)])
def test_class_partition_uses_the_papers_numbers_of_classes(
    clients: int, low: int, high: int
) -> None:
    dataset = toy_dataset(samples=5000)
    held = np.concatenate(
        [
            labels_per_client(dataset, split(dataset, "class_partition", seed, clients=clients))
            for seed in range(8)
        ]
    )
    assert held.min() == low
    assert held.max() == high


def test_class_partition_shares_follow_a_normal_distribution() -> None:
    dataset = toy_dataset(samples=20000, classes=1)
    partition = split(dataset, "class_partition", clients=400, classes_min=1, classes_max=1)
    relative = partition.samples / 50
    assert relative.std() == pytest.approx(0.3, abs=0.04)


def test_class_partition_refuses_what_cannot_be() -> None:
    for params, message in (
        ({"classes_min": 1, "classes_max": 2}, "do not fit the 10 classes"),
        ({"classes_min": 11, "classes_max": 12}, "do not fit the 10 classes"),
        ({"classes_min": 3, "classes_max": 2}, "above classes_max"),
        ({"classes_min": 3}, "both classes_min and classes_max"),
    ):
        with pytest.raises((UserError, ValueError), match=message):
            split(toy_dataset(), "class_partition", clients=2, **params)


def test_natural_clients_are_the_groups() -> None:
    dataset = toy_dataset(groups=7)
    partition = split(dataset, "natural")
    assert partition.client_names == dataset.group_names
    assert dataset.train_groups is not None
    for client in range(7):
        assert (dataset.train_groups[train_rows(partition, client)] == client).all()
    assert len(partition.train_rows) == 600


def test_natural_can_take_some_groups_of_enough_samples() -> None:
    dataset = toy_dataset(samples=100, groups=20)
    counts = np.bincount(dataset.train_groups, minlength=20)
    least = int(np.median(counts))
    partition = split(dataset, "natural", clients=4, min_samples=least)
    assert partition.clients == 4
    assert (partition.samples >= least).all()
    assert partition.samples.tolist() == [
        counts[dataset.group_names.index(name)] for name in partition.client_names
    ]
    assert split(dataset, "natural", 1, clients=4).client_names != partition.client_names
    with pytest.raises(UserError, match="groups of 1 or more training samples, not 21"):
        split(dataset, "natural", clients=21)
    with pytest.raises(UserError, match="has 0 groups of 1,000 or more"):
        split(dataset, "natural", min_samples=1000)


def test_split_sets_a_share_aside() -> None:
    dataset = toy_dataset(samples=600)
    whole = split(dataset, "dirichlet", clients=30, alpha=0.2)
    partition = split(dataset, "dirichlet", clients=30, alpha=0.2, test="split", test_share=0.25)
    assert partition.test_source == "train"
    for client in range(30):
        train, test = train_rows(partition, client), own_test_rows(partition, client)
        assert sorted([*train, *test]) == train_rows(whole, client).tolist()
        size = len(train_rows(whole, client))
        assert len(test) == (min(max(round(0.25 * size), 1), size - 1) if size > 1 else 0)
        assert len(train) >= 1


def test_same_distribution_deals_the_shared_test_set_by_label() -> None:
    dataset = toy_dataset(samples=4000, tests=1000)
    partition = split(dataset, "shards", clients=20, test="same_distribution")
    assert partition.test_source == "test"
    assert partition.test_rows is not None
    assert np.array_equal(np.sort(partition.test_rows), np.arange(1000)), "each used once"
    train = partition_table(dataset, partition)
    for client in range(20):
        test = np.bincount(dataset.test_y[own_test_rows(partition, client)], minlength=10)
        assert np.abs(test - train[client] / 4).max() <= 1


def test_same_distribution_follows_natural_groups() -> None:
    dataset = toy_dataset(groups=9)
    partition = split(dataset, "natural", clients=5, test="same_distribution")
    assert dataset.test_groups is not None
    for client, name in enumerate(partition.client_names):
        group = dataset.group_names.index(name)
        assert (
            own_test_rows(partition, client).tolist()
            == np.flatnonzero(dataset.test_groups == group).tolist()
        )


@given(st.integers(0, 1000), st.lists(st.floats(1e-300, 1e3), min_size=1, max_size=30))
def test_apportioned_numbers_add_up_and_are_within_one_of_their_share(
    total: int, weights: list[float]
) -> None:
    counts = apportion(total, weights)
    assert counts.sum() == total
    exact = total * np.array(weights) / np.sum(weights)
    assert (np.abs(counts - exact) < 1 + 1e-6).all()


def test_largest_remainders_by_hand() -> None:
    assert apportion(10, [1, 1, 1]).tolist() == [4, 3, 3]
    assert apportion(7, [0.5, 0.2, 0.3]).tolist() == [4, 1, 2]


def rows_of(partition: Partition) -> np.ndarray:
    return np.sort(partition.train_rows)


def labels_per_client(dataset: Dataset, partition: Partition) -> np.ndarray:
    return (partition_table(dataset, partition) > 0).sum(axis=1)


def from_file(tmp_path: Path, text: str, dataset: Dataset | None = None) -> Partition:
    (tmp_path / "dealt.csv").write_text(text)
    component = CATALOG.parts("partition")["file"]
    partitioner = component(component.Params(path=Path("dealt.csv")))
    return partitioner.split(dataset or toy_dataset(), Stream(0, Purpose.PARTITION), tmp_path)


def test_a_file_deals_what_it_says(tmp_path: Path) -> None:
    import pandas as pd

    path = tmp_path / "dealt.parquet"
    pd.DataFrame({"sample": [5, 9, 2], "client": [1, 0, 1]}).to_parquet(path)
    for partition in (
        split(toy_dataset(), "file", path=path),
        from_file(tmp_path, "sample,client\n5,1\n9,0\n2,1\n"),
    ):
        assert [train_rows(partition, client).tolist() for client in (0, 1)] == [[9], [2, 5]]


@pytest.mark.parametrize("marks", [("0", "1"), ("False", "True")])
def test_a_file_says_which_samples_clients_test_on(tmp_path: Path, marks: tuple[str, str]) -> None:
    rows = [(5, 1, 0), (9, 0, 1), (2, 1, 1), (7, 0, 0), (3, 1, 0)]
    text = "".join(f"{sample},{client},{marks[test]}\n" for sample, client, test in rows)
    partition = from_file(tmp_path, f"sample,client,is_test\n{text}")
    assert [train_rows(partition, client).tolist() for client in (0, 1)] == [[7], [3, 5]]
    assert [own_test_rows(partition, client).tolist() for client in (0, 1)] == [[9], [2]]
    assert partition.test_source == "train"
    with pytest.raises(UserError, match="the parameter test"):
        split(toy_dataset(), "file", path=tmp_path / "dealt.csv", test="split")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sample,client,isTest\n1,0,1\n", "column 'isTest' is not 'is_test'"),
        ("sample,client,split\n1,0,train\n", "column 'split' is not 'is_test'"),
        ("sample,client,client\n1,0,1\n", "dealt.csv:1: has the column 'client' twice"),
        ("sample,client\n1,0\n1,1\n", "dealt.csv:3: has the sample 1 "),
        ("sample,client\n600,0\n", "dealt.csv:2: has the sample 600 .*\n.* 0 to 599"),
        ("sample,client\n1,0\n\n-1,0\n", "dealt.csv:4: has the sample -1 "),
        ("sample,client\n1,0\n2,2\n", "client 1 has no training samples"),
        ("sample,client\n1,0\n2,1000000000000\n", "client 1 has no training samples"),
        (f"sample,client\n1,0\n2,{10**19}\n", "client 1 has no training samples"),
        (f"sample,client\n{10**19},0\n", f"dealt.csv:2: has the sample {10**19} "),
        ("sample,client,is_test\n1,0,0\n2,1,1\n", "client 1 has no training samples"),
        ("sample,client,is_test\n1,0,0\n2,0,2\n", "'is_test' contains values other"),
        ("sample,client\n2,0\n1,-1\n", "dealt.csv:3: .* of client -1"),
        ("sample,client\n2,0\n1,\n", "dealt.csv:3: client is empty"),
        ("row,client\n1,0\n", "no column 'sample' of whole numbers"),
        ("sample,client\n1,x\n", "no column 'client' of whole numbers"),
        ("sample,client\n", "it has no rows"),
        ("", "cannot be read"),
    ],
)
def test_a_wrong_file_is_a_clear_error(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        from_file(tmp_path, text)


def flwr(dataset: Dataset, partitioner: str, **arguments: Any) -> Partition:
    pytest.importorskip("flwr_datasets.partitioner", reason="needs the extra flower")
    return split(dataset, "flwr", partitioner=partitioner, arguments=arguments)


@pytest.mark.parametrize(
    ("partitioner", "arguments"),
    [
        ("IidPartitioner", {}),
        ("DirichletPartitioner", {"alpha": 0.5}),
        ("PathologicalPartitioner", {"num_classes_per_partition": 3}),
    ],
)
def test_every_sample_belongs_to_one_client(partitioner: str, arguments: dict[str, Any]) -> None:
    dataset = toy_dataset()
    first, second = (flwr(dataset, partitioner, num_partitions=7, **arguments) for _ in range(2))
    assert first.clients == 7
    assert np.array_equal(rows_of(first), np.arange(600))
    assert np.array_equal(first.train_rows, second.train_rows)


def test_a_natural_partition_has_names() -> None:
    dataset = toy_dataset(groups=5)
    partition = flwr(dataset, "NaturalIdPartitioner", partition_by="group")
    own = split(dataset, "natural")
    sizes = dict(zip(own.client_names, own.samples, strict=True))
    assert dict(zip(partition.client_names, partition.samples, strict=True)) == sizes


@pytest.mark.parametrize(
    ("partitioner", "message", "hint"),
    [
        ("DirichletPartitoner", "no partitioner", "DirichletPartitioner"),
        ("DirichletPartitioner", "alpha", "num_partitions"),
    ],
)
def test_mistakes_name_partitioners_and_arguments(
    partitioner: str, message: str, hint: str
) -> None:
    with pytest.raises(UserError, match=message) as refusal:
        flwr(toy_dataset(), partitioner, num_partitions=3)
    assert hint in str(refusal.value.hint)
