"""Every example of the page on extending fedsim runs in the scenario at its top, and every kind has one."""

import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

import fedsim
from tests.docs.pages import blocks, exit_code, working_in

PAGE = Path(__file__).resolve().parents[2] / "docs" / "extending.md"
BLOCKS = [block for block in blocks(PAGE) if block.language in ("yaml", "python")]
SCENARIO: dict[str, Any] = YAML(typ="safe", pure=True).load(BLOCKS[0].text)
EXAMPLES = {
    match[1]: (code, use)
    for code, use in pairwise(BLOCKS[1:])
    if (match := re.match(r"# (my_\w+\.py)\n", code.text))
}


def merged(base: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    """The scenario with the keys of an example replaced; a part is replaced as a whole."""
    result = dict(base)
    for key, value in change.items():
        nested = (
            isinstance(value, dict) and isinstance(result.get(key), dict) and "name" not in value
        )
        result[key] = merged(result[key], value) if nested else value
    return result


@pytest.mark.parametrize("file", EXAMPLES)
def test_an_example_runs(file: str, tmp_path: Path) -> None:
    code, use = EXAMPLES[file]
    (tmp_path / file).write_text(code.text)
    with working_in(tmp_path):
        if use.language == "console":
            Path("shifts.txt").write_text("lathe 6 14\nmill 14 22\n")
            assert exit_code(use.text.strip()) == 0
            assert exit_code("fedsim traces validate shifts") == 0
            return
        change = YAML(typ="safe", pure=True).load(use.text)
        run = fedsim.run({**merged(SCENARIO, change), "stop": {"rounds": 3}}, "run")
        assert run.info["rounds"] == 3
        assert (run.dispatches["outcome"] == "aggregated").any()
