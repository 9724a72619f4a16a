"""Versions and hardware that a result may depend on."""

import json
import os

import torch

from fedsim.runs.environment import environment


def test_environment_names_what_results_depend_on() -> None:
    recorded = environment()
    assert recorded["versions"]["torch"].startswith(torch.__version__.split("+")[0])
    assert recorded["hardware"]["cores"] == os.cpu_count()
    json.dumps(recorded)
