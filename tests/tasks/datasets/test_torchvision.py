"""Data sets of torchvision, for which a stand-in with its interface is used."""

import os
import pickle
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from fedsim.errors import UserError
from fedsim.parts.extras import required
from tests.tasks.files import EPS, bitmap, equal
from tests.tasks.toys import load

PIXELS = np.random.default_rng(0).integers(0, 256, (12, 5, 4, 3)).astype(np.uint8)
MADE: list[dict[str, Any]] = []


class Street:
    """Images by ``split``."""

    def __init__(self, root: str, split: str = "train", download: bool = False) -> None:
        MADE.append({"root": root, "split": split, "download": download})
        if split not in ("train", "extra", "test"):
            raise ValueError(f"Unknown value '{split}'")
        self.rows = range(8) if split != "test" else range(8, 12)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, row: int) -> tuple[Any, int]:
        from PIL import Image

        return Image.fromarray(PIXELS[self.rows[row]]), self.rows[row] % 3


class Letters(Street):
    """Images by ``train``, which is hidden among other arguments, as in EMNIST."""

    classes = ["a", "b", "c"]

    def __init__(self, root: str, split: str, **kwargs: Any) -> None:
        super().__init__(root, "train" if kwargs.pop("train", True) else "test", **kwargs)


class Stored(Street):
    """Images in files, and a pickle, as torchvision reads them."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.root = Path(root)
        for file in self.root.glob("*.pickle"):
            pickle.load(file.open("rb"), encoding="latin1")

    def __getitem__(self, row: int) -> tuple[Any, int]:
        from PIL import Image

        with (self.root / f"{row}.png").open("rb") as file:
            return Image.open(file).convert("RGB"), row % 2


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("3.png", EPS, r"3\.png: it cannot be read: cannot identify"),
        ("3.png", bitmap(40_000), r"3\.png: unpacks to more than"),
        ("3.png", bitmap(4), r"3\.png: it cannot be read: image file is truncated"),
        ("3.png", None, r"it cannot be read: FileNotFoundError.*3\.png"),
        ("a.pickle", pickle.dumps(Path("x")), "it cannot be read: RefusedPickle: pathlib"),
        ("pipe", None, "it cannot be read: OSError.*pipe"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_files_of_others_are_plain_data(
    tmp_path: Path, file: str, content: bytes | None, message: str
) -> None:
    for row in range(8):
        (tmp_path / f"{row}.png").write_bytes(b"P6 2 2 255\n" + bytes(range(row, row + 12)))
    assert load("torchvision", dataset="Stored", root=tmp_path).input_shape == (3, 2, 2)
    if content is not None:
        (tmp_path / file).write_bytes(content)
    elif file == "pipe":
        os.mkfifo(tmp_path / file)
    else:
        (tmp_path / file).unlink()
    with pytest.raises(UserError, match=message):
        load("torchvision", dataset="Stored", root=tmp_path)


@pytest.fixture(autouse=True)
def _stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    package, module = ModuleType("torchvision"), ModuleType("torchvision.datasets")
    vars(module).update(
        Street=Street, Letters=Letters, Stored=Stored, __all__=["Street", "Letters"]
    )
    monkeypatch.setitem(sys.modules, "torchvision", package)
    monkeypatch.setitem(sys.modules, "torchvision.datasets", module)
    MADE.clear()


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ({"dataset": "Street"}, ("0", "1", "2")),
        ({"dataset": "Letters", "arguments": {"split": "letters"}}, ("a", "b", "c")),
    ],
)
def test_training_and_test_images(tmp_path: Path, given: Any, names: tuple[str, ...]) -> None:
    dataset = load("torchvision", root=tmp_path, **given)
    assert np.array_equal(dataset.train_x, PIXELS[:8].transpose(0, 3, 1, 2))
    assert np.array_equal(dataset.test_x, PIXELS[8:].transpose(0, 3, 1, 2))
    assert dataset.test_y.tolist() == [2, 0, 1, 2]
    assert dataset.class_names == names
    assert not any(each["download"] for each in MADE)
    assert equal(load("torchvision", root=tmp_path, **given), dataset)


def test_without_a_root_files_are_downloaded(tmp_path: Path) -> None:
    load("torchvision", dataset="Street")
    assert all(each["download"] and str(tmp_path) in each["root"] for each in MADE)
    shared = load("torchvision", dataset="Street", arguments={"split": "extra"}, test_share=0.25)
    assert (len(shared.train_y), len(shared.test_y)) == (6, 2)


def test_mistakes_name_the_classes_and_arguments(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no data set 'Stret'") as refusal:
        load("torchvision", dataset="Stret", root=tmp_path)
    assert "Street" in str(refusal.value.hint)
    with pytest.raises(UserError, match="Unknown value 'val'") as refusal:
        load("torchvision", dataset="Street", root=tmp_path, test_split="val")
    assert "split" in str(refusal.value.hint)


def test_a_torchvision_of_another_torch_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(name: str) -> None:
        raise RuntimeError("operator torchvision::nms does not exist")

    monkeypatch.setattr("importlib.import_module", fails)
    with pytest.raises(UserError, match="cannot be imported: operator") as refusal:
        required("torchvision.datasets", "torchvision", "here")
    assert "fits" in str(refusal.value.hint)
    monkeypatch.undo()
    with pytest.raises(UserError, match="nonesuch is not installed") as refusal:
        required("nonesuch.datasets", "none", "here")
    assert refusal.value.hint == 'pip install "fedsim-des[none]"'
