"""LEAF files."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedsim.errors import UserError
from tests.tasks.files import leaf
from tests.tasks.toys import load


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not LEAF JSON"),
        ("[]", "not LEAF JSON"),
        ('{"users": ["a"], "user_data": {}}', "not LEAF JSON"),
        (leaf({"a": ([[0.0] * 784], [1, 2])}), "user a has 1 samples and 2 labels"),
        (leaf({"a": ([[0.0] * 783], [1])}), "not have 784 numbers"),
        (leaf({"a": ([[255.0] * 784], [1])}), "outside 0 to 1"),
    ],
)
def test_a_damaged_leaf_file_says_so(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "train.json").write_text(text)
    (tmp_path / "test.json").write_text(leaf({"a": ([[0.0] * 784], [1])}))
    with pytest.raises(UserError, match=message):
        load("femnist", root=tmp_path)


def test_missing_leaf_files_say_so(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"neither train\.json nor train/\*\.json"):
        load("femnist", root=tmp_path)
    with pytest.raises(UserError, match=r"missing train\.json, test\.json"):
        load("femnist")
