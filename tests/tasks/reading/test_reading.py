"""Files, arrays, images, labels, and the division into training and test samples."""

import gzip
import io
import lzma
import pickle
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsim.errors import UserError
from fedsim.files.downloads import Remote
from fedsim.tasks.dataset import Dataset
from fedsim.tasks.datasets.images import MNIST_FILES
from fedsim.tasks.reading.files import Archive, download, first_not_finite, locate, read_table
from fedsim.tasks.reading.samples import held_out, split_dataset, standardized
from tests.tasks.files import batch, digest, equal, idx, leaf, rows, save_npz
from tests.tasks.toys import load


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
    array = (tmp_path / "x.npy").read_bytes()
    (tmp_path / "y.npy").write_bytes(array.replace(b"(4, 2), }   ", b"(4, True), }"))
    with pytest.raises(UserError, match=r"y\.npy.*damaged"):
        load("npz", path=tmp_path)
    np.save(tmp_path / "y.npy", np.array([{}] * 4), allow_pickle=True)
    with pytest.raises(UserError, match=r"y\.npy: y has dtype object.*\n.*y\.astype\(int\)"):
        load("npz", path=tmp_path)


def test_all_of_a_large_array_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedsim.tasks.reading.files._BLOCK", 6)
    x = rows(20)
    assert first_not_finite(x) is None
    assert first_not_finite(x.astype(np.uint8)) is None
    for at in (0, 2, 3, 19):
        assert first_not_finite(rows(20, wrong=np.inf, at=at)) == at


class Nasty:
    def __reduce__(self) -> tuple[Any, ...]:
        return (exec, ("raise SystemExit('executed')",))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (pickle.dumps(Nasty()), "not a CIFAR batch: .*exec"),
        (pickle.dumps([1]), "not a dictionary"),
        (b"nonsense", "not a CIFAR batch"),
        (batch(0, labels=[1]), "not hold images of 3 x 32 x 32"),
        (batch(0, other=[1] * 6), "one entry of labels for each"),
        (batch(0, labels=[2**70] * 6), "one entry of labels for each"),
    ],
)
def test_a_batch_can_hold_arrays_and_nothing_else(
    cifar_folder: Path, content: bytes, message: str
) -> None:
    (cifar_folder / "cifar-10-batches-py" / "test_batch").write_bytes(content)
    with pytest.raises(UserError, match=message):
        load("cifar10", root=cifar_folder, batches=[1])


