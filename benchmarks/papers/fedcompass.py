"""FedCompass: its tables and claims."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

import numpy as np
import pandas as pd

from benchmarks.papers.claims import Claim
from benchmarks.papers.results import (
    SCENARIOS,
    Results,
    Scenario,
    Tables,
    footnote,
    read_yaml,
    spread,
)
from benchmarks.tables import markdown


def sign_of(method: Scenario) -> str:
    """The exponent of (s + 1) as printed: -0.5 in the paper, +0.5 in the authors' code; empty without one."""
    exponent = method.get("staleness", {}).get("exponent")
    return "" if exponent is None else f"{-exponent:+g}"


def compass_label(scenario: Scenario) -> str:
    """A row of FedCompass's tables."""
    method, schedule = scenario["server"]["method"], scenario["server"]["schedule"]
    name = {
        "fedavg": "FedAvg",
        "fedavgm": "FedAvgM",
        "fedasync": "FedAsync",
        "fedbuff": "FedBuff",
        "fedat": "FedAT",
        "fedcompass": "FedCompass",
    }[method["name"]]
    if method["name"] == "fedcompass":
        name += "+M" * bool(method["momentum"]) + "+N" * bool(method["normalized"])
        name += ", authors' schedule" * (schedule["create_ref"] == "latest")
    sign = sign_of(method)
    return f"{name}, {sign}" if sign else name


COMPASS_ROWS = (
    "FedCompass, +0.5",
    "FedCompass, -0.5",
    "FedCompass, authors' schedule, +0.5",
    "FedCompass, authors' schedule, -0.5",
    "FedCompass+M, +0.5",
    "FedCompass+M, -0.5",
    "FedCompass+N, +0.5",
    "FedCompass+N, -0.5",
    "FedAvg",
    "FedAvgM",
    "FedAsync, +0.5",
    "FedAsync, -0.5",
    "FedBuff, +0.5",
    "FedBuff, -0.5",
    "FedAT",
)
SPEEDS = {"values": "alike", "normal": "normal", "exponential": "exponential"}


@cache
def _paper(table: str, speeds: str, partition: str = "class_partition") -> Mapping[str, float]:
    """The paper's values, m = 5, MNIST, of the table whose title begins so."""
    reference = read_yaml(SCENARIOS / "fedcompass" / "reference.yaml")
    kind = {"class_partition": "class", "dual_dirichlet": "Dirichlet"}[partition]
    speed = {"values": "homogeneous"}.get(speeds, speeds)
    entry = next(entry for entry in reference["tables"] if entry["title"].startswith(table))
    values: Mapping[str, float] = entry["values"][f"{kind}, {speed}"]
    return values


def compass_table(results: Results, partition: str, target: float) -> str:
    """Seconds to the target, the paper's ratio to FedCompass, and the best accuracy, by kind of speeds."""
    header = ["method, exponent of (s + 1)"]
    for speeds in SPEEDS.values():
        header += [f"{speeds}: s to {target:.0%}", "paper, relative to FedCompass", "best accuracy"]
    rows = []
    for label in COMPASS_ROWS:
        row, has_runs = [label], False
        for speeds in SPEEDS:
            runs = results.where(
                lambda s, speeds=speeds, label=label: (
                    compass_label(s) == label
                    and s["devices"]["compute"]["name"] == speeds
                    and s["task"]["partition"]["name"] == partition
                )
            )
            has_runs |= bool(runs)
            ratio = _paper("Table 1,", speeds, partition).get(label.split(",")[0])
            paper = f"{ratio:.2f}" if ratio and "authors" not in label else ""
            row += [
                spread([run.first("accuracy", target, "time_s") for run in runs], 2),
                paper,
                spread([run.metrics["accuracy"].max() for run in runs]),
            ]
        if has_runs:
            rows.append(row)
    return markdown(header, rows) + footnote(results) if rows else ""


def compass_weights(results: Results) -> str:
    """Shares of the server's weight under exponential speeds: of the slowest and of the fastest client."""
    rows = []
    for sign in (0.5, -0.5):
        runs = results.where(
            lambda s, sign=sign: (
                compass_label(s) == f"FedCompass, {-sign:+g}"
                and s["devices"]["compute"]["name"] == "exponential"
                and s["task"]["partition"]["name"] == "class_partition"
            )
        )
        shares = []
        for run in runs:
            clients = pd.read_parquet(run.folder / "clients.parquet").set_index("client_id")
            done = pd.read_parquet(run.folder / "dispatches.parquet")
            done = done[done["outcome"] == "aggregated"]
            weights = (done["staleness"] + 1.0) ** -sign * clients["samples"].loc[
                done["client_id"]
            ].to_numpy()
            share = weights.groupby(done["client_id"]).sum() / weights.sum()
            order = clients["step_s"].sort_values().index
            shares.append((100 * share[order[-1]], 100 * share[order[0]]))
        if shares:
            slow, fast = zip(*shares, strict=True)
            source = "the paper's text" if sign > 0 else "the authors' code"
            rows.append([f"{-sign:+g} ({source})", spread(slow, 2), spread(fast, 2)])
    return markdown(["exponent", "slowest client, %", "fastest client, %"], rows)


