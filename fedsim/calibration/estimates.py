"""Estimates of each device from a log: step time, link rates and latency, and how much they vary."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import stats

from fedsim.calibration.log import Rounds, rounds_of
from fedsim.calibration.transfers import CANDIDATES, FASTEST_BPS, Link, Transfers, identify
from fedsim.errors import UserError, printable
from fedsim.network.transport import Transport
from fedsim.traces.bundle import Manifest, TraceBundle
from fedsim.traces.tables import make_table
from fedsim.vocabulary.arrays import Floats, Ints
from fedsim.vocabulary.formatting import (
    format_count,
    format_counted,
    format_duration,
    format_names,
    format_rate,
    format_share,
)
from fedsim.vocabulary.numbers import varies

_LEAST_CV = 1e-3
"""Variation below which rates count as constant."""
_BEYOND = 3.0
"""Local spreads by which a client that the log does not show may be slower than all that it shows."""
_DRAWS = 200
"""Number of draws of the estimates from which the errors of medians are computed."""
_TESTED = 2000
"""Maximum number of dispatches with which the family of a distribution is tested."""
_DRAWN_TESTS = 399
_LONG_STEP_S, _SLOW_BPS = 60.0, 100e3
_SHORT_STEP_S, _FAST_BPS = 1e-5, 20e9
"""Median step times and rates beyond which the unit of a log's times is doubtful."""
WAYS = ("down", "up")
_OPTIONAL = ("downloaded_s", "computed_s", "steps", "bytes_down", "bytes_up")
_MOSTLY = 0.5
"""Share of dispatches without time for local steps above which step times cannot be estimated."""
_LEAST_P = 0.01
"""Significance level: a family of distributions is flagged if a smaller share of its own samples fits worse."""


@dataclass(frozen=True)
class Assumptions:
    """Facts from the scenario of a log that the log may lack.

    Attributes:
        transport: how transfers send their bytes, unless the log clearly shows otherwise.
        latency_s: one-way latency of each client, shape ``(clients,)``; None if it is to be estimated.
        transfers_s: nominal time of both transfers of each client, used if the log has only total times; None if
            unknown.
        bytes_down, bytes_up: bytes per transfer; NaN if unknown.
        steps: local steps of each client's full workload; NaN if unknown.
        kinds: kind of each client's device, None if unknown.
        ram_bytes: memory of each client's device, NaN if unknown.
        always_online: whether rounds never wait for clients to come online.
        shares_links: whether the clients share links.
    """

    transport: Transport = CANDIDATES[0]
    latency_s: Floats | None = None
    transfers_s: Floats | None = None
    bytes_down: float = math.nan
    bytes_up: float = math.nan
    steps: Floats | None = None
    kinds: Sequence[str | None] | None = None
    ram_bytes: Floats | None = None
    always_online: bool = True
    shares_links: bool = False


@dataclass(frozen=True)
class Varying:
    """A quantity that varies from dispatch to dispatch.

    Attributes:
        mean, error: mean of each client (that of the median client if it has none), and its relative standard error;
            NaN if no client has two values.
        seen: whether the log shows the client's mean.
        cv, cv_error: coefficient of variation of all clients together, and its relative standard error.
    """

    mean: Floats
    error: Floats
    seen: npt.NDArray[np.bool_]
    cv: float = 0.0
    cv_error: float = 0.0

    @property
    def shows_spread(self) -> bool:
        """Whether some client has two values, which show how much they vary."""
        return not bool(np.isnan(self.error).any())

    def perturbed(self, generator: np.random.Generator, *, is_rate: bool) -> Floats:
        """Means drawn within their errors, as another log of the same clients might give them.

        Clients that the log does not show are drawn from a lognormal distribution that is fitted to the others: around
        their geometric mean, which has an error that all draws share, and with their spread, but no slower than
        :func:`_slowest`.

        Args:
            generator: the source of the draws.
            is_rate: whether clients with larger values are faster.
        """
        error = np.nan_to_num(self.error)
        means: Floats = self.mean * np.exp(error * generator.standard_normal(len(self.mean)))
        unseen, seen = int((~self.seen).sum()), int(self.seen.sum())
        if unseen and seen > 1:
            logs = np.log(means[self.seen])
            spread = logs.std(ddof=1)
            center = logs.mean() + spread / math.sqrt(seen) * generator.standard_normal()
            drawn = center + spread * generator.standard_normal(unseen)
            sign = -1.0 if is_rate else 1.0
            means[~self.seen] = np.exp(sign * np.minimum(sign * drawn, _slowest(sign * logs)))
        return means


