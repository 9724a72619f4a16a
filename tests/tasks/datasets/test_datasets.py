"""Data sets: the sizes of the real ones, files of each format, and those that are generated."""

import gzip
import os
import pickle
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsim.errors import UserError
from fedsim.parts.catalog import CATALOG
from fedsim.tasks.datasets.images import MNIST_FILES, Mnist
from tests.tasks.files import batch, equal, idx, idx_arrays, leaf, save_npz
from tests.tasks.toys import load


@pytest.mark.real_data
@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("mnist", (60000, 10000, (1, 28, 28), 10, 0)),
        ("fashion_mnist", (60000, 10000, (1, 28, 28), 10, 0)),
        ("uci_har", (7715, 2584, (9, 128), 6, 30)),
        ("heart_disease", (494, 246, (13,), 2, 4)),
    ],
)
def test_real_data_have_their_known_sizes(real: Path, name: str, sizes: tuple[Any, ...]) -> None:
    dataset = load(name)
    samples = len(dataset.train_y), len(dataset.test_y), dataset.input_shape
    assert (*samples, dataset.classes, len(dataset.group_names)) == sizes
    if dataset.scale is not None and dataset.shift is not None:
        seen = dataset.train_x[:3000] * dataset.scale + dataset.shift
        assert abs(float(seen.mean())) < 0.05
        assert float(seen.std()) == pytest.approx(1, abs=0.05)


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
        of_group = dataset.train_groups == group
        x = np.c_[dataset.train_x[of_group], np.ones(of_group.sum())]
        weights.append(np.linalg.lstsq(x, dataset.train_y[of_group] - 0.5, rcond=None)[0])
    cosines = [
        weights[a] @ weights[b] / np.linalg.norm(weights[a]) / np.linalg.norm(weights[b])
        for a in range(4)
        for b in range(a)
    ]
    assert max(cosines) < 0.9


def test_synthetic_follows_its_law() -> None:
    dataset = load("synthetic", alpha=0.5, beta=0.5, devices=20)
    assert dataset.input_shape == (60,)
    assert dataset.train_groups is not None
    sizes = np.bincount(dataset.train_groups)
    assert len(sizes) == 20
    assert sizes.min() >= 45, "50 samples or more, a tenth set aside"
    # Variance of feature j around its device's mean is j ^ -1.2.
    largest = int(np.argmax(sizes))
    group_x = dataset.train_x[dataset.train_groups == largest]
    assert group_x.var(axis=0)[[0, 9, 59]] == pytest.approx(np.array([1, 10, 60]) ** -1.2, rel=0.5)
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


def test_digits_are_scikit_learns_with_a_fixed_split() -> None:
    from sklearn.datasets import load_digits

    dataset = load("digits")
    assert (len(dataset.train_y), len(dataset.test_y)) == (1438, 359)
    theirs = load_digits()
    is_test = np.arange(len(theirs.target)) % 5 == 4
    for x, y, rows in (
        (dataset.train_x, dataset.train_y, ~is_test),
        (dataset.test_x, dataset.test_y, is_test),
    ):
        assert np.array_equal(x[:, 0], theirs.images[rows])
        assert np.array_equal(y, theirs.target[rows])
    assert dataset.train_x.dtype == np.uint8
    assert dataset.scale is not None
    assert (dataset.train_x * dataset.scale).max() == 1.0
    assert np.bincount(dataset.train_y).min() > 120


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
    (tmp_path / "train").write_bytes(batch(0, fine_labels=["a"] * 6))
    with pytest.raises(UserError, match=r"train: .*images of 3 x 32 x 32 bytes and one entry of"):
        load("cifar100", root=tmp_path)
    for wrong in ({}, {"fine_label_names": 100}, {"fine_label_names": ["f0"]}):
        (tmp_path / "meta").write_bytes(pickle.dumps(wrong, protocol=2))
        with pytest.raises(UserError, match=r"meta: .*does not name 100 fine labels"):
            load("cifar100", root=tmp_path)


def test_cifar_batches_are_read_in_the_asked_order(cifar_folder: Path) -> None:
    dataset = load("cifar10", root=cifar_folder, batches=[5, 1])
    assert dataset.train_y.tolist() == [5] * 6 + [1] * 6
    assert dataset.input_shape == (3, 32, 32)
    assert dataset.train_x[0, 0, 0, :3].tolist() == [5, 6, 7]
    assert dataset.train_x[0, 1, 0, 0] == (1024 + 5) % 256
    assert dataset.scale is not None
    assert dataset.scale.shape == (3, 1, 1)


