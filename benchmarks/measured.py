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
from fedsim.files.durable import write_text

RECORD = Path(__file__).with_suffix(".json")
PAGE = Path(__file__).parents[1] / "docs/measured.md"
Row = dict[str, Any]
_RATES = {"50m": "50Mbps", "200m": "200Mbps", "1g": "1Gbps", "5g": "5Gbps"}


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


def _sync_s(
    rate: str, latency_s: float, step_s: float, local_steps: int, transport: str = "fluid"
) -> float:
    """Time of the second synchronization, as a ring."""
    network = {"name": "static", "latency": latency_s, "down": rate, "up": rate}
    dispatches = simulated(
        {
            "task": {"name": "timing", "clients": 4, "parameters": 30_846_720},
            "training": {"local_steps": local_steps},
            "devices": {
                "compute": {"name": "values", "step": step_s},
                "network": {**network, "transport": transport},
            },
            "server": {"exchange": "ring"},
        }
    )
    return float(dispatches.query("round == 1")["upload_s"].max())


def diloco() -> Iterator[Row]:
    """Synchronization times at other rates and numbers of local steps, from one number of steps at 1 Gbit/s."""
    table = data("diloco_measured_runs.csv")
    if table is None:
        return
    sync, step = "median_sync_blocked_ms_at_outer", "median_compute_ms"
    known = table.query("algorithm == 'diloco' and H == 1 and bandwidth == '1g'")
    step_s = float(known[step].median()) / 1e3
    # Six steps, each over two access links.
    latency_s = max(0.0, float(known[sync].median()) / 1e3 - _sync_s("1Gbps", 0.0, step_s, 1)) / 12
    yield {"given": {"step_s": step_s, "latency_s": latency_s}}
    groups: Any = table.groupby(["algorithm", "bandwidth", "H"])
    for (algorithm, band, local_steps), runs in groups:
        if band not in _RATES or (algorithm, band, local_steps) == ("diloco", "1g", 1):
            continue
        rate = _RATES[band]
        predicted = _sync_s(rate, latency_s, step_s, int(local_steps))
        case = f"{algorithm}, H = {local_steps}, {rate}"
        count = {"synchronizations": int(runs["outer_steps"].median())}
        yield row(case, predicted, runs[sync] / 1e3) | count
    for rate in _RATES.values():
        yield {"transport": rate, "tcp_s": _sync_s(rate, latency_s, step_s, 1, "tcp")}


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


def jetsons() -> Iterator[Row]:
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


def phones() -> Iterator[Row]:
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


# -- an elastic run of 39 rounds --------------------------------------------------------------------------------------


def elastic() -> Iterator[Row]:
    """The last four fifths of the rounds, from the median of the first fifth; clients are always there."""
    table = data("curtail_llm_events.csv")
    if table is None:
        return
    events = table.dropna(subset=["round"]).pivot_table(
        index="round", columns="event_type", values="elapsed_s", aggfunc="first"
    )
    lasts = (events["ROUND_START"].shift(-1) - events["ROUND_START"]).dropna()
    first = len(lasts) // 5
    dispatches = simulated(
        {
            "task": {"name": "timing", "clients": 2, "parameters": 1},
            "training": {"local_steps": 1},
            "devices": {
                "compute": {"name": "values", "step": float(lasts.iloc[:first].median())},
                "network": {"name": "static", "latency": 0, "down": "1Gbps", "up": "1Gbps"},
            },
        }
    )
    for number, measured in lasts.iloc[first:].items():
        yield row(f"round {number:.0f}", round_s(dispatches), measured)


