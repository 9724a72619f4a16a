"""Predictions of what others have measured, from a part of their own measurements.

``python -m benchmarks.measured`` simulates every source whose tables are in ``FEDSIM_DATA/measured`` and writes
``measured.json``; ``--ring`` also measures rings over the kernel's TCP on this machine, which needs root and takes some
minutes. Both write ``docs/measured.md`` from ``measured.json`` alone.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.tables import markdown
from fedsim.api import run
from fedsim.calibration.log import read_log
from fedsim.files.durable import write_text

RECORD = Path(__file__).with_suffix(".json")
PAGE = Path(__file__).parents[1] / "docs/measured.md"
Row = dict[str, Any]
_RATES = {"50m": 50e6, "200m": 200e6, "1g": 1e9, "5g": 5e9}
_KNOWN = (("diloco", 1), ("diloco", 32), ("localsgd", 32))
"""Algorithm and local steps of the runs at 1 Gbit/s to which the model is fitted."""


def data(name: str) -> pd.DataFrame | None:
    """A table of measurements; None if it is not on this machine."""
    path = Path(os.environ.get("FEDSIM_DATA", "")) / "measured" / name
    return pd.read_csv(path, comment="#") if path.is_file() else None


def simulated(scenario: dict[str, Any]) -> pd.DataFrame:
    """The dispatches of a timing run."""
    scenario = {"name": "measured", "stop": {"rounds": 3}, **scenario}
    with tempfile.TemporaryDirectory() as folder:
        return run(scenario, Path(folder) / "run", timing_only=True).dispatches


def round_s(dispatches: pd.DataFrame) -> float:
    """Time from the first dispatch of the second round to that of the third."""
    starts = dispatches.groupby("round")["dispatched_s"].min()
    return float(starts[2] - starts[1])


def row(case: str, predicted: float, measured: Any, unit: str = "s") -> Row:
    """A prediction beside the median of the repeats, and the range of its relative error over them."""
    values = np.atleast_1d(np.asarray(measured, dtype=float))
    errors = predicted / values - 1
    return {
        "case": case,
        "unit": unit,
        "repeats": len(values),
        "predicted": predicted,
        "measured": float(np.median(values)),
        "error": predicted / float(np.median(values)) - 1,
        "error_low": float(errors.min()),
        "error_high": float(errors.max()),
    }


# -- DiLoCo, LocalSGD and DDP on four GPUs ----------------------------------------------------------------------------

_PARAMETERS = 30_846_720
_BUFFER_BYTES = 6 * 131_072 * 8 * 8
"""Rotary embeddings of 6 layers, 131,072 positions and 8 complex numbers, which DDP broadcasts before each step."""
_CONNECTIONS = 32
"""Between two members: NCCL's two channels of 16."""


def _sync_s(
    rate_bps: float, latency_s: float, step_s: float, local_steps: int, parameters: float
) -> float:
    """Time of the second synchronization, as a ring."""
    network = {"name": "static", "latency": latency_s, "down": rate_bps, "up": rate_bps}
    dispatches = simulated(
        {
            "task": {"name": "timing", "clients": 4, "parameters": round(parameters)},
            "training": {"local_steps": local_steps},
            "devices": {"compute": {"name": "values", "step": step_s}, "network": network},
            "server": {"exchange": "ring"},
        }
    )
    return float(dispatches.query("round == 1")["upload_s"].max())


def _through_queue(rings: list[Row]) -> dict[float, list[float]]:
    """The median, highest and lowest share of each rate at which a ring of NCCL's connections passes the queue."""
    of_nccl = (each for each in rings if each["connections"] == _CONNECTIONS)
    return {
        each["rate_bps"]: [
            each["fluid_s"] / float(choose(each["measured_s"])) for choose in (np.median, min, max)
        ]
        for each in of_nccl
    }


