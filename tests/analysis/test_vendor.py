"""The charting library in the package: its version, its licenses, and how much room a page takes."""

import json
from pathlib import Path

import fedsim.analysis

VENDOR = Path(fedsim.analysis.__file__).with_name("vendor")
TOOLS = Path(__file__).parents[2] / "tools" / "echarts"


def test_the_bundle_is_the_version_that_its_script_builds() -> None:
    stated = json.loads((TOOLS / "package.json").read_text())["dependencies"]["echarts"]
    locked = json.loads((TOOLS / "package-lock.json").read_text())["packages"][
        "node_modules/echarts"
    ]
    assert locked["version"] == stated
    head = (VENDOR / "echarts.min.js").read_text(encoding="utf-8")[:300]
    assert f"Apache ECharts {stated} (Apache-2.0)" in head


def test_licenses_come_with_it() -> None:
    assert "Apache License" in (VENDOR / "LICENSE").read_text()
    assert "Apache ECharts" in (VENDOR / "NOTICE").read_text()
    assert (VENDOR / "LICENSE-zrender").exists()
    assert (VENDOR / "LICENSE-tslib").exists()


def test_it_evaluates_no_text_and_leaves_room_in_a_page() -> None:
    text = (VENDOR / "echarts.min.js").read_text(encoding="utf-8")
    assert "new Function" not in text
    assert "eval(" not in text
    assert "</script" not in text
    assert len(text) < 1_000_000