@dataclass(frozen=True, kw_only=True)
class Estimates(Transfers):
    """The devices as estimated from a log, and what the log cannot show (flags); columns of shape ``(clients,)``.

    Attributes:
        clients: their names.
        dispatches: number of completed dispatches from which each client was estimated.
        step_s: time of a local step.
        rates_bps: rates down and up; means are NaN if the log does not show them. Errors are those at the given
            latencies.
        rate_slopes: relative change of each rate per second of latency, shape ``(2, clients)``: with a longer latency,
            transfers as long as the log's need a higher rate.
        rounds: what the log shows about the server between rounds.
        assumptions: facts that the log may lack.
        online: intervals (client, start, end) of seconds in which clients count as online; empty: not estimated.
    """

    clients: tuple[str, ...]
    dispatches: Ints
    step_s: Varying
    rates_bps: tuple[Varying, Varying]
    rate_slopes: Floats
    rounds: Rounds
    assumptions: Assumptions
    online: tuple[tuple[str, float, float], ...] = ()

    def perturbed(self, generator: np.random.Generator) -> Estimates:
        """Estimates drawn within their errors, as another log of the same devices might give them."""
        normal = generator.standard_normal

        def drawn_cv(of: Varying) -> float:
            return float(of.cv * np.exp(of.cv_error * normal()))

        latency_s = self.latency_s + self.latency_errors * normal(len(self.latency_s))
        latency_s = np.maximum(latency_s, 0.0)
        cvs = list(map(drawn_cv, self.rates_bps))
        step_means = self.step_s.perturbed(generator, is_rate=False)
        step_s = replace(self.step_s, mean=step_means, cv=drawn_cv(self.step_s))
        longer = np.exp(self.rate_slopes * (latency_s - self.latency_s))
        down, up = (
            replace(rate, mean=rate.perturbed(generator, is_rate=True) * factor, cv=cv)
            for rate, factor, cv in zip(self.rates_bps, longer, cvs, strict=True)
        )
        gap_s = max(self.rounds.gap_s + self.rounds.gap_error_s * normal(), 0.0)
        rounds = replace(self.rounds, gap_s=gap_s)
        return replace(
            self, step_s=step_s, rates_bps=(down, up), latency_s=latency_s, rounds=rounds
        )

    @cached_property
    def medians(self) -> Floats:
        """Medians of step time, rates down and up, and latency, and their standard errors, shape ``(2, 4)``.

        The errors are computed from draws of the estimates within their errors, with a fixed seed. A latency that is
        not estimated has none (NaN).
        """

        def median(of: Estimates) -> Floats:
            rates = [rate.mean for rate in of.rates_bps]
            values: Floats = np.median([of.step_s.mean, *rates, of.latency_s], axis=1)
            return values

        generator = np.random.default_rng(0)
        drawn = [median(self.perturbed(generator)) for _ in range(_DRAWS)]
        shown = [each.shows_spread for each in (self.step_s, *self.rates_bps)]
        errors = np.where([*shown, self.latency_from == "log"], np.std(drawn, axis=0), np.nan)
        return np.array([median(self), errors])

    @property
    def knows_links(self) -> bool:
        """Whether the log shows the rates of the links."""
        return all(bool(np.isfinite(rate.mean).all()) for rate in self.rates_bps)


def _slowest(logs: Floats) -> float:
    """The slowest draw of a client that a log does not show: three local spreads beyond the slowest that it shows.

    One slow client determines how long the whole run takes. The local spread is the root mean square distance from the
    median of the values above it, so that values far below, such as those of links too fast to be measured, do not
    count.

    Args:
        logs: logarithms of the seconds (per step or per bit) of the clients that the log shows, at least two.
    """
    above = (logs - np.median(logs))[logs > np.median(logs)]
    spread = math.sqrt(float((above**2).sum()) / max(len(above), 1))
    return float(logs.max()) + _BEYOND * spread


