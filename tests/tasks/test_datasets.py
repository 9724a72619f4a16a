"""Data sets from files: what is read, and what is said of files that are absent or damaged."""

from __future__ import annotations

import gzip
import io
import json
import lzma
import pickle
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from functools import partial
from hashlib import sha256
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsim.errors import UserError
from fedsim.tasks import datasets
from fedsim.tasks.dataset import Dataset
from fedsim.tasks.datasets.mnist import Mnist
from fedsim.tasks.datasets.shakespeare import _speeches
from fedsim.tasks.reading.arrays import first_not_finite
from fedsim.tasks.reading.cifar import CifarArchive
from fedsim.tasks.reading.files import Remote, download
from fedsim.tasks.reading.images import MNIST_FILES
from fedsim.tasks.reading.splitting import held_out
from tests.tasks.toys import load


@pytest.fixture(autouse=True)
def nothing_at_hand(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No data folder, an empty download cache."""
    monkeypatch.delenv("FEDSIM_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_every_data_set_can_be_named() -> None:
    assert set(datasets.registry()) == {
        "cifar10",
        "cifar100",
        "common_work",
        "digits",
        "emnist",
        "fashion_mnist",
        "femnist",
        "gaussian_mixture",
        "heart_disease",
        "image_folder",
        "mnist",
        "npz",
        "shakespeare",
        "shifted_logistic",
        "synthetic",
        "table",
        "uci_har",
    }


def equal(first: Dataset, second: Dataset) -> bool:
    return all(
        np.array_equal(getattr(first, name), getattr(second, name))
        for name in ("train_x", "train_y", "test_x", "test_y")
    )


# -- bundled and computed ----------


def test_digits_are_scikit_learns_with_a_fixed_split() -> None:
    from sklearn.datasets import load_digits

    dataset = load("digits")
    assert (len(dataset.train_y), len(dataset.test_y)) == (1438, 359)
    assert np.array_equal(dataset.test_y, load_digits().target[4::5])
    assert np.array_equal(dataset.test_x[:, 0], load_digits().images[4::5])
    assert dataset.train_x.dtype == np.uint8
    assert dataset.scale is not None
    assert (dataset.train_x * dataset.scale).max() == 1.0
    assert np.bincount(dataset.train_y).min() > 120


def test_synthetic_follows_its_law() -> None:
    dataset = load("synthetic", alpha=0.5, beta=0.5, devices=20)
    assert dataset.input_shape == (60,)
    assert dataset.train_groups is not None
    sizes = np.bincount(dataset.train_groups)
    assert len(sizes) == 20
    assert sizes.min() >= 45, "50 samples or more, a tenth set aside"
    # Variance of feature j around its device's mean is j ^ -1.2.
    largest = int(np.argmax(sizes))
    own = dataset.train_x[dataset.train_groups == largest]
    assert own.var(axis=0)[[0, 9, 59]] == pytest.approx(np.array([1, 10, 60]) ** -1.2, rel=0.5)
    assert equal(dataset, load("synthetic", alpha=0.5, beta=0.5, devices=20))
    assert not equal(dataset, load("synthetic", alpha=0.5, beta=0.5, devices=20, seed=1))


def test_alpha_and_beta_set_how_much_the_devices_differ() -> None:
    def spread_of_means(beta: float) -> float:
        dataset = load("synthetic", alpha=0, beta=beta, devices=40)
        assert dataset.train_groups is not None
        means = [dataset.train_x[dataset.train_groups == device].mean() for device in range(40)]
        return float(np.std(means))

    assert spread_of_means(0) < 0.3
    assert spread_of_means(4) == pytest.approx(4, rel=0.4)
    shared = load("synthetic", iid=True, devices=40)
    means = [shared.train_x[shared.train_groups == device].mean() for device in range(40)]
    assert np.std(means) < 0.05


def test_the_gaussian_mixture_has_the_given_moments() -> None:
    dataset = load("gaussian_mixture", samples=20000, features=30, mean_std=0.45)
    means = np.stack(
        [dataset.train_x[dataset.train_y == label].mean(axis=0) for label in range(10)]
    )
    assert means.std() == pytest.approx(0.45, rel=0.1)
    assert (dataset.train_x - means[dataset.train_y]).std() == pytest.approx(1.0, rel=0.01)
    assert np.bincount(dataset.train_y).tolist() == [2000] * 10
    # Training and test samples come from the same means.
    other = np.stack([dataset.test_x[dataset.test_y == label].mean(axis=0) for label in range(10)])
    assert np.corrcoef(means.ravel(), other.ravel())[0, 1] > 0.9


def test_the_common_work_is_a_hundred_clients_of_two_hundred_images() -> None:
    dataset = load("common_work", test_samples=50)
    assert dataset.train_x.shape == (20000, 1, 28, 28)
    assert dataset.train_x.dtype == np.float32
    assert dataset.train_groups is not None
    assert np.bincount(dataset.train_groups).tolist() == [200] * 100
    assert dataset.classes == 10


def test_shifted_logistic_has_a_model_a_group() -> None:
    dataset = load("shifted_logistic", groups=4, samples=4000, features=6)
    assert dataset.kind == "binary"
    assert dataset.train_groups is not None
    assert np.square(dataset.train_x).sum(axis=1).mean() == pytest.approx(1, abs=0.35)
    # Least squares on one group's samples predicts that group's labels and not another's.
    weights = []
    for group in range(4):
        own = dataset.train_groups == group
        x = np.c_[dataset.train_x[own], np.ones(own.sum())]
        weights.append(np.linalg.lstsq(x, dataset.train_y[own] - 0.5, rcond=None)[0])
    cosines = [
        weights[a] @ weights[b] / np.linalg.norm(weights[a]) / np.linalg.norm(weights[b])
        for a in range(4)
        for b in range(a)
    ]
    assert max(cosines) < 0.9


# -- idx ----------


def idx(array: np.ndarray) -> bytes:
    head = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, dtype=">u4").tobytes()
    return head + array.astype(np.uint8).tobytes()


def idx_arrays() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [
        rng.integers(0, 256, (30, 28, 28)),
        rng.integers(0, 10, 30),
        rng.integers(0, 256, (10, 28, 28)),
        rng.integers(0, 10, 10),
    ]


@pytest.fixture
def idx_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "images"
    folder.mkdir()
    for name, array in zip(MNIST_FILES, idx_arrays(), strict=True):
        (folder / f"{name}.gz").write_bytes(gzip.compress(idx(array)))
    return folder


@pytest.mark.parametrize("name", ["mnist", "fashion_mnist"])
def test_idx_files_are_read_compressed_or_not(name: str, idx_folder: Path) -> None:
    dataset = load(name, root=idx_folder)
    arrays = idx_arrays()
    assert np.array_equal(dataset.train_x[:, 0], arrays[0])
    assert np.array_equal(dataset.train_y, arrays[1])
    assert np.array_equal(dataset.test_x[:, 0], arrays[2])
    assert np.array_equal(dataset.test_y, arrays[3])
    for path in list(idx_folder.iterdir()):
        (idx_folder / path.stem).write_bytes(gzip.decompress(path.read_bytes()))
        path.unlink()
    plain = load(name, root=idx_folder)
    assert equal(plain, dataset)
    assert isinstance(plain.train_x.base, np.memmap), "plain files are mapped, not read"


def test_the_data_folder_and_relative_roots_are_found(
    idx_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    component = datasets.registry()["mnist"]
    relative = component(component.Params(root=Path("images")))
    assert len(relative.load(idx_folder.parent).train_y) == 30
    (idx_folder.parent / "datasets").mkdir()
    idx_folder.rename(idx_folder.parent / "datasets" / "mnist")
    monkeypatch.setenv("FEDSIM_DATA", str(idx_folder.parent))
    assert len(load("mnist").train_y) == 30


def test_pixels_are_normalised_or_run_from_zero_to_one(idx_folder: Path) -> None:
    for normalise, low, high in ((True, -0.1307 / 0.3081, 0.8693 / 0.3081), (False, 0.0, 1.0)):
        dataset = load("mnist", root=idx_folder, normalise=normalise)
        assert dataset.scale is not None
        assert dataset.shift is not None
        ends = np.array([0, 255]) * dataset.scale.item() + dataset.shift.item()
        assert ends == pytest.approx([low, high], rel=1e-5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda content: content[:-40], "damaged"),
        (lambda content: b"not compressed", "damaged"),
        (lambda content: gzip.compress(gzip.decompress(content)[:-1]), "its header promises"),
        (lambda content: gzip.compress(gzip.decompress(content) + b"x"), "its header promises"),
        (
            lambda content: gzip.compress(b"\0\0\x0d\x03" + b"\0" * 12),
            "no IDX file of bytes with 3",
        ),
        (lambda content: gzip.compress(b"\0\0"), "no IDX file"),
        (lambda content: gzip.compress(idx(np.zeros((29, 28, 28)))), "29 training samples but 30"),
    ],
)
def test_a_damaged_idx_file_is_named(idx_folder: Path, change: Any, message: str) -> None:
    path = idx_folder / f"{MNIST_FILES[0]}.gz"
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(UserError, match=message) as caught:
        load("mnist", root=idx_folder)
    assert caught.value.exit_code == 2
    assert path.name in str(caught.value) or "dataset mnist" in str(caught.value)


def test_missing_files_are_named(idx_folder: Path) -> None:
    (idx_folder / f"{MNIST_FILES[1]}.gz").unlink()
    with pytest.raises(UserError, match=f"missing {MNIST_FILES[1]} in .*images"):
        load("mnist", root=idx_folder)
    with pytest.raises(UserError, match="no such folder"):
        load("mnist", root=idx_folder / "nowhere")


def test_labels_outside_the_classes_are_refused(idx_folder: Path) -> None:
    (idx_folder / f"{MNIST_FILES[1]}.gz").write_bytes(gzip.compress(idx(np.full(30, 11))))
    with pytest.raises(UserError, match="training labels run from 11 to 11, outside 0 to 9"):
        load("mnist", root=idx_folder)


@pytest.mark.parametrize(
    ("split", "first", "classes"), [("balanced", 0, 47), ("letters", 1, 26), ("byclass", 0, 62)]
)
def test_emnist_is_turned_upright(tmp_path: Path, split: str, first: int, classes: int) -> None:
    image = np.zeros((1, 28, 28))
    image[0, 3, 20] = 255
    for part in ("train", "test"):
        (tmp_path / f"emnist-{split}-{part}-images-idx3-ubyte").write_bytes(idx(image))
        labels = np.array([first + classes - 1])
        (tmp_path / f"emnist-{split}-{part}-labels-idx1-ubyte").write_bytes(idx(labels))
    dataset = load("emnist", root=tmp_path, split=split)
    assert dataset.classes == len(dataset.class_names) == classes
    assert dataset.train_y.tolist() == [classes - 1]
    assert dataset.train_x[0, 0, 20, 3] == 255


# -- downloads ----------


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *arguments: Any) -> None:
        pass


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """A web server on this machine and the folder that it serves."""
    folder = tmp_path / "served"
    folder.mkdir()
    http = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=http.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{http.server_port}/", folder
    http.shutdown()
    thread.join()
    http.server_close()


def digest(content: bytes) -> str:
    return f"sha256:{sha256(content).hexdigest()}"


def test_a_download_is_checked_and_kept(server: tuple[str, Path]) -> None:
    address, folder = server
    (folder / "numbers.bin").write_bytes(b"12345")
    remote = Remote((f"{address}absent.bin", f"{address}numbers.bin"), digest(b"12345"))
    path = download("toy", remote)
    assert path.read_bytes() == b"12345", "the second address is tried where the first has nothing"
    (folder / "numbers.bin").unlink()
    assert download("toy", Remote((f"{address}numbers.bin",), digest(b"12345"))) == path


def test_a_download_with_the_wrong_hash_is_refused(server: tuple[str, Path]) -> None:
    address, folder = server
    (folder / "numbers.bin").write_bytes(b"54321")
    with pytest.raises(UserError, match=r"cannot download .*numbers\.bin") as caught:
        download("toy", Remote((f"{address}numbers.bin",), digest(b"12345")))
    assert "root:" in str(caught.value)
    assert not [path for path in folder.parent.glob("cache/**/*") if path.is_file()]


def test_no_network_says_how_to_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    remote = Remote(("http://127.0.0.1:9/file.gz",), digest(b""))
    with pytest.raises(
        UserError, match=r"cannot download http://127\.0\.0\.1:9/file\.gz"
    ) as caught:
        download("mnist", remote)
    assert "$FEDSIM_DATA/datasets/mnist" in str(caught.value)


def test_mnist_is_downloaded_where_it_is_not_at_hand(
    server: tuple[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    address, folder = server
    hashes = []
    for name, array in zip(MNIST_FILES, idx_arrays(), strict=True):
        content = gzip.compress(idx(array))
        (folder / f"{name}.gz").write_bytes(content)
        hashes.append(sha256(content).hexdigest())
    monkeypatch.setattr(Mnist, "mirrors", (address,))
    monkeypatch.setattr(Mnist, "digests", tuple(hashes))
    first = load("mnist")
    assert len(first.train_y) == 30
    for path in folder.iterdir():
        path.unlink()
    assert equal(load("mnist"), first), "the second time it comes from the cache"


# -- CIFAR ----------


def batch(start: int, count: int = 6, **labels: list[int]) -> bytes:
    data = (np.arange(count * 3072).reshape(count, 3072) + start).astype(np.uint8)
    return pickle.dumps({"data": data, **labels}, protocol=2)


@pytest.fixture
def cifar_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "cifar" / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    for number in (1, 2, 5):
        content = batch(number, labels=[number] * 6)
        (folder / f"data_batch_{number}.xz").write_bytes(lzma.compress(content))
    (folder / "test_batch").write_bytes(batch(9, labels=list(range(6))))
    return folder.parent


def test_cifar_batches_are_read_in_the_asked_order(cifar_folder: Path) -> None:
    dataset = load("cifar10", root=cifar_folder, batches=[5, 1])
    assert dataset.train_y.tolist() == [5] * 6 + [1] * 6
    assert dataset.input_shape == (3, 32, 32)
    assert dataset.train_x[0, 0, 0, :3].tolist() == [5, 6, 7]
    assert dataset.train_x[0, 1, 0, 0] == (1024 + 5) % 256
    assert dataset.scale is not None
    assert dataset.scale.shape == (3, 1, 1)


def test_missing_batches_say_which_are_there(cifar_folder: Path) -> None:
    with pytest.raises(UserError, match="missing data_batch_3, data_batch_4") as caught:
        load("cifar10", root=cifar_folder)
    assert "batches: [1, 2, 5]" in str(caught.value)
    with pytest.raises(ValueError, match="less than or equal to 5"):
        load("cifar10", root=cifar_folder, batches=[6])


class Nasty:
    def __reduce__(self) -> tuple[Any, ...]:
        return (exec, ("raise SystemExit('executed')",))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (pickle.dumps(Nasty()), "exec, which is not allowed"),
        (pickle.dumps([1]), "no dictionary"),
        (b"nonsense", "no CIFAR batch"),
        (batch(0, labels=[1]), "no images of 3 x 32 x 32"),
        (pickle.dumps({"data": [1, 2], "labels": [1, 2]}), "no images of 3 x 32 x 32"),
        (batch(0, other=[1] * 6), "as many labels"),
    ],
)
def test_a_batch_can_hold_arrays_and_nothing_else(
    cifar_folder: Path, content: bytes, message: str
) -> None:
    (cifar_folder / "cifar-10-batches-py" / "test_batch").write_bytes(content)
    with pytest.raises(UserError, match=message):
        load("cifar10", root=cifar_folder, batches=[1])


def test_a_cut_off_batch_is_damaged(cifar_folder: Path) -> None:
    path = cifar_folder / "cifar-10-batches-py" / "data_batch_1.xz"
    path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(UserError, match=r"data_batch_1\.xz.*damaged"):
        load("cifar10", root=cifar_folder, batches=[1])


def test_cifar100_has_fine_and_coarse_labels(tmp_path: Path) -> None:
    labels = {"fine_labels": [99, 3, 4, 5, 6, 7], "coarse_labels": [19, 1, 2, 3, 4, 5]}
    for part in ("train", "test"):
        (tmp_path / part).write_bytes(batch(0, **labels))
    names = {
        "fine_label_names": [f"f{number}" for number in range(100)],
        "coarse_label_names": [f"c{number}" for number in range(20)],
    }
    (tmp_path / "meta").write_bytes(pickle.dumps(names, protocol=2))
    fine, coarse = (load("cifar100", root=tmp_path, labels=kind) for kind in ("fine", "coarse"))
    assert (fine.classes, fine.train_y[0], fine.class_names[99]) == (100, 99, "f99")
    assert (coarse.classes, coarse.train_y[0], coarse.class_names[19]) == (20, 19, "c19")
    for wrong in ({}, {"fine_label_names": 100}, {"fine_label_names": ["f0"]}):
        (tmp_path / "meta").write_bytes(pickle.dumps(wrong, protocol=2))
        with pytest.raises(UserError, match=r"meta: .*does not name 100 fine labels"):
            load("cifar100", root=tmp_path)
    (tmp_path / "train").write_bytes(batch(0, fine_labels=["a"] * 6))
    with pytest.raises(UserError, match=r"train: .*no images of 3 x 32 x 32 bytes with as many"):
        load("cifar100", root=tmp_path)


def test_the_downloaded_archive_is_read_without_unpacking(server: tuple[str, Path]) -> None:
    address, folder = server
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        body = batch(1, labels=[1] * 6)
        member = tarfile.TarInfo("inner/data_batch_1")
        member.size = len(body)
        archive.addfile(member, io.BytesIO(body))
    (folder / "all.tar.gz").write_bytes(content.getvalue())
    remote = Remote((f"{address}all.tar.gz",), digest(content.getvalue()))
    source = CifarArchive("toy", "inner", remote)
    assert source.read(["data_batch_1"], None, None)[0].values["labels"] == [1] * 6
    with pytest.raises(UserError, match=r"damaged.*data_batch_2"):
        source.read(["data_batch_2"], None, None)


# -- LEAF ----------


def leaf(samples: dict[str, tuple[list[Any], list[Any]]]) -> str:
    return json.dumps(
        {
            "users": list(samples),
            "num_samples": [len(y) for _, y in samples.values()],
            "user_data": {user: {"x": x, "y": y} for user, (x, y) in samples.items()},
        }
    )


def test_femnist_is_grouped_by_writer(tmp_path: Path) -> None:
    white, grey = [1.0] * 784, [128 / 255] * 784
    for part, second in (("train", "b"), ("test", "c")):
        (tmp_path / part).mkdir()
        (tmp_path / part / "1.json").write_text(leaf({"a": ([white, grey], [3, 61])}))
        (tmp_path / part / "2.json").write_text(leaf({second: ([grey], [7])}))
    dataset = load("femnist", root=tmp_path)
    assert dataset.group_names == ("a", "b", "c")
    assert dataset.train_groups is not None
    assert dataset.test_groups is not None
    assert dataset.train_groups.tolist() == [0, 0, 1]
    assert dataset.test_groups.tolist() == [0, 0, 2]
    assert dataset.train_y.tolist() == [3, 61, 7]
    assert dataset.train_x[:, 0, 0, 0].tolist() == [255, 128, 128]
    assert dataset.class_names[61] == "z"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "no LEAF JSON"),
        ("[]", "no LEAF JSON"),
        ('{"users": ["a"], "user_data": {}}', "no LEAF JSON"),
        (leaf({"a": ([[0.0] * 784], [1, 2])}), "user a has 1 samples and 2 labels"),
        (leaf({"a": ([[0.0] * 783], [1])}), "not 784 numbers"),
        (leaf({"a": ([[255.0] * 784], [1])}), "outside 0 to 1"),
    ],
)
def test_a_damaged_leaf_file_says_so(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "train.json").write_text(text)
    (tmp_path / "test.json").write_text(leaf({"a": ([[0.0] * 784], [1])}))
    with pytest.raises(UserError, match=message):
        load("femnist", root=tmp_path)


@pytest.mark.parametrize("label", ["a", None, 1.5])
def test_labels_of_femnist_are_whole_numbers(tmp_path: Path, label: Any) -> None:
    (tmp_path / "train.json").write_text(leaf({"a": ([[0.0] * 784], [label])}))
    (tmp_path / "test.json").write_text(leaf({"a": ([[0.0] * 784], [1])}))
    with pytest.raises(UserError, match=f"label {label!r} is no whole number"):
        load("femnist", root=tmp_path)


def test_missing_leaf_files_say_so(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"neither train\.json nor train/\*\.json"):
        load("femnist", root=tmp_path)
    with pytest.raises(UserError, match=r"missing train\.json, test\.json"):
        load("femnist")


def test_shakespeare_from_leaf(tmp_path: Path) -> None:
    (tmp_path / "train.json").write_text(leaf({"HAMLET": (["to b", "o be"], ["e", " "])}))
    (tmp_path / "test.json").write_text(leaf({"HAMLET": ([" be "], ["o"])}))
    dataset = load("shakespeare", root=tmp_path)
    assert dataset.kind == "next_character"
    text = "".join(dataset.class_names[code] for code in dataset.train_x[0])
    assert text == "to b"
    assert [dataset.class_names[label] for label in dataset.train_y] == ["e", " "]
    assert dataset.group_names == ("HAMLET",)


def test_leaf_samples_of_different_lengths_are_refused(tmp_path: Path) -> None:
    (tmp_path / "train.json").write_text(leaf({"A": (["abc", "ab"], ["c", "d"])}))
    (tmp_path / "test.json").write_text(leaf({"A": (["abc"], ["c"])}))
    with pytest.raises(UserError, match="not texts of one length"):
        load("shakespeare", root=tmp_path)
    for x, y in (("abc", 3), ([1, 2, 3], "c")):
        (tmp_path / "train.json").write_text(leaf({"A": ([x], [y])}))
        with pytest.raises(UserError, match="must be texts"):
            load("shakespeare", root=tmp_path)


def test_shakespeare_without_test_samples(tmp_path: Path) -> None:
    (tmp_path / "train.json").write_text(leaf({"A": (["abc"], ["c"])}))
    (tmp_path / "test.json").write_text(leaf({}))
    assert load("shakespeare", root=tmp_path).test_x.shape == (0, 3)


PLAY = """First:
abcdefghij
klm

Second:
xy

First:
nopqrstuvw
"""


def test_shakespeare_from_text_by_hand(tmp_path: Path) -> None:
    (tmp_path / "input.txt").write_text(PLAY)
    dataset = load("shakespeare", root=tmp_path, length=4, test_share=0.4)
    whole = "abcdefghij\nklm\nnopqrstuvw"
    cut = round(len(whole) * 0.6)

    def read(x: np.ndarray, y: np.ndarray) -> list[str]:
        return [
            "".join(dataset.class_names[code] for code in [*row, label])
            for row, label in zip(x, y, strict=True)
        ]

    # Every window of four characters and the next one; test windows begin after the last training character.
    assert read(dataset.train_x, dataset.train_y) == [whole[k : k + 5] for k in range(cut - 4)]
    assert read(dataset.test_x, dataset.test_y) == [
        whole[k : k + 5] for k in range(cut, len(whole) - 4)
    ]
    assert dataset.group_names == ("First",), "who says too little is left out"
    sparse = load("shakespeare", root=tmp_path, length=4, test_share=0.4, stride=3)
    assert np.array_equal(sparse.train_x, dataset.train_x[::3])


@pytest.mark.parametrize("text", ["no speeches at all", "Role:\nshort\n"])
def test_a_text_without_speeches_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "input.txt").write_text(text)
    with pytest.raises(UserError, match=r"speeches|no role has text enough for samples of 80"):
        load("shakespeare", root=tmp_path)


# -- the user's own ----------


def save_npz(path: Path, **arrays: np.ndarray) -> Path:
    np.savez(path, **arrays)
    return path


def rows(samples: int, wrong: float = 0.0, at: int = 0) -> np.ndarray:
    """Samples of two zeros, with one number in its place."""
    x = np.zeros((samples, 2))
    x[at, 1] = wrong
    return x


def test_npz_arrays_become_a_data_set(tmp_path: Path) -> None:
    x = np.arange(40, dtype=np.float64).reshape(10, 4)
    path = save_npz(
        tmp_path / "own.npz",
        x=x,
        y=np.arange(10) % 3,
        group=np.array(["b", "a"] * 5),
        is_test=np.arange(10) >= 8,
    )
    dataset = load("npz", path=path)
    assert dataset.name == "own"
    assert dataset.train_x.dtype == np.float32
    assert np.array_equal(dataset.train_x, x[:8])
    assert dataset.test_y.tolist() == [2, 0]
    assert dataset.group_names == ("a", "b")
    assert dataset.train_groups is not None
    assert dataset.train_groups.tolist() == [1, 0] * 4
    assert dataset.kind == "classification"


def test_npz_without_a_split_is_split_by_its_seed(tmp_path: Path) -> None:
    path = save_npz(
        tmp_path / "own.npz", x=np.zeros((100, 2, 3, 3), dtype=np.uint8), y=np.arange(100) % 2
    )
    dataset = load("npz", path=path, test_share=0.3)
    assert (len(dataset.train_y), len(dataset.test_y)) == (70, 30)
    assert dataset.train_x.dtype == np.uint8
    assert dataset.scale is not None
    assert dataset.kind == "binary"
    assert equal(dataset, load("npz", path=path, test_share=0.3))
    other = load("npz", path=path, test_share=0.3, seed=1)
    assert not np.array_equal(other.train_y, dataset.train_y)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": np.zeros((3, 2))}, "no array y"),
        ({"x": np.zeros((3, 2)), "y": np.zeros(2, dtype=int)}, "differ in length"),
        ({"x": np.zeros(3), "y": np.zeros(3, dtype=int)}, "x must be numbers"),
        ({"x": np.zeros((3, 2)), "y": np.zeros(3)}, "integer labels"),
        ({"x": np.array([["a"]]), "y": np.zeros(1, dtype=int)}, "x must be numbers"),
        ({"x": np.full((9, 2), np.nan), "y": np.zeros(9, dtype=int)}, "sample 0 is not finite"),
        ({"x": rows(9, wrong=1e300, at=7), "y": np.arange(9)}, "x: sample 7 is not finite"),
        ({"x": np.zeros((9, 2)), "y": np.full(9, -1)}, "labels run from -1"),
        ({"x": np.zeros((9, 2)), "y": np.array([3_000_000_000, *range(8)])}, "to 3000000000; .* 9"),
        ({"x": np.zeros((9, 2)), "y": np.ones(9, dtype=int)}, "one class only, 1"),
        ({"x": np.zeros((9, 0)), "y": np.arange(9) % 2}, "hold no numbers"),
        ({"x": rows(9), "y": np.arange(9) % 2, "is_test": np.zeros((9, 2))}, "is_test has 2 dim"),
        ({"x": rows(9), "y": np.arange(9) % 2, "is_test": np.full(9, 2)}, "values than 0 and 1"),
        ({"x": rows(9), "y": np.arange(9) % 2, "is_test": np.full(9, "no")}, "is_test has 1 dim"),
        ({"x": rows(9), "y": np.arange(9) % 2, "group": np.zeros((9, 2))}, "group has 2 dim"),
        ({"x": np.array([[object()]]), "y": np.zeros(1, dtype=int)}, "damaged"),
    ],
)
def test_npz_arrays_that_do_not_fit_are_refused(
    tmp_path: Path, arrays: dict[str, np.ndarray], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        load("npz", path=save_npz(tmp_path / "own.npz", **arrays))


@pytest.mark.parametrize("first", ["training", "test"])
def test_a_folder_of_arrays_is_read_from_the_disk(tmp_path: Path, first: str) -> None:
    """Nothing is copied where the training samples come first, and the samples are the same in any order."""
    is_test = np.arange(10) >= 8 if first == "training" else np.arange(10) < 2
    x = np.arange(60, dtype=np.float32).reshape(10, 2, 3)
    arrays = {"x": x, "y": np.arange(10) % 3, "is_test": is_test, "group": np.arange(10) % 2}
    (tmp_path / "own").mkdir()
    for name, array in arrays.items():
        np.save(tmp_path / "own" / f"{name}.npy", array)
    mapped = load("npz", path=tmp_path / "own")
    assert equal(mapped, load("npz", path=save_npz(tmp_path / "own.npz", **arrays)))
    assert mapped.train_x.tolist() == x[~is_test].tolist()
    on_disk = isinstance(mapped.train_x.base, np.memmap)
    assert on_disk == (first == "training")
    mapped.train_x[0] = -1
    assert np.load(tmp_path / "own" / "x.npy").tolist() == x.tolist(), "the file stays as it is"


def test_a_folder_of_arrays_that_lacks_some_says_so(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no file x\.npy, y\.npy"):
        load("npz", path=tmp_path)
    np.save(tmp_path / "x.npy", np.zeros((4, 2)))
    (tmp_path / "y.npy").write_bytes((tmp_path / "x.npy").read_bytes()[:90])
    with pytest.raises(UserError, match=r"y\.npy.*damaged"):
        load("npz", path=tmp_path)
    np.save(tmp_path / "y.npy", np.array([{}] * 4), allow_pickle=True)
    with pytest.raises(UserError, match=r"y\.npy.*damaged"):
        load("npz", path=tmp_path)


def test_all_of_a_large_array_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedsim.tasks.reading.arrays._PIECE", 6)
    x = rows(20)
    assert first_not_finite(x) is None
    assert first_not_finite(x.astype(np.uint8)) is None
    for at in (0, 2, 3, 19):
        assert first_not_finite(rows(20, wrong=np.inf, at=at)) == at


def test_a_damaged_or_missing_npz_says_so(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((4, 2)))
    with pytest.raises(UserError, match=r"x\.npy.*no \.npz archive"):
        load("npz", path=tmp_path / "x.npy")
    path = save_npz(tmp_path / "own.npz", x=np.zeros((100, 20)), y=np.zeros(100, dtype=int))
    path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(UserError, match=r"own\.npz.*damaged"):
        load("npz", path=path)
    with pytest.raises(UserError, match="no such file"):
        load("npz", path=tmp_path / "nowhere.npz")


def test_tables_become_data_sets(tmp_path: Path) -> None:
    import pandas as pd

    frame = pd.DataFrame(
        {
            "age": np.arange(50.0),
            "dose": np.arange(50) % 7,
            "outcome": ["ill", "well"] * 25,
            "hospital": np.arange(50) // 25,
        }
    )
    frame.to_csv(tmp_path / "patients.csv", index=False)
    frame.to_parquet(tmp_path / "patients.parquet")
    params = {"target": "outcome", "group": "hospital"}
    first = load("table", path=tmp_path / "patients.csv", **params)
    assert equal(first, load("table", path=tmp_path / "patients.parquet", **params))
    assert first.train_x.shape == (40, 2)
    assert first.train_x.mean(axis=0) == pytest.approx([0, 0], abs=1e-6)
    assert first.train_x.std(axis=0) == pytest.approx([1, 1], rel=1e-5)
    assert first.class_names == ("ill", "well")
    assert first.kind == "binary"
    assert first.group_names == ("0", "1")
    raw = load(
        "table", path=tmp_path / "patients.csv", standardise=False, features=["age"], **params
    )
    is_test = held_out(50, 0.2, 0)
    assert raw.train_x[:, 0].tolist() == np.arange(50.0)[~is_test].tolist()
    assert raw.test_y.tolist() == (np.arange(50) % 2)[is_test].tolist()
    frame["later"] = frame.age >= 45
    frame.to_parquet(tmp_path / "later.parquet")
    told = load("table", path=tmp_path / "later.parquet", is_test="later", **params)
    assert told.train_x.shape == (45, 2), "the column is no feature"
    assert told.test_y.tolist() == [1, 0, 1, 0, 1]


@pytest.mark.parametrize(
    ("text", "params", "message"),
    [
        ("a,b\n1,x\n2,y\n", {"target": "c"}, "no column 'c'"),
        ("a,b\n1,x\n2,y\n", {"target": "b", "features": ["z"]}, "no column 'z'"),
        ("a,b,c\n1,x,q\n2,y,r\n", {"target": "b"}, "columns c are not numbers"),
        ("a,b\n1,x\n,y\n", {"target": "b"}, "1 cells are empty, the first in column 'a', row 1"),
        ("a,b\n1,x\n2,x\n", {"target": "b"}, "holds one class only"),
        ("a,b\n1,0.5\n2,1.5\n", {"target": "b"}, "holds 0.5 in row 0, a quantity"),
        ("a,b\n1,x\n2,y\n-inf,y\n", {"target": "b"}, "column 'a' holds -inf in row 2"),
        ("a,b\n1,x\n1e300,y\n", {"target": "b"}, "column 'a' holds 1e\\+300 in row 1"),
        ("a,b\n1,0\n2,1\n", {"target": "b", "features": ["a", "b"]}, "'b' is a feature and also"),
        ("a,b,t\n1,x,0\n2,y,2\n", {"target": "b", "is_test": "t"}, "'t' holds other values"),
        ("a,b,t\n1,x,0\n2,y,\n", {"target": "b", "is_test": "t"}, "empty, the first in column 't'"),
        ("b\nx\ny\n", {"target": "b"}, "no feature column"),
        ("a,b\n", {"target": "b"}, "no rows"),
        ("", {"target": "b"}, "cannot be read"),
    ],
)
def test_a_table_that_does_not_fit_says_why(
    tmp_path: Path, text: str, params: dict[str, Any], message: str
) -> None:
    (tmp_path / "own.csv").write_text(text)
    with pytest.raises(UserError, match=message):
        load("table", path=tmp_path / "own.csv", **params)


def test_other_kinds_of_table_and_damaged_ones_are_refused(tmp_path: Path) -> None:
    import pandas as pd

    (tmp_path / "own.xlsx").write_bytes(b"")
    with pytest.raises(UserError, match=r"'\.xlsx' is no known kind of table"):
        load("table", path=tmp_path / "own.xlsx", target="y")
    (tmp_path / "own.parquet").write_bytes(b"PAR1 cut off")
    with pytest.raises(UserError, match="cannot be read"):
        load("table", path=tmp_path / "own.parquet", target="y")
    pd.DataFrame({"a": [1, 2], "y": [[1], [2]]}).to_parquet(tmp_path / "own.parquet")
    with pytest.raises(UserError, match="other things than text"):
        load("table", path=tmp_path / "own.parquet", target="y")


def save_image(path: Path, value: int, size: tuple[int, int] = (5, 4)) -> None:
    from PIL import Image

    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (size[1], size[0]), (value, 2 * value, 0)).save(path)


def test_folders_of_images_become_data_sets(tmp_path: Path) -> None:
    for part in ("train", "test"):
        for label, name in enumerate(("cat", "dog", "eel")):
            for number in range(2):
                save_image(tmp_path / part / name / f"{number}.png", 10 * label + number)
    dataset = load("image_folder", root=tmp_path)
    assert dataset.class_names == ("cat", "dog", "eel")
    assert dataset.train_x.shape == (6, 3, 5, 4)
    assert dataset.train_y.tolist() == [0, 0, 1, 1, 2, 2]
    assert dataset.train_x[3, :, 0, 0].tolist() == [11, 22, 0]
    resized = load("image_folder", root=tmp_path, size=(2, 3), channels=1)
    assert resized.test_x.shape == (6, 1, 2, 3)
    alone = load("image_folder", root=tmp_path / "train", test_share=0.5)
    assert (len(alone.train_y), len(alone.test_y)) == (3, 3)


def test_images_that_do_not_fit_say_why(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such folder"):
        load("image_folder", root=tmp_path / "nowhere")
    save_image(tmp_path / "a" / "1.png", 1)
    with pytest.raises(UserError, match="1 class folders"):
        load("image_folder", root=tmp_path)
    save_image(tmp_path / "b" / "1.png", 1, size=(6, 6))
    with pytest.raises(UserError, match="6 x 6 pixels, others 5 x 4"):
        load("image_folder", root=tmp_path)
    (tmp_path / "c").mkdir()
    with pytest.raises(UserError, match="c: no images"):
        load("image_folder", root=tmp_path, size=(4, 4))
    with pytest.raises(ValueError, match="greater than 0"):
        load("image_folder", root=tmp_path, size=(0, 4))
    (tmp_path / "c").rmdir()
    (tmp_path / "b" / "1.png").write_bytes(b"no image")
    with pytest.raises(UserError, match=r"1\.png.*cannot be read"):
        load("image_folder", root=tmp_path)
    for path in (tmp_path / "a" / "1.png", tmp_path / "b" / "1.png"):
        path.unlink()
    with pytest.raises(UserError, match="no images"):
        load("image_folder", root=tmp_path)


def test_folders_that_begin_with_a_dot_are_no_classes(tmp_path: Path) -> None:
    for name in ("a", "b", ".cache"):
        save_image(tmp_path / name / "1.png", 1)
    save_image(tmp_path / "a" / "._1.png", 1)
    dataset = load("image_folder", root=tmp_path, test_share=0.5)
    assert dataset.class_names == ("a", "b")
    assert len(dataset.train_y) + len(dataset.test_y) == 2


def test_a_class_of_test_images_alone_is_refused(tmp_path: Path) -> None:
    for place in ("train/a", "train/b", "test/a", "test/z"):
        save_image(tmp_path / place / "1.png", 1)
    with pytest.raises(UserError, match=r"no class 'z' in .*train"):
        load("image_folder", root=tmp_path)


def test_heart_disease_drops_columns_codes_and_incomplete_patients(tmp_path: Path) -> None:
    line = "63,1,{cp},145,233,1,{ecg},150,0,{peak},3,{ca},6,{num}\n"
    for index, centre in enumerate(("cleveland", "hungarian", "switzerland", "va")):
        rows = [
            line.format(cp=1 + k % 4, ecg=k % 3, peak=k + index, ca="?", num=k % 3)
            for k in range(12)
        ]
        rows.append(line.format(cp=1, ecg="?", peak=1, ca=0, num=0))
        (tmp_path / f"processed.{centre}.data").write_text("".join(rows))
    dataset = load("heart_disease", root=tmp_path)
    assert dataset.input_shape == (13,)
    assert dataset.train_groups is not None
    assert np.bincount(dataset.train_groups).tolist() == [8] * 4
    assert len(dataset.test_y) == 16
    labels = np.sort(np.concatenate([dataset.train_y, dataset.test_y]))
    assert labels.tolist() == [0] * 16 + [1] * 32, "target = (num > 0)"
    (tmp_path / "processed.va.data").write_text("1,2,3\n")
    with pytest.raises(UserError, match=r"processed\.va\.data.*line 1 has 3 columns"):
        load("heart_disease", root=tmp_path)


def test_uci_har_needs_arrays_that_fit(tmp_path: Path) -> None:
    arrays = {
        "x": np.arange(4 * 9 * 128).reshape(4, 9, 128).astype(np.float16) % 50,
        "y": np.array([0, 1, 2, 5], dtype=np.int8),
        "subject": np.array([0, 0, 1, 1], dtype=np.int8),
        "is_test": np.array([0, 1, 0, 1], dtype=np.int8),
    }
    save_npz(tmp_path / "har_inertial.npz", **arrays)
    dataset = load("uci_har", root=tmp_path)
    assert dataset.train_x.dtype == np.float32
    assert dataset.group_names == ("subject 1", "subject 2")
    assert dataset.scale is not None
    assert dataset.shift is not None
    seen = dataset.train_x * dataset.scale + dataset.shift
    assert seen.mean(axis=(0, 2)) == pytest.approx(np.zeros(9), abs=1e-5)
    assert seen.std(axis=(0, 2)) == pytest.approx(np.ones(9), rel=1e-4)
    for wrong in (
        {"y": np.array([0, 1])},
        {"y": np.zeros((4, 2), dtype=int)},
        {"subject": np.array(["a"] * 4)},
        {"x": np.full((4, 9, 128), "a")},
    ):
        save_npz(tmp_path / "har_inertial.npz", **{**arrays, **wrong})
        with pytest.raises(UserError, match="do not fit together"):
            load("uci_har", root=tmp_path)
    for wrong in ({"is_test": np.ones(4, dtype=bool)}, {"subject": np.full(4, 10**9)}):
        save_npz(tmp_path / "har_inertial.npz", **{**arrays, **wrong})
        with pytest.raises(UserError, match="all windows are for tests, or subjects"):
            load("uci_har", root=tmp_path)


def test_a_zip_that_is_no_archive_of_arrays_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "har_inertial.npz", "w") as archive:
        archive.writestr("readme.txt", "nothing")
    with pytest.raises(UserError, match="no array x, y, subject, is_test"):
        load("uci_har", root=tmp_path)


# -- real data ----------


@pytest.fixture
def real(fedsim_data: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FEDSIM_DATA", str(fedsim_data))
    return fedsim_data / "datasets"


@pytest.mark.real_data
@pytest.mark.parametrize(
    ("name", "params", "train", "test", "shape", "classes", "groups"),
    [
        ("mnist", {}, 60000, 10000, (1, 28, 28), 10, 0),
        ("fashion_mnist", {}, 60000, 10000, (1, 28, 28), 10, 0),
        ("uci_har", {}, 7715, 2584, (9, 128), 6, 30),
        ("heart_disease", {}, 494, 246, (13,), 2, 4),
    ],
)
def test_real_data_have_their_known_sizes(
    real: Path,
    name: str,
    params: dict[str, Any],
    train: int,
    test: int,
    shape: tuple[int, ...],
    classes: int,
    groups: int,
) -> None:
    dataset = load(name, **params)
    assert (len(dataset.train_y), len(dataset.test_y)) == (train, test)
    assert dataset.input_shape == shape
    assert (dataset.classes, len(dataset.group_names)) == (classes, groups)
    if dataset.scale is not None and dataset.shift is not None:
        seen = dataset.train_x[:3000] * dataset.scale + dataset.shift
        assert abs(float(seen.mean())) < 0.05
        assert float(seen.std()) == pytest.approx(1, abs=0.05)


@pytest.mark.real_data
def test_real_femnist_writers(real: Path) -> None:
    dataset = load("femnist", root=real / "femnist_leaf_sample")
    assert dataset.train_groups is not None
    assert np.bincount(dataset.train_groups).tolist() == [11, 16, 17, 18, 16]
    assert len(dataset.test_y) == 89


@pytest.mark.real_data
def test_real_cifar_classes(real: Path) -> None:
    dataset = load("cifar10", batches=[1])
    assert dataset.input_shape == (3, 32, 32)
    assert len(dataset.test_y) == 10000
    assert np.bincount(dataset.train_y[:10000]).tolist() == [
        1005, 974, 1032, 1016, 999, 937, 1030, 1001, 1025, 981,
    ]  # fmt: skip


@pytest.mark.real_data
def test_real_roles(real: Path) -> None:
    # The source's README: 309 roles; ten of them, ghosts, have only empty speeches.
    speeches = _speeches(real / "shakespeare" / "input.txt")
    assert len(speeches) == 299
    lines = (real / "shakespeare" / "input.txt").read_text().split("\n")
    before = ["", *lines[:-1]]
    spoken = [line for line, last in zip(lines, before, strict=True) if last or line[-1:] != ":"]
    assert sorted("".join(spoken)) == sorted("".join(speeches.values()).replace("\n", ""))
    dataset = load("shakespeare", stride=40)
    assert dataset.classes == 65
    assert dataset.train_groups is not None
    assert dataset.test_groups is not None
    for group, role in enumerate(dataset.group_names):
        cut = round(0.8 * len(speeches[role]))
        windows = [-(-max(size - 80, 0) // 40) for size in (cut, len(speeches[role]) - cut)]
        assert np.count_nonzero(dataset.train_groups == group) == windows[0]
        assert np.count_nonzero(dataset.test_groups == group) == windows[1]


@pytest.mark.real_data
def test_real_hearts(real: Path) -> None:
    # FLamby's Fed-Heart-Disease has 303, 261, 46 and 130 patients in its four centres.
    dataset = load("heart_disease")
    groups = np.concatenate([dataset.train_groups, dataset.test_groups])
    assert np.bincount(groups).tolist() == [303, 261, 46, 130]