@pytest.mark.real_data
def test_real_cifar_classes(real: Path) -> None:
    dataset = load("cifar10", batches=[1])
    assert dataset.input_shape == (3, 32, 32)
    assert len(dataset.test_y) == 10000
    assert np.bincount(dataset.train_y[:10000]).tolist() == [
        1005, 974, 1032, 1016, 999, 937, 1030, 1001, 1025, 981,
    ]  # fmt: skip


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
    os.mkfifo(tmp_path / "test" / "3.json")
    with pytest.raises(UserError, match=r"3\.json: .*not a regular file"):
        load("femnist", root=tmp_path)


@pytest.mark.real_data
def test_real_femnist_writers(real: Path) -> None:
    dataset = load("femnist", root=real / "femnist_leaf_sample")
    assert dataset.train_groups is not None
    assert np.bincount(dataset.train_groups).tolist() == [11, 16, 17, 18, 16]
    assert len(dataset.test_y) == 89


def test_heart_disease_drops_columns_codes_and_incomplete_patients(tmp_path: Path) -> None:
    line = "63,1,{cp},145,233,1,{ecg},150,0,{peak},3,{ca},6,{num}\n"
    for index, center in enumerate(("cleveland", "hungarian", "switzerland", "va")):
        rows = [
            line.format(cp=1 + k % 4, ecg=k % 3, peak=k + index, ca="?", num=k % 3)
            for k in range(12)
        ]
        rows.append(line.format(cp=1, ecg="?", peak=1, ca=0, num=0))
        (tmp_path / f"processed.{center}.data").write_text("".join(rows))
    dataset = load("heart_disease", root=tmp_path)
    assert dataset.input_shape == (13,)
    assert dataset.train_groups is not None
    assert np.bincount(dataset.train_groups).tolist() == [8] * 4
    assert len(dataset.test_y) == 16
    labels = np.sort(np.concatenate([dataset.train_y, dataset.test_y]))
    assert labels.tolist() == [0] * 16 + [1] * 32, "target = (num > 0)"
    for old, new, what in (
        ("145", "1e308", "number that is finite in float32"),
        ("145", "1_45", "number that is finite in float32"),
        ("145", "5%", "number that is finite in float32"),
        ("1,145", "77,145", "code from 1 to 4"),
        *((",1\n", f",{wrong}\n", "code from 0 to 4") for wrong in ("-1", "9", "0.5", "5", "x")),
    ):
        (tmp_path / "processed.va.data").write_text("".join(rows).replace(old, new))
        line, shown = (2 if old == ",1\n" else 1), new.strip(",\n").partition(",")[0]
        with pytest.raises(
            UserError, match=rf"processed\.va\.data: .*line {line} has '{shown}', not a {what}"
        ):
            load("heart_disease", root=tmp_path)
    (tmp_path / "processed.va.data").write_text("1,2,3\n")
    with pytest.raises(UserError, match=r"processed\.va\.data.*line 1 has 3 columns"):
        load("heart_disease", root=tmp_path)


@pytest.mark.real_data
def test_real_hearts(real: Path) -> None:
    # FLamby's Fed-Heart-Disease has 303, 261, 46 and 130 patients in its four centers.
    dataset = load("heart_disease")
    groups = np.concatenate([dataset.train_groups, dataset.test_groups])
    assert np.bincount(groups).tolist() == [303, 261, 46, 130]


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
        {"x": np.full((4, 9, 128), "a")},
        {"x": np.full((4, 9, 128), 1e39)},
        {"x": np.zeros((4, 0, 128))},
        {"x": np.zeros((4, 128, 9))},
        {"is_test": np.array([0, 1, 0, 5])},
    ):
        save_npz(tmp_path / "har_inertial.npz", **{**arrays, **wrong})
        with pytest.raises(UserError, match="differ in length or have unexpected shapes"):
            load("uci_har", root=tmp_path)
    for wrong in ({"is_test": np.ones(4, dtype=bool)}, {"subject": np.full(4, 10**9)}):
        save_npz(tmp_path / "har_inertial.npz", **{**arrays, **wrong})
        with pytest.raises(UserError, match="all windows are test samples, or subjects"):
            load("uci_har", root=tmp_path)


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
    component = CATALOG.parts("dataset")["mnist"]
    relative = component(component.Params(root=Path("images")))
    assert len(relative.load(idx_folder.parent).train_y) == 30
    (idx_folder.parent / "datasets").mkdir()
    idx_folder.rename(idx_folder.parent / "datasets" / "mnist")
    monkeypatch.setenv("FEDSIM_DATA", str(idx_folder.parent))
    assert len(load("mnist").train_y) == 30