def test_a_table_is_read_from_the_disk_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a byte order mark and the line ends of Windows; what is checked is what is used."""
    path = tmp_path / "table.csv"
    path.write_bytes(b"\xef\xbb\xbfname,value\r\na,1\r\n\r\nb,2\r\n")

    def read_and_remove(file: Path) -> bytes:
        content = file.read_bytes()
        file.unlink()
        return content

    monkeypatch.setattr("fedsim.tasks.reading.files.read_bytes", read_and_remove)
    assert read_table(path, "").to_dict("list") == {"name": ["a", "b"], "value": [1, 2]}


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


def zipped(name: str, content: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr(name, content)
        archive.writestr("inner/unused", b"")
    return stream.getvalue()


def tarred(name: str, content: bytes) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        for member in (tarfile.TarInfo(name), tarfile.TarInfo("inner/unused")):
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return stream.getvalue()


@pytest.mark.parametrize(("packed", "file"), [(zipped, "all.zip"), (tarred, "all.tar.gz")])
def test_only_the_files_needed_are_taken_out_of_an_archive(
    server: tuple[str, Path], packed: Callable[[str, bytes], bytes], file: str
) -> None:
    address, folder = server
    content = packed("inner/numbers.gz", b"12345")
    (folder / file).write_bytes(content)
    archive = Archive((f"{address}{file}",), digest(content), inner="inner", ending=".gz")
    (path,) = locate("toy", ["numbers"], None, None, archive)
    assert path.read_bytes() == b"12345"
    assert sorted(each.name for each in path.parent.iterdir()) == sorted([file, "numbers.gz"])
    (folder / file).unlink()
    assert locate("toy", ["numbers"], None, None, archive) == [path]
    with pytest.raises(UserError, match=r"damaged.*letters"):
        locate("toy", ["letters"], None, None, archive)


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE])
def test_a_member_that_is_no_file_is_refused(
    server: tuple[str, Path], tmp_path: Path, kind: bytes
) -> None:
    """In particular a link to a file outside the archive."""
    address, folder = server
    (tmp_path / "secret").write_bytes(b"12345")
    member = tarfile.TarInfo("inner/numbers.gz")
    member.type, member.linkname = kind, str(tmp_path / "secret")
    with tarfile.open(folder / "all.tar.gz", mode="w:gz") as tar:
        tar.addfile(member)
    content = (folder / "all.tar.gz").read_bytes()
    archive = Archive((f"{address}all.tar.gz",), digest(content), inner="inner", ending=".gz")
    with pytest.raises(UserError, match=r"damaged.*(secret|numbers)"):
        locate("toy", ["numbers"], None, None, archive)


def test_files_may_lie_in_the_folder_of_the_archive(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "numbers.xz").write_bytes(b"")
    archive = Archive((), digest(b""), inner="inner")
    assert locate("toy", ["numbers"], tmp_path, None, archive) == [tmp_path / "inner/numbers.xz"]
    with pytest.raises(UserError, match=r"missing letters in .*inner"):
        locate("toy", ["letters"], tmp_path, None, archive)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda content: content[:-40], "damaged"),
        (lambda content: gzip.compress(gzip.decompress(content)[:-1]), "according to its header"),
        (
            lambda content: gzip.compress(b"\0\0\x0d\x03" + b"\0" * 12),
            "not an IDX file of bytes with 3",
        ),
        (
            lambda content: gzip.compress(idx(np.zeros((29, 28, 28)))),
            "has 30 labels for the 29 images",
        ),
        (lambda content: gzip.compress(bytes(300_000_000), 1), "unpacks to more than"),
    ],
)
def test_a_damaged_idx_file_is_named(idx_folder: Path, change: Any, message: str) -> None:
    path = idx_folder / f"{MNIST_FILES[0]}.gz"
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(UserError, match=message) as caught:
        load("mnist", root=idx_folder)
    assert caught.value.exit_code == 2
    assert path.name in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not LEAF JSON"),
        ("[]", "not LEAF JSON"),
        ('{"users": ["a"], "user_data": {}}', "not LEAF JSON"),
        (leaf({"a": ([[0.0] * 784], [1, 2])}), "user a has 1 samples and 2 labels"),
        (leaf({"a": ([[0.0] * 783], [1])}), r"train.json: .* user a: .* not have 784 numbers"),
        (leaf({"a": ([], [])}).replace('["a"]', '["a", "a"]'), "user a is listed twice"),
        (leaf({"a": ([], [])}).replace('["a"]', "[]"), "user a has data, but is not listed"),
        (leaf({"a": ([[0.0] * 784], [1])}).replace("[1],", "[9],"), "1 samples and 1 labels, of 9"),
        (leaf({"a": ([[255.0] * 784], [1])}), "outside 0 to 1"),
        (leaf({"a": ([[0.0] * 784], [2**70])}), "is not a whole number from 0 to 61"),
    ],
)
def test_a_damaged_leaf_file_says_so(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "train.json").write_text(text)
    (tmp_path / "test.json").write_text(leaf({"a": ([[0.0] * 784], [1])}))
    with pytest.raises(UserError, match=message):
        load("femnist", root=tmp_path)


def test_a_copy_of_a_leaf_file_is_refused(tmp_path: Path) -> None:
    for name in ("train/a.json", "train/a (1).json", "test/a.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(leaf({"a": ([[0.0] * 784], [1])}))
    with pytest.raises(UserError, match=r"a\.json: .*user a is listed twice, or in another file"):
        load("femnist", root=tmp_path)


@pytest.mark.parametrize("ending", [".csv.gz", ".CSV.XZ"])
def test_a_compressed_table_has_bounds(tmp_path: Path, ending: str) -> None:
    pack = gzip.compress if ending == ".csv.gz" else lzma.compress
    path = tmp_path / f"table{ending}"
    path.write_bytes(pack(b"name\n1\n"))
    assert read_table(path, "").to_dict("list") == {"name": [1]}
    path.write_bytes(pack(bytes(300_000_000)))
    with pytest.raises(UserError, match="unpacks to more than"):
        read_table(path, "")


def test_missing_leaf_files_say_so(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"neither train\.json nor train/\*\.json"):
        load("femnist", root=tmp_path)
    with pytest.raises(UserError, match=r"missing train\.json, test\.json"):
        load("femnist")


GRAY = np.arange(12 * 28 * 28, dtype=np.uint8).reshape(12, 28, 28)
LABELS = np.arange(12) % 3


def pairs(x: str, y: str, test_x: str, test_y: str, **more: Any) -> dict[str, Any]:
    return {x: GRAY[:8], y: LABELS[:8], test_x: GRAY[8:], test_y: LABELS[8:], **more}


@pytest.mark.parametrize(
    "arrays",
    [
        pairs("x_train", "y_train", "x_test", "y_test"),
        pairs("X_train", "y_train", "X_test", "y_test"),
        pairs("train_x", "train_y", "test_x", "test_y"),
        pairs("train_images", "train_labels", "test_images", "test_labels"),
        pairs("train_data", "train_labels", "test_data", "test_labels"),
        # MedMNIST: labels (n, 1), and a validation pair, which is not used.
        pairs("train_images", "train_labels", "test_images", "test_labels")
        | {"train_labels": LABELS[:8, None], "test_labels": LABELS[8:, None]}
        | {"val_images": GRAY[:2], "val_labels": LABELS[:2, None]},
    ],
)
def test_training_and_test_pairs(tmp_path: Path, arrays: dict[str, Any]) -> None:
    dataset = load("npz", path=save_npz(tmp_path / "mnist.npz", **arrays))
    assert dataset.train_x.shape == (8, 1, 28, 28)
    assert np.array_equal(dataset.train_x[:, 0], GRAY[:8])
    assert np.array_equal(dataset.test_x[:, 0], GRAY[8:])
    assert dataset.train_y.tolist() == LABELS[:8].tolist()
    assert dataset.test_y.tolist() == LABELS[8:].tolist()
    assert any("not used: val_images, val_labels" in note for note in dataset.notes) == (
        "val_images" in arrays
    )


def test_an_archive_with_an_array_twice_is_refused(tmp_path: Path) -> None:
    path = save_npz(tmp_path / "own.npz", x=GRAY, y=np.arange(len(GRAY)) % 2)
    with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("y.npy", archive.read("y.npy"))
    with pytest.raises(UserError, match="it contains 'y' twice"):
        load("npz", path=path)


def test_pairs_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    arrays = pairs("x_train", "y_train", "x_test", "y_test")
    for change in ({"y_test": LABELS[:3]}, {"x_test": GRAY[8:, :14]}):
        path = save_npz(tmp_path / "own.npz", **arrays | change)
        with pytest.raises(UserError, match="do not fit together"):
            load("npz", path=path)


def _load(tmp_path: Path, x: Any, y: Any = LABELS, **params: Any) -> Dataset:
    return load("npz", path=save_npz(tmp_path / "own.npz", x=x, y=y), test_share=0.01, **params)


@pytest.mark.parametrize(
    ("shape", "layout", "expected", "noted"),
    [
        ((28, 28), "auto", (1, 28, 28), True),
        ((28, 28), "channels_first", (28, 28), False),
        ((28, 28), "channels_last", (1, 28, 28), False),
        ((128, 9), "auto", (128, 9), False),
        ((32, 24, 3), "auto", (3, 32, 24), True),
        ((32, 24, 3), "channels_first", (32, 24, 3), False),
        ((8, 9, 8), "channels_last", (8, 8, 9), False),
        ((3, 32, 24), "auto", (3, 32, 24), False),
        ((3, 32, 3), "auto", (3, 32, 3), False),
        ((8, 9, 8), "auto", (8, 9, 8), False),
        ((7,), "auto", (7,), False),
    ],
)
def test_axes_of_images(
    tmp_path: Path, shape: tuple[int, ...], layout: str, expected: tuple[int, ...], noted: bool
) -> None:
    x = np.random.default_rng(0).integers(0, 255, (12, *shape), dtype=np.uint8)
    dataset = _load(tmp_path, x, layout=layout)
    assert dataset.input_shape == expected
    assert bool(dataset.notes) == noted
    assert [str(doubt.message) for doubt in dataset.doubts()] == [
        f"data set own: {note}" for note in dataset.notes
    ]
    channels_moved = len(shape) == 3 and expected != shape
    stored = x.transpose(0, 3, 1, 2) if channels_moved else x.reshape(12, *expected)
    assert np.array_equal(dataset.train_x, stored)


@pytest.mark.parametrize(
    ("y", "params", "classes"),
    [
        (LABELS.astype(np.float64), {}, ("0", "1", "2")),
        (np.eye(3)[LABELS], {}, ("0", "1", "2")),
        (np.eye(3, dtype=bool)[LABELS], {}, ("0", "1", "2")),
        (np.array(["ant", "bee", "cow"])[LABELS], {}, ("ant", "bee", "cow")),
        (np.array([b"ant", b"bee", b"cow"])[LABELS], {}, ("ant", "bee", "cow")),
        (LABELS + 1, {"labels_from": 1}, ("0", "1", "2")),
        (LABELS[:, None], {}, ("0", "1", "2")),
    ],
)
def test_forms_of_labels(
    tmp_path: Path, y: Any, params: dict[str, Any], classes: tuple[str, ...]
) -> None:
    dataset = _load(tmp_path, np.zeros((12, 2)), y, **params)
    assert dataset.train_y.tolist() == LABELS.tolist()
    assert dataset.class_names == classes


def test_labels_from_one_without_saying_so_are_a_doubt(tmp_path: Path) -> None:
    (doubt,) = _load(tmp_path, np.zeros((12, 2)), LABELS + 1).doubts()
    assert "class 0" in doubt.message
    assert "labels_from: 1" in (doubt.hint or "")


@pytest.mark.parametrize(("samples", "share", "tests"), [(10, 0.2, 2), (10, 0.25, 2), (7, 0.5, 4)])
def test_the_rounded_share_of_samples_is_held_out(samples: int, share: float, tests: int) -> None:
    marks = held_out(samples, share, 3)
    assert marks.dtype == bool
    assert marks.sum() == tests
    assert np.array_equal(marks, held_out(samples, share, 3))


def test_held_out_samples_are_spread_evenly() -> None:
    """Each position is a test sample about as often as the share says."""
    counts = np.sum([held_out(20, 0.25, seed) for seed in range(400)], axis=0)
    assert counts.sum() == 400 * 5
    assert abs(counts - 100).max() < 5 * np.sqrt(400 * 0.25 * 0.75)


@pytest.mark.parametrize("is_test", [[0, 0, 1, 1], [1, 0, 0, 1]])
def test_samples_labels_and_groups_stay_together(is_test: list[int]) -> None:
    marks = np.array(is_test, dtype=bool)
    x = np.arange(8, dtype=np.float32).reshape(4, 2)
    dataset = split_dataset(
        x, np.arange(4), marks, np.array(["b", "a", "b", "c"]), name="own", classes=4
    )
    assert np.array_equal(dataset.train_x, x[~marks])
    assert np.array_equal(dataset.test_x, x[marks])
    assert dataset.train_y.tolist() == np.flatnonzero(~marks).tolist()
    assert dataset.group_names == ("a", "b", "c")
    assert dataset.test_groups is not None
    assert dataset.test_groups.tolist() == np.array([1, 0, 1, 2])[marks].tolist()
    assert np.shares_memory(dataset.train_x, x) == (not is_test[0]), "a view if no copy is needed"


def test_features_are_standardized_by_the_training_samples() -> None:
    x = np.array([[1.0, 5.0], [3.0, 5.0], [100.0, 7.0]])
    scaled = standardized(x, np.array([False, False, True]))
    assert scaled.dtype == np.float32
    assert scaled.tolist() == [[-1, 0], [1, 0], [98, 2]], "a constant feature is only shifted"


def test_a_constant_feature_is_not_divided_by_rounding_error() -> None:
    """The mean of a hundred times 0.3 is not 0.3, so the computed deviation is 5.6e-17; the test rows have 0.35."""
    x = np.full((120, 1), 0.3)
    x[100:] = 0.35
    scaled = standardized(x, np.arange(120) >= 100)
    np.testing.assert_allclose(scaled[:100], 0.0, atol=1e-12)
    np.testing.assert_allclose(scaled[100:], 0.05, rtol=1e-6)
    # A small spread about a large mean is one.
    small = standardized(1e6 + np.array([[0.0], [1e-3]]), np.zeros(2, bool))
    np.testing.assert_allclose(small, [[-1.0], [1.0]], rtol=1e-4)