def estimate(
    log: pd.DataFrame, clients: Sequence[str], assumptions: Assumptions, last: float = math.inf
) -> Estimates:
    """Estimate the devices of ``clients`` from the completed dispatches of a log.

    Each quantity is estimated from the dispatches that show it: a download that ended, local steps with their number.

    Args:
        log: dispatches with the numbers of the clients, as from :func:`~fedsim.calibration.log.numbered`.
        clients: names of the clients, by number.
        assumptions: facts that the log may lack.
        last: the last round to be considered.
    """
    rounds = rounds_of(log, last, always_online=assumptions.always_online)
    if last < math.inf:
        log = log[log["round"] <= last]
    # A copy of a long log would be most of the memory that a calibration needs.
    done = log if (ended := log["end_s"].notna()).all() else log[ended]
    client = done["client"].to_numpy(np.int64)
    count = len(clients)
    lacking = [
        f"{column.removesuffix('_s')} is missing in {format_count(missing)}"
        for column in _OPTIONAL
        if 0 < (missing := int(done[column].isna().sum())) < len(done)
    ]
    flags = []
    if lacking:
        flags.append(
            f"Of {format_count(len(done))} completed dispatches, {format_names(lacking)}: each estimate rests on the"
            " dispatches that show it."
        )
    steps = done["steps"].to_numpy(float)
    if assumptions.steps is not None:
        steps = np.where(np.isnan(steps), assumptions.steps[client], steps)
    elif np.isnan(steps).all():
        flags.append("The log has no local steps: each dispatch counts as one step.")
        steps = np.ones(len(done))
    compute_s = done["compute_s"].to_numpy()
    transfers = Transfers(assumptions.transport, np.full(count, np.nan), np.zeros(count))
    unknown = Varying(transfers.latency_s, np.zeros(count), np.zeros(count, dtype=bool))
    rates, slopes = [unknown, unknown], np.zeros((2, count))
    if np.isfinite(compute_s).any():
        if links := _links(done, client, count, assumptions, flags):
            transfers, rates, slopes = links
    else:
        compute_s = (done["end_s"] - done["start_s"]).to_numpy()
        left = "All time counts as compute."
        if assumptions.transfers_s is not None:
            wire_s = assumptions.transfers_s[client]
            if (over := wire_s >= compute_s).any():
                fact = (
                    f"The scenario's links alone take {format_duration(float(np.median(wire_s[over])))}, longer than"
                    f" the whole of {format_share(float(over.mean()))} of the log's dispatches: no time is left for"
                    " their local steps"
                )
                fix = "Correct devices.network or the bytes of the scenario, or give the columns downloaded and"
                fix += " computed."
                if over.mean() > _MOSTLY:
                    raise UserError(fact, hint=fix)
                flags.append(f"{fact}. {fix}")
            compute_s = np.maximum(compute_s - wire_s, 1e-9)
            left = "What the scenario's links do not take counts as compute."
        flags.append(
            f"The log has only total times: compute and network cannot be separated. {left}"
        )
    step_times = compute_s / steps
    shown = np.isfinite(step_times)
    computing, step_times = client[shown], step_times[shown]
    if not len(step_times):
        raise UserError(
            "no dispatch of the log shows both its local steps and their number",
            hint="complete the columns downloaded, computed and steps in some rows, or leave steps out of all",
        )
    step = _by_client(computing, step_times, count)
    if step.cv:
        flags.append(
            "A client's step times are assumed to vary lognormally, by the same share for all clients."
        )
    flags += _fit_flags("step times", "lognormal", step, computing, step_times)
    informative = np.bincount(computing, minlength=count)
    if unseen := int((informative == 0).sum()):
        flags.append(
            f"Clients without a completed dispatch get the median of the others: {unseen} of {count}."
        )
    if not step.shows_spread:
        flags.append(
            "No client has two completed dispatches: how much times vary, and the errors of the estimates, are unknown."
        )
    elif single := int((informative == 1).sum()):
        flags.append(
            f"Clients with only one completed dispatch get the spread of the others: {single} of {count}."
        )
    known_s = pd.Series(step.mean if log["steps"].notna().any() else np.nan)
    measured = (pd.Series(rate.mean[rate.mean < FASTEST_BPS]) for rate in rates)
    flags = unit_flags(known_s, *measured) + flags
    dropped = log["outcome"] == "dropped"
    endless = dropped & log["ended_s"].isna()
    absent = log["client"][dropped if endless.sum() < dropped.sum() else []]
    lacks = "without dropped dispatches"
    if dropped.any():
        lacks = f"it does not say when its dropped dispatches ({format_count(int(dropped.sum()))}) ended, so"
    flags.append(
        f"A log shows when clients worked, not when they could have worked: {lacks}, availability is"
        " not estimated. A scenario that names this bundle needs devices.availability: always."
        if absent.empty
        else f"Availability is estimated from the dropped dispatches ({format_count(len(absent))}) of"
        f" {format_counted(absent.nunique(), 'client')}, which count as offline from such a dispatch to their next one:"
        " they may have been back earlier, and away at other times."
        + f" {format_count(int(endless.sum()))} of these do not say when they ended: offline from their start."
        * bool(endless.any())
    )
    return Estimates(
        **{**vars(transfers), "flags": tuple(flags)},
        clients=tuple(clients),
        dispatches=np.bincount(client, minlength=count),
        step_s=step,
        rates_bps=(rates[0], rates[1]),
        rate_slopes=slopes,
        rounds=rounds,
        assumptions=assumptions,
        online=_online(log, clients),
    )


