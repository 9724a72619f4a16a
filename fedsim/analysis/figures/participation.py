"""Figures of participation: which clients participated, how evenly, and how stale their updates were."""

from __future__ import annotations

import numpy as np
import pandas as pd

from fedsim.analysis import statistics
from fedsim.analysis.figures.base import (
    Column,
    Columns,
    Figure,
    columns_of,
    drawn_as_lines,
    histogram,
    integer_bins,
    names_of,
    population,
    section,
    shares_within,
    thin,
    time_bins,
)
from fedsim.runs import Run
from fedsim.vocabulary.formatting import (
    format_count,
    format_counted,
    format_mean_count,
    format_number,
    format_share,
)

MAX_CELLS = 6000
_PARTS: Columns = (
    ("rate", "rate", "number"),
    ("parameters", "parameters", "count"),
    ("memory_bytes", "memory", "bytes"),
    ("operations", "operations", "share"),
    ("bytes_down", "download", "bytes"),
    ("bytes_up", "upload", "bytes"),
    ("clients", "clients", "count"),
    ("contributed", "contributed", "count"),
    ("aggregated", "updates", "count"),
    ("accuracy", "accuracy", "share"),
)


def parts(run: Run) -> Figure | None:
    """Cost and use of each part of the model; None if all clients train the whole model."""
    if not run.info.get("parts"):
        return None
    clients = run.clients
    by_rate = clients.assign(contributed=clients["aggregated"] > 0).groupby("part")
    use = by_rate.agg(
        clients=("client_id", "size"),
        contributed=("contributed", "sum"),
        aggregated=("aggregated", "sum"),
        accuracy=("last_accuracy", "mean"),
    )
    table = pd.DataFrame(run.info["parts"]).join(use, on="rate")
    counted = ["clients", "contributed", "aggregated"]
    table[counted] = table[counted].fillna(0).astype(int)
    less = clients.loc[clients["part"] < table["rate"].max(), "aggregated"] > 0
    measured = _PARTS if table["accuracy"].notna().any() else _PARTS[:-1]
    return Figure(
        "parts",
        f"{format_counted(int(less.sum()), 'client')} that trained a smaller part than others contributed.",
        columns_of(table, measured),
    )


def participation(run: Run) -> Figure | None:
    """Number of aggregated updates per client; None without updates."""
    counts = statistics.participation_counts(run.dispatches, population(run))
    if not counts.any():
        return None
    never = int((counts == 0).sum())
    clients = f"{format_count(len(counts) - never)} of {format_count(len(counts))}"
    curve, tenth = statistics.lorenz_curve(counts), max(round(0.1 * len(counts)), 1)
    top, coefficient = 1.0 - curve[len(counts) - tenth], statistics.gini(counts)
    even = (
        " All contributed equally."
        if counts.min() == counts.max()
        else f" The most active tenth contributed {format_share(top)} of the updates "
        f"(Gini coefficient {coefficient:.2f})."
    )
    return histogram(
        "participation",
        f"{clients if never else f'All {format_count(len(counts))}'} clients contributed at least one update; "
        f"the most active contributed {format_count(counts.max(initial=0))}.{even}",
        counts,
        integer_bins(counts),
        "count",
        "clients",
        "aggregated updates",
        "updates from",
    )


def contribution(run: Run) -> Figure | None:
    """Number of clients that contributed, by kind of device, and why the others did not; None if all did."""
    if not run.has_clients:
        return None
    reason = _reasons(run)
    if (reason == _CONTRIBUTED).all():
        return None
    kinds = run.clients["kind"].fillna("unknown")
    most = kinds.value_counts().index[:_MOST_KINDS]
    counted = pd.crosstab(kinds.where(kinds.isin(most), "others"), reason)
    if len(counted) > 1:
        counted.loc["all"] = counted.sum()
    else:
        counted.index = pd.Index(["all"])
    contributed = counted.get(_CONTRIBUTED, pd.Series(0, counted.index))
    clients = counted.sum(axis=1)
    reasons = [str(name) for name in counted if name != _CONTRIBUTED]
    reasons.sort(key=lambda name: [*_NO_WORK, name].index(name))
    others = "; ".join(f"{name}: {format_count(counted[name].iloc[-1])}" for name in reasons)
    return Figure(
        "contribution",
        f"{format_count(contributed['all'])} of {format_counted(clients['all'], 'client')} contributed; {others}.",
        (
            Column("kind", "kind of device", "text", counted.index.tolist()),
            Column("clients", "clients", "count", clients.to_numpy()),
            Column("contributed", "contributed", "count", contributed.to_numpy()),
            Column("share", "share", "share", (contributed / clients).to_numpy()),
            *(Column(name, name, "count", counted[name].to_numpy()) for name in reasons),
        ),
    )


_CONTRIBUTED = "contributed"
_NO_WORK = ("excluded", "never online", "never selected")
_MOST_KINDS = 12


def _reasons(run: Run) -> pd.Series:
    """For each client, that it contributed, or why not: no work, or the most frequent end of its dispatches."""
    clients, dispatches = run.clients, run.dispatches
    contributes = clients["aggregated"].to_numpy() > 0
    is_away = clients["online_fraction"].to_numpy() == 0
    excluded, away, idle = _NO_WORK
    if run.info.get("ineligible_clients"):
        away += ", or without the memory"
    reason = np.where(contributes, _CONTRIBUTED, np.where(is_away, away, idle)).astype(object)
    reason[list(section(run, "devices").get("exclude") or ())] = excluded
    lost = dispatches[~contributes[dispatches["client_id"].to_numpy()]]
    if len(lost):
        cause = (" (" + lost["cause"].astype(object) + ")").fillna("")
        counted = pd.crosstab(lost["client_id"], lost["outcome"].astype(str) + cause)
        reason[counted.index] = [f"mostly {end}" for end in counted.idxmax(axis=1)]
    return pd.Series(reason, clients.index)


