"""Every scenario that comes with fedsim has the results that were recorded for it."""

import json
from pathlib import Path

import pytest

from benchmarks import safety_net

DOCUMENT = json.loads(safety_net.TABLE.read_text(encoding="utf-8"))
RECORDED = safety_net.recorded(DOCUMENT)
CASES = {
    case.name: case for case in safety_net.bundled() if case.name.count("/") == 1 and not case.data
}


def test_every_scenario_is_recorded() -> None:
    assert set(CASES) <= set(RECORDED)


@pytest.mark.parametrize("name", CASES)
def test_results_are_as_recorded(name: str, tmp_path: Path) -> None:
    _, result, _ = safety_net.run_case((CASES[name], tmp_path))
    # What a processor rounds differently is compared only on one like the recorder's.
    alike = safety_net.fingerprint() == DOCUMENT["fingerprint"]
    folder = tmp_path / name.replace("/", "_")
    assert not list(
        safety_net.differences(CASES[name], RECORDED[name], result, folder, alike=alike)
    )