def unit_flags(step_s: pd.Series, *rates_bps: pd.Series) -> list[str]:
    """A flag if half of the times of a local step, or of the rates of some links, are so long, short, low or high that
    the unit is doubted."""
    flag = "Check the unit of the log's times, which are read as seconds: half of the devices take {} than {} per local"
    flag += " step, or half of the links carry {} than {}. If they are {}."
    middles = [rates.median() for rates in rates_bps]
    if step_s.median() > _LONG_STEP_S or any(middle < _SLOW_BPS for middle in middles):
        fix = "milliseconds, divide them by 1000"
        long, low = format_duration(_LONG_STEP_S), format_rate(_SLOW_BPS)
        return [flag.format("more", long, "less", low, fix)]
    if step_s.median() < _SHORT_STEP_S or any(middle > _FAST_BPS for middle in middles):
        fix = "hours or days, multiply them by 3600 or 86400"
        short, high = format_duration(_SHORT_STEP_S), format_rate(_FAST_BPS)
        return [flag.format("less", short, "more", high, fix)]
    return []


def _links(
    done: pd.DataFrame, client: Ints, count: int, assumptions: Assumptions, flags: list[str]
) -> tuple[Transfers, list[Varying], Floats] | None:
    """Transfers, rates and their slopes; None if the log does not show them. Adds to ``flags``."""

    def shown(way: str) -> tuple[Ints, Link]:
        sizes, spans_s = done[f"bytes_{way}"].to_numpy(float), done[f"{way}load_s"].to_numpy()
        sizes = np.where(np.isnan(sizes), getattr(assumptions, f"bytes_{way}"), sizes)
        rows = (sizes > 0) & np.isfinite(sizes) & np.isfinite(spans_s)
        return client[rows], Link(sizes[rows], spans_s[rows])

    links = []
    for way in WAYS:
        by, link = shown(way)
        ends = np.bincount(by, minlength=count).cumsum()[:-1]
        by_client = np.split(np.argsort(by, kind="stable"), ends)
        links.append([Link(link.sizes[each], link.spans_s[each]) for each in by_client])
        # Two copies of a long log's transfers would be the peak of memory.
        del by, link, by_client
    if not all(any(len(link.sizes) for link in one_way) for one_way in links):
        lacks, columns = "bytes", "bytes_down and bytes_up"
        if done[["download_s", "upload_s"]].isna().all().any():
            lacks, columns = "times of transfers", "download_s and upload_s"
        flags.append(
            f"The log has no {lacks}, so the rates of the links cannot be estimated; give {columns}, or a scenario."
        )
        return None
    pairs = list(zip(*links, strict=True))
    transfers = identify(pairs, assumptions.transport, assumptions.latency_s)
    flags += transfers.flags
    slopes = np.zeros((2, count))
    for row, one_way in enumerate(links):
        latencies = zip(one_way, transfers.latency_s, transfers.latency_errors, strict=True)
        slopes[row] = [link.slope(transfers.transport, *each) for link, *each in latencies]
    del pairs, links
    rates, too_fast = [], np.zeros(count, dtype=bool)
    for way in WAYS:
        by, link = shown(way)
        rates_bps = link.rates_bps(transfers.transport, transfers.latency_s[by])
        too_fast[by[rates_bps >= FASTEST_BPS]] = True
        rates.append(_by_client(by, rates_bps, count))
        flags += _fit_flags(f"rates {way}", "normal", rates[-1], by, rates_bps)
    if too_fast.any():
        what, fix = "take no time", "Leave downloaded and computed empty if they were not measured."
        if transfers.latency_from == "scenario":
            what, fix = (
                "are shorter than the scenario's latency",
                "Correct devices.network.latency.",
            )
        flags.insert(
            0,
            f"Transfers of {too_fast.sum()} of {format_counted(count, 'client')} {what}, so the rates of these links"
            f" mean nothing. {fix}",
        )
    return transfers, rates, slopes


