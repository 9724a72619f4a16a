"""The shortest scenario, and the errors of a changed one."""

from pathlib import Path

import pytest

from fedsim.errors import UserError, UserErrors
from fedsim.scenario.loading import LoadedScenario, load_scenario

MINIMAL = """\
task:
  dataset: {name: digits}
  partition: {name: iid}
  model: {name: mlp}
stop: {rounds: 3}
"""


def load(tmp_path: Path, text: str, *overrides: str) -> LoadedScenario:
    path = tmp_path / "s.yaml"
    path.write_text(text)
    return load_scenario(path, overrides)


def errors(tmp_path: Path, text: str, *overrides: str) -> list[str]:
    with pytest.raises(UserError) as caught:
        load(tmp_path, text, *overrides)
    raised = caught.value
    all_of_them = raised.errors if isinstance(raised, UserErrors) else (raised,)
    return [str(error).replace(f"{tmp_path}/", "") for error in all_of_them]