def test_missing_files_and_wrong_labels_are_named(idx_folder: Path) -> None:
    def refused(message: str, root: Path = idx_folder) -> None:
        with pytest.raises(UserError, match=message):
            load("mnist", root=root)

    labels = idx_folder / f"{MNIST_FILES[1]}.gz"
    labels.write_bytes(gzip.compress(idx(np.full(30, 11))))
    refused("train labels run from 11 to 11, outside 0 to 9")
    labels.write_bytes(gzip.compress(idx(np.full(29, 1))))
    refused(f"{MNIST_FILES[1]}.gz: has 29 labels for the 30 images of {MNIST_FILES[0]}")
    labels.unlink()
    refused(f"missing {MNIST_FILES[1]} in .*images")
    refused("no such folder", idx_folder / "nowhere")


def test_pixels_are_normalized_or_run_from_zero_to_one(idx_folder: Path) -> None:
    for normalize, low, high in ((True, -0.1307 / 0.3081, 0.8693 / 0.3081), (False, 0.0, 1.0)):
        dataset = load("mnist", root=idx_folder, normalize=normalize)
        assert dataset.scale is not None
        assert dataset.shift is not None
        ends = np.array([0, 255]) * dataset.scale.item() + dataset.shift.item()
        assert ends == pytest.approx([low, high], rel=1e-5)


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


