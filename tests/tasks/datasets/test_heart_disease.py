"""UCI heart disease."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedsim.errors import UserError
from tests.tasks.toys import load


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
    (tmp_path / "processed.va.data").write_text("1,2,3\n")
    with pytest.raises(UserError, match=r"processed\.va\.data.*line 1 has 3 columns"):
        load("heart_disease", root=tmp_path)


@pytest.mark.real_data
def test_real_hearts(real: Path) -> None:
    # FLamby's Fed-Heart-Disease has 303, 261, 46 and 130 patients in its four centers.
    dataset = load("heart_disease")
    groups = np.concatenate([dataset.train_groups, dataset.test_groups])
    assert np.bincount(groups).tolist() == [303, 261, 46, 130]