SOURCES: dict[str, tuple[str, str, Callable[[], Iterator[Row]]]] = {
    "diloco": (
        "DiLoCo, LocalSGD and DDP on four GPUs",
        "Given: the size of the model, the nominal rate of `tc`, and step and synchronization time of DiLoCo with\n"
        "H = 1 at 1 Gbit/s, from which the latency follows. Predicted: the time of a synchronization, as a ring.\n"
        "Source: <https://github.com/Adnan082/diloco-measured> at 07b7885, Apache-2.0.",
        diloco,
    ),
    "jetsons": (
        "Flower on ten Jetson AGX Xavier",
        "Given: the rounds, and the energy of a client, with 1 and 3 local epochs. Predicted: those with 5.\n"
        "Source: <https://github.com/tuananhngh/FL-G5K-EnergyConsumption> at 9b215db.",
        jetsons,
    ),
    "phones": (
        "LoRA on five phones and three Jetson Nanos",
        "Given: each device's step time on WikiText. Predicted: its round on MMLU, and the slowest of all.\n"
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
measurements and predicts another, to which nothing is fitted. An error is the prediction relative to the median of the
repeats; its range is that over the repeats. `python -m benchmarks.measured` makes this page; the measurements are not
part of fedsim.

"""
_OF_RINGS = """
### Why synchronizations miss

**H = 128** and LocalSGD with H = 32 at 5 Gbit/s: not explained. {single} of the {runs} cases have a single
synchronization per run after the warm-up, all with H = 128.

**50 and 200 Mbit/s**: four processes in network namespaces pass a ring's chunks on through the queue of the
measured runs (`tc tbf burst 32768 latency 50ms`, MTU 9,001), over one or several TCP connections per pair of
members. At 50 Mbit/s the kernel takes {one:.2f} times as long as the fluid ring with one connection, {four:.2f}
times with 4 and {most:.2f} times with 16; the measured runs take {measured:.2f} times. So several connections that
share the queue can explain the miss; one run per point does not show that they do. The simulation with `transport:
tcp`, which has one connection, takes {tcp:.2f} times as long as with `fluid`. The number of connections of the
measured runs is not in their tables. Models are smaller here at 50 and 200 Mbit/s to save time; at 1 Gbit/s the
processors of this machine limit the rate.

**DDP** exchanges gradients in several buckets per step; its excess over DiLoCo is not explained by an experiment here.

"""
_NOTES = {
    "phones": "The Jetson Nanos are faster on MMLU than on WikiText by different factors, although "
    "they are of one kind;\n"
    "the tables do not say why. The phones decide the rounds.\n",
    "elastic": "The two rounds that miss are not predicted from the withdrawal and return of "
    "clients, which the log has\n"
    "and this simulation does not.\n",
}


def ring() -> list[Row]:
    """Rings of four over the kernel's TCP and token buckets, by rate and connections per pair of members."""
    from benchmarks.measured_ring import measure, own_namespace

    own_namespace()
    rows = []
    for rate_bps, size_bytes in ((50e6, 30_846_720), (200e6, 61_693_440), (1e9, 123_386_880)):
        fluid_s = 1.5 * size_bytes * 8 / rate_bps
        for connections in (1, 2, 4, 8, 16):
            seconds = measure(rate_bps, size_bytes, connections)
            rows.append(
                {
                    "rate_bps": rate_bps,
                    "size_bytes": size_bytes,
                    "connections": connections,
                    "fluid_s": fluid_s,
                    "measured_s": seconds,
                }
            )
    return rows


def _kernel(record: dict[str, Any]) -> str:
    """What the rings on this machine say about the misses of DiLoCo."""
    rows, rings = record["diloco"], {(r["rate_bps"], r["connections"]): r for r in record["ring"]}
    first = next(one for one in rows if one.get("case") == "diloco, H = 1, 50Mbps")
    tcp = next(one for one in rows if one.get("transport") == "50Mbps")
    one, four, most = (
        rings[50e6, count]["measured_s"] / rings[50e6, count]["fluid_s"] for count in (1, 4, 16)
    )
    text = _OF_RINGS.format(
        single=sum(each.get("synchronizations") == 1 for each in rows),
        runs=sum("case" in each for each in rows),
        one=one,
        four=four,
        most=most,
        measured=first["measured"] / first["predicted"],
        tcp=tcp["tcp_s"] / first["predicted"],
    )
    return text + markdown(
        ("rate", "connections", "fluid ring", "measured", "measured / fluid"),
        [
            (
                f"{each['rate_bps'] / 1e6:g} Mbit/s",
                str(each["connections"]),
                f"{each['fluid_s']:.2f} s",
                f"{each['measured_s']:.2f} s",
                f"{each['measured_s'] / each['fluid_s']:.2f}",
            )
            for each in record["ring"]
        ],
    )


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
        ("source", "", "median error", "largest", "over 5% (times), 10% (energy)"), _summary(record)
    )
    for name, (title, given, _) in SOURCES.items():
        text += f"\n## {title}\n\n{given}\n"
        rows = record.get(name, [])
        for one in rows:
            if fitted := one.get("given"):
                values = (f"`{key}` = {value:.4g}" for key, value in fitted.items())
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
        if name in _NOTES:
            text += f"\n{_NOTES[name]}"
        if name == "diloco" and record.get("ring"):
            text += _kernel(record)
    return text


def main() -> None:
    """Simulate, or measure, and write the record and the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ring", action="store_true", help="measure rings on this machine, too")
    arguments = parser.parse_args()
    record = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}
    for name, (_, _, predict) in SOURCES.items():
        if rows := list(predict()):
            record[name] = rows
        else:
            print(f"{name}: there is no table of it in FEDSIM_DATA/measured; its record stays")
    if arguments.ring:
        record["ring"] = ring()
    write_text(RECORD, json.dumps(record, indent=1) + "\n")
    write_text(PAGE, page(record))


if __name__ == "__main__":
    main()
