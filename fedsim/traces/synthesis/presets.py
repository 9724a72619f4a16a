"""Calibrated populations, fitted to real traces; ``traces/README.md`` shows how well they fit."""

from __future__ import annotations

from dataclasses import replace

from fedsim.traces.bundle import Eligibility
from fedsim.traces.synthesis.families import FAMILIES

PRESETS = {
    "phone_idle_charging_wifi": replace(
        FAMILIES["renewal"],
        family="renewal",
        description="phones while locked, charging and on Wi-Fi: online a tenth of the time, mostly at night",
        params={"amplitude": 0.75, "peak_hour": 2.0, "phase_sigma_h": 1.5},
        source="fitted to 710 phones of FLASH (Yang et al. 2021), sessions joined over gaps under 5 min",
        eligibility=Eligibility(
            words="screen locked, charging and on Wi-Fi",
            expression="charging and network == wifi and lock",
        ),
    ),
    "phone_mostly_on": replace(
        FAMILIES["renewal"],
        family="renewal",
        description="phones that are reachable most of the time: online three quarters of the time",
        params={
            "share_a": 10.91,
            "share_b": 3.68,
            "rate_mu": 0.355,
            "rate_sigma": 1.009,
            "correlation": -0.22,
            "session_sigma": 1.43,
            "gap_sigma": 1.16,
            "amplitude": 0.5,
            "peak_hour": 7.7,
        },
        source="fitted to the 100 phones of FedScale (Lai et al. 2022) that FLOAT ships",
        eligibility=Eligibility(words="reachable by the server"),
    ),
    "desktop": replace(
        FAMILIES["renewal"],
        family="renewal",
        description="desktop computers: long sessions, some always on and some hardly ever",
        params={
            "share_a": 0.314,
            "share_b": 0.646,
            "rate_mu": -1.646,
            "rate_sigma": 1.301,
            "correlation": 0.57,
            "session_sigma": 1.06,
            "gap_sigma": 1.44,
            "amplitude": 0.9,
            "peak_hour": 8.0,
        },
        kind="pc",
        source="fitted to 2,081 Skype superpeers (Guha et al. 2006)",
        eligibility=Eligibility(words="the computer is on and its client is running"),
        compute={"ram_factor": 2.0},
        network={"down": 50e6, "up_ratio": 0.25, "rtt": 0.03, "bandwidth_cv": 0.4},
    ),
}