def staleness(run: Run) -> Figure | None:
    """How stale the aggregated updates were, in versions; None if all were equally stale."""
    versions = statistics.staleness(run.dispatches, run.device_aggregations)["versions"].to_numpy()
    if not len(versions) or versions.min() == versions.max():
        return None
    finding = (
        f"While a client worked, the server made {format_mean_count(versions.mean())} newer versions on average, "
        f"and at most {format_count(versions.max())}."
    )
    edges, words = integer_bins(versions), ("staleness in versions", "versions from")
    return histogram("staleness", finding, versions, edges, "count", "updates", *words)


def age(run: Run) -> Figure | None:
    """Age of the aggregated updates, in simulated time; None without updates."""
    table = statistics.staleness(run.dispatches, run.device_aggregations)
    seconds, versions = table["seconds"].to_numpy(), table["versions"].to_numpy()
    if not len(table):
        return None
    finding = f"{shares_within(seconds, 'of the updates were aggregated', 'of their dispatch')}."
    if not versions.any():
        finding += " Every one was trained from the newest version."
    elif versions.min() == versions.max():
        behind = format_counted(versions[0], "version")
        finding += f" Every one was trained {behind} behind the newest."
    edges = time_bins(float(seconds.max()), 40)
    return histogram("age", finding, seconds, edges, "time", "updates", "time since dispatch")


def delay(run: Run) -> Figure | None:
    """FedSUM's delay tau_t over the server updates; None if it mostly counts them, or with fewer than two of them.

    None with edge servers, too, to whose versions clients contribute.
    """
    updates = len(run.aggregations)
    if updates < 2 or run.has_edges:
        return None
    tau, rows = run.aggregations["delay_max"].to_numpy(), thin(updates)
    columns = [Column("tau", "server updates missed", "count", tau[rows])]
    mean, largest = format_mean_count(tau.mean()), format_counted(tau.max(), "update")
    finding = f"The client absent longest had missed {largest} at worst, and {mean} on average"
    used = run.dispatches[run.dispatches["aggregated_version"].notna()]
    ids, numbers = np.unique(used["client_id"], return_inverse=True)
    if len(ids) < population(run):
        seen = tau
        if len(ids):
            seen = statistics.delays(used.assign(client_id=numbers), len(ids), updates)
        columns.append(Column("tau_seen", "among clients that participated", "count", seen[rows]))
        mean, largest = format_mean_count(seen.mean()), format_count(seen.max())
        finding += (
            f"; among those that contributed at all, {largest} at worst, and {mean} on average"
        )
    if np.equal(columns[-1].values, rows + 1).mean() > 0.5:
        return None
    versions = Column("version", "server update", "count", rows + 1)
    # While some client has never participated, the absence over all clients only counts the updates.
    drawn = drawn_as_lines({"key": columns[-1].key}, unit="server updates", zero=True)
    return Figure("delay", f"{finding}.", (versions, *columns), drawn)


def regularity(run: Run) -> Figure | None:
    """Wang & Ji's participation term over the window length; None with fewer than two updates, or with edge servers."""
    updates = len(run.aggregations)
    windows = [p for p in (m * 10**k for k in range(7) for m in (1, 2, 5)) if p <= updates // 2]
    if not windows or run.has_edges:
        return None
    of = run.dispatches, population(run), updates
    terms = [statistics.participation_term(*of, window) for window in windows]
    means = [float(term.mean()) for term in terms]
    return Figure(
        "regularity",
        f"Over {windows[-1]} updates in a row, the weights of the clients were {format_share(means[-1] / means[0])} as "
        "uneven as in single updates."
        if means[0]
        else "All clients had the same weight in every update.",
        (
            Column("window", "window in server updates", "count", windows),
            Column("mean", "mean of the windows", "number", means),
            Column("max", "largest window", "number", [float(term.max()) for term in terms]),
        ),
    )


def partition(run: Run) -> Figure | None:
    """Labels of the clients' data; None if the run recorded none."""
    table = run.partition
    if table is None or not len(table):
        return None
    labels = np.unique(table["label"].to_numpy())
    clients = np.unique(table["client_id"].to_numpy())
    shown = clients[thin(len(clients), max(MAX_CELLS // len(labels), 1))]
    sample = table[table["client_id"].isin(shown)]
    matrix = sample.pivot_table(
        index="client_id", columns="label", values="count", aggfunc="sum", fill_value=0
    )
    matrix = matrix.reindex(columns=labels, fill_value=0)
    clients_shown = matrix.index.to_numpy()
    names = names_of(run, clients_shown)
    words = run.info.get("label_names") or []
    labeled = [words[label] if label < len(words) else f"label {label}" for label in labels]
    held = table[table["count"] > 0].groupby("client_id").size()
    some = f"{format_count(len(shown))} of {format_count(len(clients))} clients"
    which = some if len(shown) < len(clients) else "all clients"
    finding = (
        f"Every client has data of all {len(labels)} labels."
        if len(labels) > 1 and (held.reindex(clients, fill_value=0) == len(labels)).all()
        else f"Clients have data of {format_number(held.mean())} of the {len(labels)} labels on average."
    )
    return Figure(
        "partition",
        finding,
        (
            Column("client_id", "client", "text" if names else "count", names or clients_shown),
            *(
                Column(f"label_{label}", text, "count", matrix[label].to_numpy())
                for label, text in zip(labels, labeled, strict=True)
            ),
        ),
        {"labels": labeled if words else labels, "shown": which},
    )
