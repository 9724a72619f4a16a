"""The ServerApp: method, schedule, selection, stop and evaluation of the scenario."""

import os
from pathlib import Path

from fedsim.flower import server_app

app = server_app(
    Path(__file__).parents[1] / "scenario.yaml",
    output=os.environ.get("FEDSIM_OUTPUT", "runs/deployed"),
    local_update=True,
)