def cnn_table(results: Results) -> str:
    """The paper's CNN: seconds to 80, 85 and 90%."""
    paper = {"normal": 2.82, "exponential": 4.32}
    rows = []
    for speeds in ("exponential", "normal"):
        for label in ("FedCompass, +0.5", "FedCompass, -0.5", "FedAvg"):
            runs = results.where(
                lambda s, speeds=speeds, label=label: (
                    compass_label(s) == label and s["devices"]["compute"]["name"] == speeds
                )
            )
            if runs:
                times = [
                    spread([run.first("accuracy", target, "time_s") for run in runs], 2)
                    for target in (0.8, 0.85, 0.9)
                ]
                ratio = f"{paper[speeds]:.2f}" if label == "FedAvg" else "1.00"
                rows.append([speeds, label, str(len(runs)), *times, ratio])
    header = ["speeds", "method, exponent", "seeds", "s to 80%", "to 85%", "to 90%"]
    return markdown([*header, "paper, to 90%, relative"], rows)


def _times(
    results: Results, speeds: str, target: float, test: Callable[[Scenario], bool]
) -> dict[int, float]:
    """Seconds to an accuracy by seed, of the runs with these speeds that pass the test."""
    runs = results.where(lambda s: s["devices"]["compute"]["name"] == speeds and test(s))
    return {run.seed: run.first("accuracy", target, "time_s") for run in runs}


def _relative(times: Mapping[int, float], base: Mapping[int, float]) -> str:
    """Mean over seeds of the ratio of two times, and how many seeds reached both."""
    ratios = [times[seed] / base[seed] for seed in sorted(times.keys() & base.keys())]
    finite = [ratio for ratio in ratios if np.isfinite(ratio)]
    if not finite:
        return "–"
    text = f"{np.mean(finite):.2f}"
    return text if len(finite) == len(ratios) else f"{text} ({len(finite)} of {len(ratios)} seeds)"


def _min_steps(steps: int) -> Callable[[Scenario], bool]:
    return lambda s: s["server"]["schedule"].get("min_steps") == steps


def q_ratio_table(results: Results) -> str:
    """Time to 80% relative to 1/Q = 0.20, and the best accuracy under exponential speeds; Q_max is 20."""
    rows = []
    for steps in (1, 2, 4, 8, 12, 16):
        label = f"1/Q = {steps / 20:.2f}"
        row = [f"{steps / 20:.2f}"]
        for speeds in ("values", "normal"):
            times, base = (_times(results, speeds, 0.8, _min_steps(count)) for count in (steps, 4))
            row += [f"{_paper('Table 19', speeds)[label]:.2f}", _relative(times, base)]
        runs = results.where(
            lambda s, steps=steps: (
                s["devices"]["compute"]["name"] == "exponential" and _min_steps(steps)(s)
            )
        )
        best = spread([run.metrics["accuracy"].max() for run in runs])
        rows.append([*row, f"{_paper('Table 20', 'exponential')[label]:.3f}", best])
    header = ["1/Q", "alike: paper", "ours", "normal: paper", "ours"]
    header += ["exponential, best accuracy: paper", "ours"]
    return markdown(header, rows) + footnote(results) if results.runs else ""


def _lambda_label(scenario: Scenario) -> str:
    if scenario["server"]["method"]["name"] == "fedat":
        return "FedAT"
    return f"lambda = {scenario['server']['schedule']['latest_factor']:.2f}"


def lambda_table(results: Results) -> str:
    """Time to 80 and 90% relative to lambda = 1, with redrawn speeds."""
    rows = []
    for label in ("lambda = 1.00", "lambda = 1.20", "lambda = 1.50", "lambda = 2.00", "FedAT"):
        row = [label.removeprefix("lambda = ")]
        for speeds in ("normal", "exponential"):
            row.append(f"{_paper('Table 21', speeds)[label]:.2f}")
            for target in (0.8, 0.9):
                times, base = (
                    _times(results, speeds, target, lambda s, name=name: _lambda_label(s) == name)
                    for name in (label, "lambda = 1.00")
                )
                row.append(_relative(times, base))
        rows.append(row)
    header = ["lambda", "normal: paper", "ours, 80%", "ours, 90%"]
    header += ["exponential: paper", "ours, 80%", "ours, 90%"]
    return markdown(header, rows) + footnote(results) if results.runs else ""


def _group_sizes(results: Results, speeds: str, factor: float) -> tuple[float, float]:
    """Mean updates per version and mean staleness of an update, over the seeds."""
    sizes, stale = [], []
    for run in results.where(
        lambda s: (
            s["devices"]["compute"]["name"] == speeds
            and s["server"]["schedule"]["latest_factor"] == factor
        )
    ):
        versions = pd.read_parquet(run.folder / "aggregations.parquet")
        count = versions["contributors"]
        sizes.append(count.mean())
        stale.append((versions["staleness_mean"] * count).sum() / count.sum())
    return float(np.mean(sizes)), float(np.mean(stale))


