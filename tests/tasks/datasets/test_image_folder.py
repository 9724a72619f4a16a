"""A user's own images."""

from __future__ import annotations

from pathlib import Path

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
    with pytest.raises(UserError, match="c: contains no images"):
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
    for folder in ("train/a", "train/b", "test/a", "test/z"):
        save_image(tmp_path / folder / "1.png", 1)
    with pytest.raises(UserError, match=r"no class 'z' in .*train"):
        load("image_folder", root=tmp_path)