def _online(log: pd.DataFrame, clients: Sequence[str]) -> tuple[tuple[str, float, float], ...]:
    """Intervals (client, start, end) from one return to the next drop; none if no dispatch was dropped."""
    dropped = log["outcome"] == "dropped"
    if not log["ended_s"][dropped].notna().any():
        return ()
    # Only a drop and the dispatch after it change whether a client is online.
    after = dropped.groupby(log["client"]).shift(fill_value=False)
    rows = log.assign(dropped=dropped, after=after)[dropped | after]
    by_client = rows["client"]
    rows["left_s"] = rows["ended_s"].fillna(rows["start_s"]).where(rows["dropped"])
    gone_s = rows["left_s"].groupby(by_client).cummax().groupby(by_client).ffill()
    # A client may get work before the loss of its previous dispatch is noticed.
    back_s = rows["start_s"].clip(lower=gone_s.groupby(by_client).shift())
    rows["since_s"] = back_s.where(rows["after"]).groupby(by_client).ffill().fillna(0.0)
    left = rows[rows["dropped"] & (rows["left_s"] > rows["since_s"])]
    stays = list(zip(left["client"], left["since_s"], left["left_s"], strict=True))
    end_s = horizon_s(log)
    last = rows.groupby("client").last()
    stays += [(number, since, end_s) for number, since in last["since_s"][~last["dropped"]].items()]
    stays += [(number, 0.0, end_s) for number in range(len(clients)) if number not in last.index]
    return tuple((clients[number], since, until) for number, since, until in sorted(stays))


def horizon_s(log: pd.DataFrame) -> float:
    """The time that a log covers, from its first start to after its last event."""
    return float(np.nanmax(log[["start_s", "end_s", "ended_s"]].to_numpy(float))) + 1.0


def _by_client(client: Ints, values: Floats, count: int) -> Varying:
    """The means of ``count`` clients, and their variation.

    The error of the variation is that of a standard deviation, ``sqrt((kurtosis - 1) / n) / 2``.
    """
    rows = np.bincount(client, minlength=count)
    with np.errstate(invalid="ignore"):
        mean = np.bincount(client, values, count) / rows
    squares = (values / mean[client] - 1) ** 2
    freedom = len(values) - int((rows > 0).sum())
    cv = math.sqrt(float(squares.sum()) / freedom) if freedom else 0.0
    spread = np.nanstd(np.log(mean[rows > 0])) if (rows > 0).sum() > 1 else 0.0
    error = np.where(rows > 0, cv / np.sqrt(np.maximum(rows, 1)), spread)
    error += 0.0 if freedom else np.nan
    mean = np.where(rows > 0, mean, np.nanmedian(mean))
    if cv < _LEAST_CV:
        return Varying(mean, error, rows > 0)
    kurtosis = float((squares**2).mean() / squares.mean() ** 2)
    return Varying(mean, error, rows > 0, cv, math.sqrt(max(kurtosis - 1, 1.0) / freedom) / 2)


