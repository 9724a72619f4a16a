"""Shakespeare."""

from pathlib import Path

import numpy as np
import pytest

from fedsim.errors import UserError
from fedsim.tasks.datasets.leaf import _speeches
from tests.tasks.files import equal, leaf
from tests.tasks.toys import load


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
    with pytest.raises(UserError, match="samples differ in length"):
        load("shakespeare", root=tmp_path)
    for x, y in (("abc", 3), ([1, 2, 3], "c"), ("abc", ""), ("ab", "cd")):
        (tmp_path / "train.json").write_text(leaf({"A": ([x], [y])}))
        with pytest.raises(UserError, match="must be text"):
            load("shakespeare", root=tmp_path)
    for file in ("train", "test"):
        (tmp_path / f"{file}.json").write_text(leaf({}))
    with pytest.raises(UserError, match="it has no samples"):
        load("shakespeare", root=tmp_path)


PLAY = """First:
abcdefghij
klm

Second:
xy

First:
nopqrstuvw
"""


def test_text_of_other_forms(tmp_path: Path) -> None:
    """A byte order mark is no part of a role, and codes of more than 256 characters do not fit."""
    given = {"root": tmp_path, "length": 4, "test_share": 0.4}
    (tmp_path / "input.txt").write_text(PLAY)
    plain = load("shakespeare", **given)
    (tmp_path / "input.txt").write_text(PLAY, encoding="utf-8-sig")
    assert load("shakespeare", **given).group_names == plain.group_names
    (tmp_path / "input.txt").write_bytes(PLAY.replace("\n", "\r\n").encode())
    assert equal(load("shakespeare", **given), plain)
    (tmp_path / "input.txt").write_text(PLAY + "".join(map(chr, range(400, 700))))
    with pytest.raises(UserError, match="different characters; at most 256"):
        load("shakespeare", **given)
    (tmp_path / "input.txt").write_text(PLAY.replace("e", "\0"))
    with pytest.raises(UserError, match="has the character 0"):
        load("shakespeare", **given)


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


def test_blanks_at_the_end_of_lines_move_no_speech(tmp_path: Path) -> None:
    path = tmp_path / "input.txt"
    path.write_text("A:\nfirst \n \nB: \nsecond\n\nA:\nthird\n")
    assert _speeches(path) == {"A": "first \nthird", "B": "second"}
