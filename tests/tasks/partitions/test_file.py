"""A partition from a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedsim.errors import UserError
from fedsim.parts.catalog import CATALOG
from fedsim.randomness import Purpose, Stream
from fedsim.tasks.dataset import Dataset
from fedsim.tasks.partition import Partition
from tests.tasks.toys import own_test_rows, split, toy_dataset, train_rows


def from_file(tmp_path: Path, text: str, dataset: Dataset | None = None) -> Partition:
    (tmp_path / "dealt.csv").write_text(text)
    component = CATALOG.parts("partition")["file"]
    partitioner = component(component.Params(path=Path("dealt.csv")))
    return partitioner.split(dataset or toy_dataset(), Stream(0, Purpose.PARTITION), tmp_path)


def test_a_file_deals_what_it_says(tmp_path: Path) -> None:
    partition = from_file(tmp_path, "sample,client\n5,1\n9,0\n2,1\n")
    assert [train_rows(partition, client).tolist() for client in (0, 1)] == [[9], [2, 5]]


def test_a_parquet_file_deals_the_same(tmp_path: Path) -> None:
    import pandas as pd

    path = tmp_path / "dealt.parquet"
    pd.DataFrame({"sample": [5, 9, 2], "client": [1, 0, 1]}).to_parquet(path)
    partition = split(toy_dataset(), "file", path=path)
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
        ("sample,client\n1,0\n1,1\n", "dealt.csv:3: has the sample 1 "),
        ("sample,client\n600,0\n", "dealt.csv:2: has the sample 600 .*\n.* 0 to 599"),
        ("sample,client\n1,0\n\n-1,0\n", "dealt.csv:4: has the sample -1 "),
        ("sample,client\n1,0\n2,2\n", "client 1 has no training samples"),
        ("sample,client\n1,0\n2,1000000000000\n", "client 1 has no training samples"),
        ("sample,client,is_test\n1,0,0\n2,1,1\n", "client 1 has no training samples"),
        ("sample,client,is_test\n1,0,0\n2,0,2\n", "'is_test' contains values other"),
        ("sample,client\n2,0\n1,-1\n", "dealt.csv:3: .* of client -1"),
        ("row,client\n1,0\n", "no column 'sample' of whole numbers"),
        ("sample,client\n1,x\n", "no column 'client' of whole numbers"),
        ("sample,client\n", "it has no rows"),
        ("", "cannot be read"),
    ],
)
def test_a_wrong_file_is_a_clear_error(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        from_file(tmp_path, text)