def diloco(record: dict[str, Any]) -> Iterator[Row]:
    """Synchronization times at other rates and numbers of local steps, from two numbers of steps at 1 Gbit/s."""
    table = data("diloco_measured_runs.csv")
    if table is None:
        return
    sync, step = "median_sync_blocked_ms_at_outer", "median_compute_ms"
    known = table.query("algorithm == 'diloco' and H == 1 and bandwidth == '1g'")
    step_s = float(known[step].median()) / 1e3
    # Six steps, each over two access links.
    fluid_s = _sync_s(1e9, 0.0, step_s, 1, _PARAMETERS)
    latency_s = max(0.0, float(known[sync].median()) / 1e3 - fluid_s) / 12
    connects_s = {"ddp": 0.0}
    for algorithm in ("diloco", "localsgd"):
        few = table.query("algorithm == @algorithm and H == 32 and bandwidth == '1g'")
        waits_s = few["total_wall_after_warmup_s"] - few["total_compute_after_warmup_s"]
        # The first of them, which connects the members, is the only one that differs.
        connects_s[algorithm] = float((waits_s - few["outer_steps"] * few[sync] / 1e3).median())
    named = {f"connect_s of {name}": each for name, each in connects_s.items() if each}
    shares = _through_queue(record.get("ring", []))
    passed = {f"share of {rate / 1e6:g} Mbit/s": share for rate, (share, *_) in shares.items()}
    yield {"given": {"step_s": step_s, "latency_s": latency_s, **named, **passed}}
    groups: Any = table.groupby(["algorithm", "bandwidth", "H"])
    for (algorithm, band, local_steps), runs in groups:
        if band not in _RATES or (band == "1g" and (algorithm, local_steps) in _KNOWN):
            continue
        # A pipelined broadcast of two thirds of a size takes as long as a ring of it.
        parameters = _PARAMETERS + (algorithm == "ddp") * _BUFFER_BYTES / 4 / 1.5
        rate_bps = _RATES[band]
        nominal_s, predicted, *ring_s = (
            _sync_s(rate_bps * share, latency_s, step_s, int(local_steps), parameters)
            for share in (1.0, *shares.get(rate_bps, [1.0]))
        )
        synchronizations = int(runs["outer_steps"].median())
        connect_s = connects_s[algorithm] if synchronizations == 1 else 0.0
        case = f"{algorithm}, H = {local_steps}, {rate_bps / 1e6:g} Mbit/s"
        measured_s = runs[sync] / 1e3
        without = (nominal_s + connect_s) / float(np.median(measured_s)) - 1
        low_s, high_s = (each + connect_s for each in ring_s) if ring_s else (0.0, 0.0)
        extra = {"fluid_error": without, "ring_low_s": low_s, "ring_high_s": high_s}
        yield row(case, predicted + connect_s, measured_s) | extra


# -- Flower on ten Jetsons --------------------------------------------------------------------------------------------


def _jetsons(epochs: int, epoch_s: float, pause_s: float, watts: float) -> pd.DataFrame:
    return simulated(
        {
            "task": {"name": "timing", "clients": 10, "parameters": 1},
            "training": {"local_steps": epochs},
            "devices": {
                "compute": {"name": "values", "step": epoch_s},
                "network": {"name": "static", "latency": 0, "down": "1Gbps", "up": "1Gbps"},
                "energy": {"compute_w": watts, "download_w": 0, "upload_w": 0},
            },
            "server": {"aggregation_time": pause_s},
        }
    )


def jetsons(record: dict[str, Any]) -> Iterator[Row]:
    """Rounds and energy of five local epochs, from those of one and three."""
    runs, energy = data("g5k_jetson_xavier_runs.csv"), data("g5k_jetson_xavier_energy.csv")
    if runs is None or energy is None:
        return
    for strategy, of_strategy in runs.groupby("strategy"):
        one, three = (
            of_strategy.query(f"local_epochs == {epochs}")["s_per_round"].median()
            for epochs in (1, 3)
        )
        epoch_s = (three - one) / 2
        of_energy = energy.query("strategy == @strategy").set_index("local_epochs")
        joules = of_energy["client_round_energy_kWh"] * 3.6e6
        known = joules[joules.index < 5]
        # Least squares through the origin: a simulated client uses no energy beyond its work.
        epochs = known.index.to_numpy(dtype=float)
        watts = float(epochs @ known / (epochs @ epochs)) / epoch_s if len(known) else 0.0
        dispatches = _jetsons(5, epoch_s, one - epoch_s, watts)
        five = of_strategy.query("local_epochs == 5")["s_per_round"]
        yield row(f"{strategy}, 5 epochs, round", round_s(dispatches), five)
        if 5 in joules and len(known) > 1:
            predicted = float(dispatches["energy_j"].median())
            yield row(
                f"{strategy}, 5 epochs, energy of a client and round", predicted, joules[5], "J"
            )


# -- LoRA on five phones and three Jetson Nanos -----------------------------------------------------------------------


