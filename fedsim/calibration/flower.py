"""The scenario of a Flower app's log: its devices, and rounds as the log shows them.

A device file does not describe the ServerApp, so the number of nodes per round, the timeout and the time between rounds
are those of the log.
"""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from fedsim.calibration.prediction import round_durations_s
from fedsim.scenario.loading import LoadedScenario, load_scenario_dict
from fedsim.vocabulary.formatting import format_duration
from fedsim.vocabulary.outcomes import Outcome

_NEARLY = 0.99
"""Rounds that last at least this share of the rounds with late replies are taken to end at the timeout, too."""
_LATE, _UNFINISHED = Outcome.LATE.label, Outcome.UNFINISHED.label


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
    deadline_s, pause_s = _timeout_and_pause_s(log)
    if deadline_s is not None:
        flags.append(
            f"Rounds with late replies last {format_duration(deadline_s)}, which counts as the ServerApp's timeout."
        )
    if pause_s:
        flags.append(
            f"{format_duration(pause_s)} pass between the last reply of a round and the next round, for evaluation or"
            " aggregation; the simulation pauses as long."
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
            "schedule": {"name": "sync", "deadline": deadline_s, "pause": pause_s},
            "failure_detection": every["server"]["failure_detection"],
            **(
                {"compression": sizes["up"] / size, "download_compression": sizes["down"] / size}
                if known
                else {}
            ),
        },
        "stop": {"rounds": len(rounds)},
    }
    return load_scenario_dict(data, scenario.folder), log, flags


def _timeout_and_pause_s(log: pd.DataFrame) -> tuple[float | None, float]:
    """The timeout of rounds (None if no reply is late), and the time from the end of a round to the next one."""
    durations_s = round_durations_s(log)
    late, open_ = (
        (log["outcome"] == label).groupby(log["round"]).any().reindex(durations_s.index)
        for label in (_LATE, _UNFINISHED)
    )
    timeout_s = float(durations_s[late].median()) if late.any() else math.inf
    held = ~late & ~open_ & (durations_s >= _NEARLY * timeout_s)
    whole = durations_s.index[~late & ~open_ & ~held]
    starts_s = log["start_s"].groupby(log["round"]).min()
    ends_s = log["ended_s"].fillna(log["end_s"]).groupby(log["round"]).max()
    gaps_s = (durations_s - (ends_s - starts_s))[whole]
    pause_s = max(float(np.median(gaps_s)), 0.0) if len(gaps_s) else 0.0
    return None if timeout_s == math.inf else timeout_s - pause_s, pause_s