def lambda_time_table(results: Results) -> str:
    """Updates per version and staleness by lambda, without training."""
    rows = [
        [
            f"{factor:.2f}",
            *(
                f"{value:.2f}"
                for speeds in ("normal", "exponential")
                for value in _group_sizes(results, speeds, factor)
            ),
        ]
        for factor in (1.0, 1.2, 1.5, 2.0)
        if results.runs
    ]
    header = ["lambda", "normal: updates per version", "mean staleness"]
    header += ["exponential: updates per version", "mean staleness"]
    return markdown(header, rows) + footnote(results) if rows else ""


COMPASS = "fedcompass/table1_small"


def _compass_ratio(
    label: str, against: str, speeds: str, target: float
) -> Callable[[Results], str]:
    """Time to the target of one row over that of another, seed by seed, in the class partition."""

    def figure(results: Results) -> str:
        times: list[dict[int, float]] = []
        for row in (label, against):
            runs = results.where(
                lambda s, row=row: (
                    compass_label(s) == row
                    and s["devices"]["compute"]["name"] == speeds
                    and s["task"]["partition"]["name"] == "class_partition"
                )
            )
            times.append({run.seed: run.first("accuracy", target, "time_s") for run in runs})
        both = sorted(times[0].keys() & times[1].keys())
        if not both:
            return ""
        ratios = [times[0][seed] / times[1][seed] for seed in both]
        if not any(np.isfinite(ratios)):
            never = label if not any(np.isfinite(times[0][seed]) for seed in both) else against
            return f"{never} never reaches {target:.0%}"
        return f"{label}: {spread(ratios, 2)} times the time of {against} to {target:.0%}"

    return figure


CLAIMS = (
    Claim(
        "exponential speeds: a fifth of FedAvg's time to 90% (paper's CNN)",
        "confirmed with the code's weights (s + 1)^+0.5, in two of three draws",
        "fedcompass/cnn_long",
        _compass_ratio("FedAvg", "FedCompass, +0.5", "exponential", 0.9),
    ),
    Claim(
        "the same with the weights of the paper's text",
        "refuted with the paper's CNN (class partition) and in the small size",
        "fedcompass/cnn_long",
        _compass_ratio("FedCompass, -0.5", "FedAvg", "exponential", 0.85),
    ),
    Claim(
        "normal speeds: a third of FedAvg's time",
        "confirmed with either sign, with the text's by less",
        "fedcompass/cnn_long",
        lambda results: "; ".join(
            _compass_ratio("FedAvg", label, "normal", 0.9)(results)
            for label in ("FedCompass, +0.5", "FedCompass, -0.5")
        ),
    ),
    Claim(
        "ahead of FedAsync",
        "conditional: on MNIST, but not in the small size with equal signs",
        COMPASS,
        _compass_ratio("FedAsync, +0.5", "FedCompass, +0.5", "exponential", 0.8),
    ),
    Claim(
        "ahead of FedBuff",
        "conditional: on MNIST, but not in the small size with equal signs",
        COMPASS,
        _compass_ratio("FedBuff, +0.5", "FedCompass, +0.5", "exponential", 0.8),
    ),
    Claim(
        "further ahead of FedAT than of FedAsync",
        "open: we found no code for the authors' FedAT",
        COMPASS,
        _compass_ratio("FedAT", "FedCompass, +0.5", "exponential", 0.8),
    ),
    Claim(
        "Q_min / Q_max of 0.05 to 0.2 is best",
        "confirmed for normal speeds",
        "fedcompass/q_ratio_small",
        lambda results: (
            "time at 0.8 relative to 0.2: "
            + _relative(*(_times(results, "normal", 0.8, _min_steps(q)) for q in (16, 4)))
        ),
    ),
    Claim(
        "lambda of 1.2 or more lets nearly all clients of a group arrive",
        "confirmed",
        "fedcompass/timing/lambda",
        lambda results: (
            "updates per version, normal speeds: "
            + ", ".join(f"{_group_sizes(results, 'normal', x)[0]:.2f} ({x})" for x in (1.0, 1.2))
        ),
    ),
)

TABLES: Tables = {
    "fedcompass-class": (lambda r: compass_table(r, "class_partition", 0.8), COMPASS),
    "fedcompass-dirichlet": (lambda r: compass_table(r, "dual_dirichlet", 0.7), COMPASS),
    "fedcompass-mnist": (
        lambda r: compass_table(r, "class_partition", 0.8),
        "fedcompass/table1_mnist",
    ),
    "fedcompass-weights": (compass_weights, COMPASS),
    "fedcompass-cnn": (cnn_table, "fedcompass/cnn_long"),
    "fedcompass-q-ratio": (q_ratio_table, "fedcompass/q_ratio_small"),
    "fedcompass-lambda": (lambda_table, "fedcompass/lambda_small"),
    "fedcompass-lambda-time": (lambda_time_table, "fedcompass/timing/lambda"),
}