def phones(record: dict[str, Any]) -> Iterator[Row]:
    """Rounds of each device on MMLU, from its step time on WikiText."""
    table = data("edgeflowertune_phones_jetsons.csv")
    if table is None:
        return
    known, asked = (
        table.query(f"run == 'fedavg_{name}'").set_index("client") for name in ("wikitext", "mmlu")
    )
    pause_s = float((known["mean_round_s"] - 10 * known["mean_step_s"]).median())
    dispatches = simulated(
        {
            "task": {"name": "timing", "clients": len(known), "parameters": 1},
            "training": {"local_steps": 10},
            "devices": {
                "compute": {"name": "values", "step": known["mean_step_s"].tolist()},
                "network": {"name": "static", "latency": 0, "down": "400Mbps", "up": "400Mbps"},
            },
            "server": {"aggregation_time": pause_s},
        }
    )
    times = dispatches.query("round == 1").set_index("client_id")["compute_s"] + pause_s
    for number, client in enumerate(known.index):
        yield row(f"{client}, its round", float(times[number]), asked["mean_round_s"][client])
    yield row(
        "all, the slowest client of a round", round_s(dispatches), asked["mean_round_s"].max()
    )
    faster = 1 - asked["mean_step_s"] / known["mean_step_s"]
    nanos = known.index.str.startswith("jetson")
    steps_s = known["mean_step_s"][nanos]
    yield {
        "figures": {
            "spread": steps_s.max() / steps_s.min() - 1,
            "low": faster[nanos].min(),
            "high": faster[nanos].max(),
            "phones": faster[~nanos].median(),
        }
    }


# -- an elastic run of 39 rounds --------------------------------------------------------------------------------------


