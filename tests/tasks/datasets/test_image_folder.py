"""A user's own images."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedsim.errors import UserError
from tests.tasks.toys import load


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


def test_folders_that_begin_with_a_dot_are_no_classes_and_images_that_do_not_fit_say_why(
    tmp_path: Path,
) -> None:
    def refused(message: str, folder: str = "", **params: Any) -> None:
        with pytest.raises(UserError, match=message):
            load("image_folder", root=tmp_path / folder, **params)

    refused("no such folder", "nowhere")
    for name in ("a", ".cache"):
        save_image(tmp_path / name / "1.png", 1)
    save_image(tmp_path / "a" / "._1.png", 1)
    refused("1 class folders")
    save_image(tmp_path / "b" / "1.png", 1, size=(6, 6))
    refused("6 x 6 pixels, others 5 x 4")
    assert load("image_folder", root=tmp_path, size=(4, 4)).class_names == ("a", "b")
    (tmp_path / "c").mkdir()
    refused("c: contains no images", size=(4, 4))
    (tmp_path / "b" / "1.png").write_bytes(b"no image")
    refused(r"1\.png.*cannot be read")
    for folder in ("s/train/a", "s/train/b", "s/test/a", "s/test/z"):
        save_image(tmp_path / folder / "1.png", 1)
    refused(r"no class 'z' in .*train", "s")
