"""The scenario of a Flower app's log: its devices, and rounds as the log shows them.

A device file does not describe the ServerApp, so the number of nodes per round and the timeout are those of the log.
"""

from __future__ import annotations

import pandas as pd

from fedsim.calibration.log import rounds_of
from fedsim.scenario.loading import LoadedScenario, load_scenario_dict
from fedsim.vocabulary.formatting import format_duration


def as_timing(
    scenario: LoadedScenario, log: pd.DataFrame
) -> tuple[LoadedScenario | None, pd.DataFrame, list[str]]:
    """A scenario of timing on the devices of a Flower app.

    Args:
        scenario: its device file.
        log: the log of its training messages.

    Returns:
        The scenario (None if the log has no rounds), the log whose steps are those of the scenario, and flags.
    """
    done = log[log["end_s"].notna()]
    steps = done["steps"].dropna()
    flags = []
    if len(steps) and steps.nunique() > 1:
        flags.append(
            f"The messages have {steps.min():.0f} to {steps.max():.0f} units of work, so a local step in the"
            " calibration is the whole work of a message."
        )
        log = log.assign(steps=1.0)
    if log["round"].nunique() < 2:
        flags.append(
            "The Flower app's log has no rounds, and its ServerApp's behavior is unknown: nothing is"
            " simulated, and the scenario's latency is not used."
        )
        return None, log, flags
    deadline_s = rounds_of(log).timeout_s
    if deadline_s is not None:
        flags.append(
            f"Rounds with late replies last {format_duration(deadline_s)}, which counts as the ServerApp's timeout."
        )
    every = scenario.resolved()
    devices = dict(every["devices"])
    # The calibration replaces these step times; the log gives the units of work.
    devices["compute"] = {"name": "values", "step": "1s"}
    sizes = {way: done[f"bytes_{way}"].median() for way in ("down", "up")}
    known = all(size > 0 for size in sizes.values())
    size = max(sizes.values())
    rounds = log.dropna(subset=["round"]).groupby("round").size()
    constant = steps.nunique() == 1
    data = {
        "name": every["name"],
        "seed": every["seed"],
        "task": {"name": "timing", "clients": scenario.scenario.task.params.clients}
        | ({"size": f"{size:.0f}B"} if known else {}),
        "training": {"local_steps": int(steps.iloc[0]) if constant else 1},
        "devices": devices,
        "server": {
            "selection": {"name": "uniform", "cohort": int(rounds.median())},
            "schedule": {"name": "sync", "deadline": deadline_s},
            "failure_detection": every["server"]["failure_detection"],
            **(
                {"compression": {way: {"factor": sizes[way] / size} for way in ("up", "down")}}
                if known
                else {}
            ),
        },
        "stop": {"rounds": len(rounds)},
    }
    return load_scenario_dict(data, scenario.folder), log, flags