def elastic(record: dict[str, Any]) -> Iterator[Row]:
    """The last four fifths of the rounds, from the median of the first fifth; clients are always there."""
    table, carbon = data("curtail_llm_events.csv"), data("curtail_llm_mci.csv")
    if table is None or carbon is None:
        return
    events = table.dropna(subset=["round"]).pivot_table(
        index="round", columns="event_type", values="elapsed_s", aggfunc="first"
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.csv"
        log = events["ROUND_START"].rename("start").to_frame().assign(client="all")
        log.assign(end=log["start"].shift(-1)).dropna().reset_index().to_csv(path, index=False)
        dispatches = read_log(path).dispatches.set_index("round")
    lasts = dispatches["end_s"] - dispatches["start_s"]
    first = (len(lasts) + 1) // 5
    known = lasts.iloc[:first]
    dispatches = simulated(
        {
            "task": {"name": "timing", "clients": 2, "parameters": 1},
            "training": {"local_steps": 1},
            "devices": {
                "compute": {"name": "values", "step": float(known.median())},
                "network": {"name": "static", "latency": 0, "down": "1Gbps", "up": "1Gbps"},
            },
        }
    )
    for number, measured in lasts.iloc[first:].items():
        yield row(f"round {number:.0f}", round_s(dispatches), measured)
    longest = known.nlargest(2)
    ready = table.query("event_type == 'PROVISION_COMPLETE'").set_index("client")["elapsed_s"]
    # Round 2 waits for its second client, and ends this long after it is ready.
    pause_s = float(events["ROUND_START"][3] - ready["client_2"])
    instants = pd.to_datetime(carbon["point_time"])
    instants_s = (instants - instants[0]).dt.total_seconds()
    decided = table.query("event_type == 'PROVISION_DECISION'")["elapsed_s"].min()
    # The first decision shows how far the run's clock is from that of the table.
    shift_s = decided - instants_s[carbon["CAISO_NORTH"] < 100].min()
    took_s = float(
        ready["client_2"] - table.query("event_type == 'PROVISION_START'")["elapsed_s"].iloc[2]
    )
    second_s = float(instants_s[carbon["SPP_TX"] < 100].min()) + shift_s + took_s
    stalls = (
        f"{seconds:.0f} s (round {number:.0f})" for number, seconds in longest.sort_index().items()
    )
    last = lasts.index[np.isnan(events["AGGREGATION"][lasts.index])]
    yield {
        "figures": {
            "stalls": " and ".join(stalls),
            "rule": second_s + pause_s - float(events["ROUND_START"][13]),
            "measured": float(lasts[13]),
            "last": ", ".join(f"{number:.0f}" for number in last),
        }
    }


SOURCES: dict[str, tuple[str, str, Callable[[dict[str, Any]], Iterator[Row]]]] = {
    "diloco": (
        "DiLoCo, LocalSGD and DDP on four GPUs",
        "Given: the size of the model and its buffers, the rate of `tc`, the connections of NCCL through its queue,\n"
        "and at 1 Gbit/s the synchronizations of DiLoCo with H = 1, from which the latency follows, and of DiLoCo and\n"
        "LocalSGD with H = 32, from which the time to connect follows. Predicted: the time of a synchronization, as a\n"
        "ring.\n"
        "Source: <https://github.com/Adnan082/diloco-measured> at 07b7885, Apache-2.0.",
        diloco,
    ),
    "jetsons": (
        "Flower on ten Jetson AGX Xavier",
        "Given: the rounds, and the energy of a client, with 1 and 3 local epochs. Predicted: those with 5;\n"
        "the energy as proportional to the epochs, of the strategies whose energy was measured with all three.\n"
        "Source: <https://github.com/tuananhngh/FL-G5K-EnergyConsumption> at 9b215db.",
        jetsons,
    ),
    "phones": (
        "LoRA on five phones and three Jetson Nanos",
        "Given: each device's step time on WikiText, and the median time of a round there beyond its 10 steps.\n"
        "Predicted: its round on MMLU, and the slowest of all.\n"
        "Source: arXiv 2605.08636, <https://github.com/Edge-Intelligence-Lab/EdgeFlowerTune> at c5f9bdd.",
        phones,
    ),
    "elastic": (
        "Rounds of an elastic run",
        "Given: the median of the first fifth of the rounds. Predicted: the others, as if clients were always\n"
        "there.\n"
        "Source: the event log `curtail_llm_events.csv` of a Flower run of a 561M model.",
        elastic,
    ),
}

_INTRODUCTION = """\
<!-- Written by python -m benchmarks.measured; do not edit. -->
# Measured by others

What fedsim predicts of runs that others measured on real devices. A source's model is fitted to one part of its
measurements and predicts another, to which nothing is fitted. The first source's model was also given NCCL's
connections and their loss in a queue, which come from its source code and an experiment here, and were chosen when
the measured times were known: there, the figures at 50 and 200 Mbit/s are an explanation, not a blind prediction. An
error is the prediction relative to the median of the repeats; its range is that over the repeats. `python -m
benchmarks.measured` makes this page; the measurements are not part of fedsim.

"""
_OF_RINGS = """
### What was given, and what misses

**The queue.** At 50 and 200 Mbit/s the simulation is given the rate at which a ring of NCCL's connections passes the
queue of the measured runs, as measured on the machine that wrote this page. On AWS, NCCL opens 16 connections per
channel (`NCCL_SOCKET_NTHREADS` 2, `NCCL_NSOCKS_PERTHREAD` 8), and it has two channels for one network card. Four
processes in network namespaces pass slices of 1 MiB on over them through `tc tbf burst 32768 latency 50ms`, with an MTU
of 9,001 and CUBIC, the default of the measured runs' Ubuntu 24.04. The median of the repeats is given. With the nominal
rate, the median error is {nominal:.1%}, and {nominal_over} of {cases} cases are over 5%. One connection loses almost
nothing, and 16 lose more than 32. Why many lose so much was not measured.

{table}
**The first synchronization** of a run connects the members. Runs with H = 128 have only this one after the warm-up.
What it adds is taken from H = 32 at 1 Gbit/s, where the first of four is such a one.

**DDP** broadcasts the model's buffers before each step (`broadcast_buffers`), here {buffers:.1f} MB of rotary
embeddings, which takes as long as a ring of two thirds of them.

**Over 5%** are {over} of the {queued} cases at 50 and 200 Mbit/s; {within} of these {queued} measurements lie in the
range of the repeated rings, which include the other load of the machine. The other {beyond} are below it, which is not
explained. The largest errors are those of H = 128 at 50 Mbit/s, where a first synchronization takes no longer than
others; that is not explained either, nor why the other case, LocalSGD with H = 32 at 5 Gbit/s, takes longer than with
H = 1 and 8.
"""
_NOTES = {
    "phones": """\
No step time of a Jetson Nano can be predicted from this source: the three differ by {spread:.0%} on WikiText, although
they are of one kind, and become faster on MMLU by {low:.0%} to {high:.0%}. One mean per device and data set does not
show whether clocks, heat or memory differ. The phones, which decide the rounds, become faster by {phones:.1%}.
""",
    "elastic": """\
The median leaves out the stalls of the first fifth: {stalls}.
Both, and round 13, end when a client comes or goes: a client that is alone trains until a second one is there, a rule
that fedsim does not have. By it, with the pause of round 2, and a second client from the time at which the carbon
intensity of its region falls below 100 g/kWh, round 13 lasts {rule:.0f} s (measured: {measured:.0f} s).
Round {last}, the last of the log, is the only one without an aggregation; no client comes or goes in it, so nothing in
the log says why it ended so late.
""",
}
_FETS = """
## FeTS, a federation of hospitals

Nothing is predicted. The source (<https://github.com/FeTS-AI/Challenge> at 1c12265) has the mean and standard deviation
of the seconds per patient of 21 sites and of the transfers of 16 sites, and no rounds. It does not say which transfers
are of which site, nor how many patients a site has, so neither a round nor its distribution follows from it.
"""


def ring() -> list[Row]:
    """Rings of four over the kernel's TCP and token buckets, by rate and connections per pair of members."""
    from benchmarks.measured_ring import measure, own_namespace

    own_namespace()
    rows = []
    for rate_bps, size_bytes in ((50e6, 32 << 20), (200e6, 48 << 20)):
        for connections, repeats in ((1, 3), (16, 5), (_CONNECTIONS, 9)):
            rows.append(
                {
                    "rate_bps": rate_bps,
                    "size_bytes": size_bytes,
                    "connections": connections,
                    "fluid_s": 1.5 * size_bytes * 8 / rate_bps,
                    "measured_s": measure(rate_bps, size_bytes, connections, repeats),
                }
            )
    return rows


def _of_rings(record: dict[str, Any]) -> str:
    """What the synchronizations were given, and which are over."""
    cases = [each for each in record["diloco"] if "case" in each]
    without = np.abs([each["fluid_error"] for each in cases])
    lines = []
    for each in record["ring"]:
        ratios = np.array(each["measured_s"]) / each["fluid_s"]
        middle, low, high = (f"{x:.2f}" for x in (np.median(ratios), min(ratios), max(ratios)))
        cells = (f"{each['rate_bps'] / 1e6:g} Mbit/s", f"{each['connections']}")
        lines.append((*cells, f"{each['fluid_s']:.2f} s", middle, f"{low} to {high}"))
    queued = [each for each in cases if each["ring_low_s"]]
    return _OF_RINGS.format(
        nominal=float(np.median(without)),
        nominal_over=int((without > 0.05).sum()),
        cases=len(cases),
        buffers=_BUFFER_BYTES / 1e6,
        queued=len(queued),
        over=sum(abs(each["error"]) > 0.05 for each in queued),
        within=sum(
            each["ring_low_s"] <= each["measured"] <= each["ring_high_s"] for each in queued
        ),
        beyond=sum(each["measured"] < each["ring_low_s"] for each in queued),
        table=markdown(("rate", "connections", "fluid ring", "measured / fluid", "range"), lines),
    )


def _note(name: str, rows: list[Row]) -> str:
    """The note of a source, with its figures."""
    figures: Row = next((each["figures"] for each in rows if "figures" in each), {})
    return f"\n{_NOTES[name].format(**figures)}" if name in _NOTES else ""


def _summary(record: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """One line per source and unit."""
    for name, (title, _, _) in SOURCES.items():
        for unit, kind, goal in (("s", "times", 0.05), ("J", "energy", 0.1)):
            errors = [abs(one["error"]) for one in record.get(name, []) if one.get("unit") == unit]
            if errors:
                over = sum(error > goal for error in errors)
                middle, most = f"{np.median(errors):.1%}", f"{max(errors):.1%}"
                yield title, kind, middle, most, f"{over} of {len(errors)}"


def page(record: dict[str, Any]) -> str:
    """The page of a record."""
    text = _INTRODUCTION + markdown(
        ("source", "quantity", "median error", "largest", "over 5% (times), 10% (energy)"),
        _summary(record),
    )
    for name, (title, given, _) in SOURCES.items():
        text += f"\n## {title}\n\n{given}\n"
        rows = record.get(name, [])
        for one in rows:
            if fitted := one.get("given"):
                values = (f"{key} = {value:.4g}" for key, value in fitted.items())
                text += f"\nFitted: {', '.join(values)}.\n"
        text += "\n" + markdown(
            ("case", "repeats", "predicted", "measured", "error", "range"),
            [
                (
                    one["case"],
                    str(one["repeats"]),
                    f"{one['predicted']:.5g} {one['unit']}",
                    f"{one['measured']:.5g} {one['unit']}",
                    f"{one['error']:+.1%}",
                    f"{one['error_low']:+.1%} to {one['error_high']:+.1%}",
                )
                for one in rows
                if "case" in one
            ],
        )
        text += _note(name, rows)
        if name == "diloco":
            text += _of_rings(record)
    return text + _FETS


def main() -> None:
    """Simulate, or measure, and write the record and the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ring", action="store_true", help="measure rings on this machine, too")
    arguments = parser.parse_args()
    record = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}
    if arguments.ring:
        record["ring"] = ring()
    for name, (_, _, predict) in SOURCES.items():
        if rows := list(predict(record)):
            record[name] = rows
        else:
            print(f"{name}: there is no table of it in FEDSIM_DATA/measured; its record stays")
    write_text(RECORD, json.dumps(record, indent=1) + "\n")
    write_text(PAGE, page(record))


if __name__ == "__main__":
    main()