def _fit_flags(
    name: str, family: str, fitted: Varying, client: Ints, values: Floats
) -> Iterator[str]:
    """A flag if the values do not vary as in the simulation."""
    if not fitted.cv:
        return
    ratio = values / fitted.mean[client]
    p = family_p(client, np.log(ratio) if family == "lognormal" else ratio)
    if p < _LEAST_P:
        yield (
            f"The logged {name} do not follow one {family} distribution for all clients, as the simulation assumes"
            f" (Kolmogorov-Smirnov test, p = {p:.2g}): means are reliable, extremes may not be."
        )


def family_p(client: Ints, values: Floats) -> float:
    """The share of normal samples that are farther from a normal distribution than the values are.

    Kolmogorov-Smirnov test with estimated mean of each client and estimated common variance (Lilliefors, 1967), from
    samples with a fixed seed; 1 if no client has two different values.
    """
    rows = np.bincount(client)
    mean = np.bincount(client, values) / np.maximum(rows, 1)
    several = np.flatnonzero((rows > 1)[client])
    if len(several) <= (rows > 1).sum() + 1:
        return 1.0
    tested = several[np.unique(np.linspace(0, len(several) - 1, _TESTED).round().astype(int))]
    # The distance of a value from the mean of n has the share 1 - 1 / n of the variance.
    left = values[tested] - mean[client[tested]]
    left /= np.sqrt(1 - 1 / rows[client[tested]])
    if not varies(left.std(), np.abs(values).max(), len(values)):
        return 1.0
    test = stats.goodness_of_fit(
        stats.norm, left, statistic="ks", n_mc_samples=_DRAWN_TESTS, random_state=0
    )
    return float(test.pvalue)


def to_bundle(estimates: Estimates, name: str, source: str, seconds: float) -> TraceBundle:
    """The estimates as a trace bundle that covers ``seconds``, with one device per client in the same order."""
    ids = list(estimates.clients)
    horizon_us = max(round(seconds * 1e6), 1)
    devices = {"device_id": ids, "window_start_us": 0, "window_end_us": horizon_us, "valid": True}
    if estimates.assumptions.kinds is not None:
        devices["kind"] = list(estimates.assumptions.kinds)
    compute = {
        "device_id": ids,
        "task": "*",
        "phase": "training",
        "step_fixed_s": estimates.step_s.mean,
        "sample_s": 0.0,
    }
    if estimates.step_s.shows_spread:
        compute["step_fixed_error"] = estimates.step_s.error
    if (ram_bytes := estimates.assumptions.ram_bytes) is not None:
        compute["ram_bytes"] = [None if math.isnan(each) else int(each) for each in ram_bytes]
    tables = {"devices": make_table("devices", devices), "compute": make_table("compute", compute)}
    if estimates.knows_links:
        rates = estimates.rates_bps
        network = {
            "device_id": [each for each in ids for _ in range(2)],
            "direction": ["down", "up"] * len(ids),
            "bandwidth_bps": np.stack([rate.mean for rate in rates], 1).ravel(),
            "bandwidth_cv": np.tile([rate.cv for rate in rates], len(ids)),
            "rtt_s": np.repeat(2 * estimates.latency_s, 2),
            "rtt_error_s": np.repeat(2 * estimates.latency_errors, 2),
        }
        if all(rate.shows_spread for rate in rates):
            network["bandwidth_error"] = np.stack([rate.error for rate in rates], 1).ravel()
        tables["network"] = make_table("network", network)
    if estimates.online:
        names, starts, ends = zip(*estimates.online, strict=True)
        availability = {"device_id": names, "start_us": [round(start * 1e6) for start in starts]}
        availability["end_us"] = [min(round(end * 1e6), horizon_us) for end in ends]
        tables["availability"] = make_table("availability", availability)
    manifest = Manifest(
        name=printable(name),
        source=printable(source),
        horizon_us=horizon_us,
        importer="calibrate",
        importer_version="1",
        caveats=list(estimates.flags),
        options={"jitter_cv": estimates.step_s.cv},
    )
    return TraceBundle(manifest, tables)
