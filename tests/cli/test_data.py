"""``fedsim data``."""

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result

from tests.cli.invoking import assert_refused, invoke
from tests.lines import rows


def fedsim(*arguments: str) -> Result:
    return invoke("data", *arguments)


def test_list_names_every_data_set() -> None:
    plain = fedsim("list")
    assert plain.exit_code == 0
    rows = json.loads(fedsim("list", "--json").stdout)
    assert {"digits", "mnist", "shakespeare", "table"} <= set(rows)
    assert [line.split()[0] for line in plain.stdout.splitlines()] == sorted(rows)


def test_prepare_says_what_is_in_a_data_set() -> None:
    described = json.loads(fedsim("prepare", "digits", "--json").stdout)
    assert described["training_samples"] == sum(described["samples_per_class"]) == 1438
    assert described["shape"] == [1, 8, 8]
    assert described["classes"] == 10
    text = fedsim("prepare", "digits").stdout
    assert "training samples   1,438" in text
    assert "groups" not in text


def test_prepare_names_the_features_of_a_table_and_warns_about_labels(tmp_path: Path) -> None:
    (tmp_path / "own.csv").write_text("age,dose,kind\n" + "3,1,a\n2,7,b\n" * 5)
    table = fedsim("prepare", "table", "-s", f"path={tmp_path / 'own.csv'}", "-s", "target=kind")
    assert "features           'age', 'dose'" in table.stdout
    assert not table.stderr
    np.savez(tmp_path / "own.npz", x=np.ones((20, 3)), y=np.arange(20) % 3 + 1)
    arrays = fedsim("prepare", "npz", "-s", f"path={tmp_path / 'own.npz'}")
    assert arrays.stderr.startswith("warning: class 0 of data set own has no samples\n")


MISTAKES = """
digit | there is no data set named 'digit'
digits -s root=x | unknown key
gaussian_mixture -s samples | write a dotted path
mnist -s root=nowhere | no such folder
table -s path=x.csv -s target=y | paths refer to the current folder
"""


@pytest.mark.parametrize(("arguments", "message"), rows(MISTAKES))
def test_prepare_refuses_what_it_does_not_know(
    arguments: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert_refused(fedsim("prepare", *arguments.split()), message)