def test_links_to_folders_of_images_lead_to_one_class(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedsim.tasks.datasets.files._MOST_OTHERS", 3)
    for name in ("im/a", "im/b", "scratch/c"):
        save_image(tmp_path / name / "0.png", 1)
    link = tmp_path / "im" / "z"
    link.symlink_to(tmp_path / "scratch" / "c")
    assert load("image_folder", root=tmp_path / "im").class_names == ("a", "b", "z")
    for target in (Path("/"), tmp_path, tmp_path / "im", Path("..")):
        link.unlink()
        link.symlink_to(target)
        with pytest.raises(UserError, match=r"im.z: leads to .*, which contains the data set"):
            load("image_folder", root=tmp_path / "im")
    link.rename(tmp_path / "train")
    (tmp_path / "test").mkdir()
    with pytest.raises(UserError, match=r"train: leads to"):
        load("image_folder", root=tmp_path)
    for number in range(4):
        (tmp_path / "scratch" / "d" / f"{number}").mkdir(parents=True)
    save_image(tmp_path / "scratch" / "d" / "3" / "4" / "0.png", 1)
    with pytest.raises(UserError, match=r"d: contains no images"):
        load("image_folder", root=tmp_path / "scratch")


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("ending", ["png", "tif"])
def test_16_bit_images_keep_their_precision(tmp_path: Path, channels: int, ending: str) -> None:
    from PIL import Image

    values = np.array([[0, 255, 256], [40000, 40001, 65535]], np.uint16)
    for name in ("a", "b"):
        for number in range(2):
            path = tmp_path / name / f"{number}.{ending}"
            path.parent.mkdir(exist_ok=True)
            Image.fromarray(values).save(path)
    dataset = load("image_folder", root=tmp_path, channels=channels, test_share=0.5)
    assert dataset.scale is None
    expected = np.stack([values / 65535] * channels)
    np.testing.assert_allclose(dataset.train_x, [expected, expected], rtol=1e-7)
    np.testing.assert_allclose(dataset.test_x, [expected, expected], rtol=1e-7)


@pytest.mark.parametrize(
    "names",
    [
        ("training_set", "test_set"),
        ("seg_train", "seg_test", "seg_pred"),
        ("train", "valid", "holdout"),
    ],
)
def test_sets_are_no_classes(names: tuple[str, ...], tmp_path: Path) -> None:
    for name in names:
        save_image(tmp_path / name / "cat" / "1.png", 1)
    with pytest.raises(UserError, match="are sets of samples, not classes"):
        load("image_folder", root=tmp_path)


def test_images_that_show_more_than_their_pixels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from PIL import Image

    for name in "ab":
        save_image(tmp_path / name / "1.png", 1)
    for junk in ("@eaDir", "__MACOSX"):
        save_image(tmp_path / junk / "1.png", 1)
        save_image(tmp_path / "a" / junk / "1.png", 1)
    path = tmp_path / "a" / "2.png"
    Image.new("RGBA", (5, 5)).save(path)
    with pytest.raises(UserError, match=r"2\.png: it is transparent"):
        load("image_folder", root=tmp_path)
    Image.new("RGBA", (4, 5), (9, 9, 9, 255)).save(path)
    assert load("image_folder", root=tmp_path, test_share=0.4).class_names == ("a", "b")
    one, two = (Image.new("RGB", (4, 5), color) for color in ("red", "blue"))
    path.unlink()
    one.save(tmp_path / "a" / "2.tif", save_all=True, append_images=[two])
    with pytest.raises(UserError, match=r"2\.tif: it has 2 pages or frames"):
        load("image_folder", root=tmp_path)
    (tmp_path / "a" / "2.tif").rename(tmp_path / "a" / "2.heic")
    turned = Image.new("RGB", (5, 4), "red")
    turned.getexif()[0x0112] = 6
    turned.save(tmp_path / "a" / "3.jpg", exif=turned.getexif())
    dataset = load("image_folder", root=tmp_path, test_share=0.4)
    assert dataset.train_x.shape[1:] == (3, 5, 4)
    (note,) = dataset.notes
    assert note.endswith("2.heic (and 0 others)")
    monkeypatch.setenv("FEDSIM_MAX_UNPACKED", "150B")
    with pytest.raises(UserError, match="unpacks to more than"):
        load("image_folder", root=tmp_path)


def test_folders_that_begin_with_a_dot_are_no_classes_and_images_that_do_not_fit_say_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from PIL import Image

    def refused(message: str, folder: str = "", **params: Any) -> None:
        with pytest.raises(UserError, match=message):
            load("image_folder", root=tmp_path / folder, **params)

    refused("no such folder", "nowhere")
    for name in ("a", ".cache"):
        save_image(tmp_path / name / "1.png", 1)
    save_image(tmp_path / "a" / "._1.png", 1)
    refused("1 class folders")
    for part in ("Train", "val"):
        save_image(tmp_path / ".parts" / part / "cat" / "1.png", 1)
    refused("Train and val are sets of samples, not classes", ".parts")
    Image.new("I;16", (4, 5), 60000).save(tmp_path / "a" / "2.png")
    save_image(tmp_path / "b" / "1.png", 1)
    refused(
        r"sample 1 is .* type float32, others .* type uint8\n  save all of them in the same type"
    )
    (tmp_path / "a" / "2.png").unlink()
    save_image(tmp_path / "b" / "1.png", 1, size=(6, 6))
    refused(r"b.1\.png: sample 1 is .*\(3, 6, 6\).*others have shape \(3, 5, 4\)")
    assert load("image_folder", root=tmp_path, size=(4, 4)).class_names == ("a", "b")
    (tmp_path / "c").mkdir()
    refused("c: contains no images", size=(4, 4))
    postscript = "%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\nshowpage\n"
    (tmp_path / "c" / "1.png").write_text(postscript)
    refused(r"1\.png: it cannot be read: cannot identify", size=(4, 4))
    monkeypatch.setenv("FEDSIM_MAX_UNPACKED", "1MB")
    save_image(tmp_path / "c" / "1.png", 1, size=(600, 600))
    refused(r"1\.png: unpacks to more than", size=(4, 4))
    (tmp_path / "c" / "1.png").unlink()
    os.mkfifo(tmp_path / "c" / "1.png")
    refused(r"1\.png: is not a regular file", size=(4, 4))
    (tmp_path / "c" / "1.png").unlink()
    (tmp_path / "c").rmdir()
    deep = np.full((5, 4), 40000, np.uint16)
    Image.fromarray(deep).save(tmp_path / "b" / "1.png")
    refused(r"b.1\.png: sample 1 is .*float32.*others have shape \(3, 5, 4\) and type uint8")
    Image.fromarray(deep.astype(np.float32)).save(tmp_path / "b" / "1.tif")
    (tmp_path / "b" / "1.png").unlink()
    refused("b.1.tif: the image has mode F")
    (tmp_path / "b" / "1.png").write_bytes(b"no image")
    refused(r"1\.png.*cannot be read")
    for folder in ("s/train/a", "s/train/b", "s/test/a", "s/test/z"):
        save_image(tmp_path / folder / "1.png", 1)
    refused(r"no class 'z' in .*train", "s")
