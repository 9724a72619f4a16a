"""Logs as people hold them: each kind is a row of one table, with the right value by pandas, or the refusal.

A row is an importer, its files (a text, texts by name, or a frame for Parquet), its options, and what is right:
hours online per device, a mean rate in Mbit/s per link, values of a column, or the place and the fix that a refusal
must name.
"""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pydantic import ValidationError

from fedsim.errors import UserError
from fedsim.traces.bundle import TraceBundle
from fedsim.traces.validation import implausible_rates
from tests.traces.helpers import import_, refused

T0 = pd.Timestamp("2024-05-01T08:00Z")


def hours(bundle: TraceBundle) -> dict[str, float]:
    """Time online of each device."""
    table = bundle.tables["availability"].to_pandas()
    length = (table["end_us"] - table["start_us"]).groupby(table["device_id"].astype(str)).sum()
    ids = bundle.device_ids.to_pylist()
    return {name: round(each, 6) for name, each in (length.reindex(ids).fillna(0) / 3.6e9).items()}


def begins(bundle: TraceBundle) -> list[str]:
    """Starts of all intervals, in UTC."""
    table = bundle.tables["availability"].to_pandas()
    starts = pd.Timestamp(bundle.epoch) + pd.to_timedelta(table["start_us"], unit="us")
    return [each.isoformat() for each in starts.dt.tz_convert("UTC")]


def epoch_and_windows(bundle: TraceBundle) -> tuple[str | None, list[float], list[float]]:
    """Time 0, and the start and the end of the devices' windows in hours."""
    low, high = bundle.windows
    return bundle.manifest.epoch, (low / 3.6e9).tolist(), (high / 3.6e9).tolist()


def mbps(bundle: TraceBundle) -> dict[str, float]:
    """Mean rate of each series, weighted by time."""
    table = bundle.tables["network_series"].to_pandas()
    names = table["series_id"].astype(str) + " " + table["direction"].astype(str)
    bits = (table["rate_bps"] * table["dur_us"]).groupby(names).sum()
    means = bits / table["dur_us"].groupby(names).sum() / 1e6
    return {name: round(each, 6) for name, each in means.items()}


def column(table: str, name: str, digits: int = 6) -> Callable[[TraceBundle], list[float]]:
    return lambda bundle: np.round(bundle.numpy(table, name).astype(float), digits).tolist()


def pieces(bundle: TraceBundle) -> list[tuple[float, ...]]:
    """Start and length (s) and rate (Mbit/s) of the pieces of the only series."""
    table = bundle.tables["network_series"].to_pandas()
    columns = [table[name] / 1e6 for name in ("start_us", "dur_us", "rate_bps")]
    return list(zip(*(each.tolist() for each in columns), strict=True))


def counted(bundle: TraceBundle) -> dict[str, int]:
    return {name: count for name, count in bundle.manifest.counts.items() if count}


def rows(*seconds: float, device: str = "a", more: str = "") -> str:
    return "".join(
        f"{device},{(T0 + pd.Timedelta(seconds=s)).isoformat()}{more}\n" for s in seconds
    )


def spread_over(times: list[float], hold: float) -> float:
    """Hours in which an event was at most ``hold`` seconds ago."""
    gaps = pd.Series(times).diff().shift(-1).fillna(hold)
    return round(float(gaps.clip(upper=hold).sum() / 3600), 6)


def union(log: str, hold: float = np.inf) -> dict[str, float]:
    """Hours in which the last row of some access point, less than ``hold`` minutes ago, is on; tried by the minute."""
    table = pd.read_csv(io.StringIO(log)).sort_values("time", kind="stable")
    rows = list(
        zip(*(table[name].tolist() for name in ("time", "device", "ap", "state")), strict=True)
    )
    online = dict.fromkeys(map(str, sorted(table["device"].unique())), 0)
    for minute in range(int(table["time"].max() + (hold if np.isfinite(hold) else 0))):
        last = {(device, ap): (time, state) for time, device, ap, state in rows if time <= minute}
        for name in {
            str(device)
            for (device, _), (time, state) in last.items()
            if state == "on" and time > minute - hold
        }:
            online[name] += 1
    return {device: round(minutes / 60, 6) for device, minutes in online.items()}


def random_log(seed: int, sources: int = 3) -> str:
    """The states of two devices, on or off, as some access points report them in 60 rows."""
    rng = np.random.default_rng(seed)
    values = [rng.integers(2, size=60), rng.integers(90, size=60), rng.integers(sources, size=60)]
    pairs = zip(*values, rng.choice(["on", "off"], 60), strict=True)
    # Each device is seen at first, and in a known order.
    lines = [f"{device},{time},{ap},{state}" for device, time, ap, state in pairs]
    return "\n".join(["device,time,ap,state", "0,0,0,off", "1,0,0,on", *lines, ""])


def ports(names: str, late: int) -> str:
    """The counters of two ports of a host, polled one after the other."""
    rows_ = [
        f"sw1,{port},{300 * n + late * number},{1000 + 10**6 * number + 10**5 * n}\n"
        for n in range(4)
        for number, port in enumerate(names)
    ]
    return "".join(["host,if,t,in\n", *rows_])


def parquet_of(table: pd.DataFrame) -> bytes:
    content = io.BytesIO()
    table.to_parquet(content)
    return content.getvalue()


def notes(part: str) -> Callable[[TraceBundle], list[str]]:
    """The limits that a manifest names with these words."""
    return lambda bundle: [each for each in bundle.manifest.caveats if part in each]


UNKNOWN = (
    "device,time,state\na,2024-05-01T00:00Z,t\na,2024-05-01T06:00Z,{}\na,2024-05-01T12:00Z,f\n"
)
GAPS = "time,a,b\n0,1,1\n10,0,\n20,1,\n30,1,NaN\n40,0,\n"
WIDE_IN_MINUTES = {"columns": {"device": "column"}, "time_unit": "min"}
# Two overlap, one begins and one ends with the log.
DOWNTIMES = "service,outage_start,outage_end,cause\n" + "".join(
    f"{name},{T0 + pd.Timedelta(hours=begin)},{T0 + pd.Timedelta(hours=end)},{kind}\n"
    for name, begin, end, kind in (
        ("a", 0, 2, "hard"),
        ("a", 10, 15, "soft"),
        ("a", 13, 16, "soft"),
        ("b", 22, 30, "soft"),
    )
)
OUT = {"device": "service", "start": "outage_start", "end": "outage_end"}
# A client connects again before the broker notices that it has gone.
TAKEOVER = "client,time,event,token\n" + "".join(
    f"{row}\n"
    for row in (
        *("a,2024-05-01T08:00Z,connected,1", "a,2024-05-01T09:00Z,connected,2"),
        *("a,2024-05-01T09:00:01Z,disconnected,1", "a,2024-05-01T12:00Z,disconnected,2"),
        *("b,2024-05-01T08:00Z,connected,3", "b,2024-05-01T10:00Z,disconnected,3"),
    )
)
ROW_IDS = "id,host,at,is_up\n1,a,2024-05-01T08:00Z,true\n2,a,2024-05-01T09:00Z,false\n"
LABELS = "host,at,owner,compliance\na,2024-05-01T08:00Z,Corp,ok\na,2024-05-01T16:00Z,Corp,bad\n"
AT_HOST = {"columns": {"device": "host", "time": "at"}}
INCIDENTS = pd.DataFrame(
    {
        "id": [f"Q{n}" for n in range(12)],
        "service_id": ["a", "b"] * 6,
        "created_on": [f"2024-05-{n + 1:02}T08:00Z" for n in range(12)],
        "resolved_on": [f"2024-05-{n + 1:02}T09:00Z" for n in range(12)],
        "seconds_to_first_ack": 60,
        "seconds_to_resolve": 3600,
        "auto_resolved": "false",
    }
).to_csv(index=False)
PINGS = "id,ts,pop_ping_drop_rate,pop_ping_latency_ms\na,1,0.0,40\na,2,0.0,44\nb,3,0.1,50\n"
BEATS_OF_URLS = "".join(
    json.dumps(
        {
            "monitor": {"id": "a", "status": ("up", "down")[n % 2], "duration": {"us": 900 + n}},
            "@timestamp": n,
            "summary": {"up": 1 - n % 2},
        }
    )
    + "\n"
    for n in range(4)
)
STEP_LOG = "epoch,step,train_loss,train_time,items_per_sec,steps_per_sec\n" + "".join(
    f",{n},{1 / (n + 1)},{n + 1}.5,{60 + n % 3},{2 + n % 3}\n" for n in range(12)
)
BEATS = [0, 60, 120, 180, 36000, 36060]
BATTERY = pd.DataFrame(
    {
        "device": ["a"] * 3,
        "time": pd.to_datetime(["2024-05-01 08:00", "2024-05-01 09:00", "2024-05-01 12:00"]),
        "battery": [80.0, np.nan, 15.5],
    }
)
COUNTER = pd.Series([5e9, 5.2e9, 5.5e9, 1e6, 2e8, 2**32 - 1e6, 3e6])
GROWN = COUNTER.diff().where(lambda grown: grown >= 0, lambda grown: grown + 2.0**32)
GAPPED = [(i, [20, 0, 30][i % 3]) for i in range(60)] + [
    (3659 + i, [30, 20, 0][i % 3]) for i in range(60)
]
TESTS = pd.DataFrame(
    {"device": list("aaab"), "down": [10.0, 30.0, 20.0, 5.0], "rtt": [40.0, 60.0, 50.0, 9.0]}
)
OFFSET = "device,time,state\na,2024-05-01T08:00+02:00,on\nb,2024-05-01T09:00+02:00,on\na,2024-05-01T10:00+02:00,off\n"
BERLIN = {"time_zone": "Europe/Berlin"}
DAYS = "device,start,end\nann,2024-05-01,2024-05-03\nbob,2024-05-01 06:00,2024-05-01 18:00\n"
FALL = "device,time,state\n" + "".join(
    f"ann,2024-10-27 {time}\n" for time in ("01:30,on", "02:45,off", "02:15,on", "04:00,off")
)
DB = "device,start,end\na,2024-05-01 08:00,2024-05-01 10:00\na,2024-05-01 12:00,{}\n"
NEW_YORK = {"time_zone": "America/New_York"}
LINK = {"time": "time", "time_unit": "s", "down": "mbps", "rate_unit": "Mbit/s"}
STATES = (
    "device,time,state\na,2024-05-01T08:00Z,{0}\na,2024-05-01T09:00Z,{1}\na,2024-05-01T20:00Z,{1}\n"
)
NAMED = "host,timestamp,status\na,2024-05-01T08:00Z,up\na,2024-05-01T09:00Z,down\n"
PROBES = "time,probe,mbps\n" + "".join(f"{60 * m},p1,100\n{60 * m + 5},p2,2\n" for m in range(4))

ROAMING = "device,time,ap,state\na,480,AP1,on\na,540,AP2,on\na,600,AP1,off\na,720,AP2,off\n"
LEASES = "MAC Address,IP,Lease Start,Lease End\n" + "".join(
    f"{mac},10.0.0.1,{start},{end}\n"
    for mac, start, end in (
        ("aa:bb", "5/1/2024 8:00:00 AM", "5/1/2024 1:15:00 PM"),
        ("cc:dd", "5/13/2024 11:00:00 PM", "5/14/2024 12:30:00 AM"),
    )
)
LEASED = {
    mac: float((pd.to_datetime(end) - pd.to_datetime(start)) / pd.Timedelta("1h"))
    for mac, _, start, end in (line.split(",") for line in LEASES.splitlines()[1:])
}
HOME = "entity_id,state,last_changed\n" + "".join(
    f"person.{who},{state},2024-05-01T{time}:00.000Z\n"
    for who, state, time in (
        *(("ann", "home", "06:00"), ("ann", "not_home", "07:30"), ("ann", "unavailable", "12:00")),
        *(("ann", "home", "13:00"), ("bob", "home", "08:00"), ("bob", "not_home", "20:00")),
    )
)
AT_HOME = {"columns": {"device": "entity_id", "time": "last_changed"}, "online": "state == home"}
EVENTS = pd.DataFrame(
    {
        "client": ["s1", "s2", "s1", "s2", "s1", "s1"],
        "ts": [1714550400000 + 1000 * s for s in (0, 60, 1800, 2400, 3000, 3600)],
        "event": [
            "connected",
            "connected",
            "disconnected",
            "disconnected",
            "connected",
            "disconnected",
        ],
        "meta": [{"qos": 1}] * 6,
    }
)
LEVELS = pd.DataFrame(
    {
        "device": "a",
        "time": [0, 10, 30, 45, 60],
        "battery": ["85%", "84%", "15%", "22%", "30%"],
        "plugged": ["none", "ac", "usb", "usb", "none"],
    }
)
CHARGED = LEVELS["battery"].str.rstrip("%").astype(int).ge(20) & LEVELS["plugged"].ne("none")
STOPS = (
    "station_id;session_time;timestamp\naa;3600;2024-05-01 09:00:00\nbb;600;2024-05-01 09:10:00\n"
)
STOP_COLUMNS = {"device": "station_id", "end": "timestamp", "duration": "session_time"}
ASSOC = json.dumps(
    [
        {"mac": "aa", "from": "May 1 2024 08:00:00 UTC", "to": "May 1 2024 09:00:00 UTC"},
        {"mac": "bb", "from": "May 1 2024 08:30:00 UTC", "to": None},
    ]
)
SCANS = "device,time,rssi\na,0,-60\na,60,-95\na,120,-61\na,180,-99\n"
READY = pd.DataFrame(
    {
        "node": pd.Categorical(["n1", "n2", "n1"]),
        "time": pd.to_datetime(
            [1714550400123456789, 1714552200000000000, 1714557600123456789], utc=True
        ),
        "ready": [True, True, False],
    }
)
HOURLY = pd.DataFrame(
    {
        "iface": ["eth0"] * 6 + ["wlan0"] * 6,
        "hour": [f"2024-05-01 {hour:02d}:00" for hour in range(6)] * 2,
        "rx": [10.0 * n for n in range(1, 7)] + [3.0 * n for n in range(1, 7)],
    }
)
POINT_FILES = {
    f"{name}.csv": rows.drop(columns="ap").to_csv(index=False)
    for name, rows in pd.read_csv(io.StringIO(ROAMING)).groupby("ap")
}
MINUTES = {"time_unit": "min", "online": "state == on"}
DAILY = {
    "mon.csv": "device,time,state\na,480,on\na,540,off\na,1380,on\nb,500,on\nb,600,off\n",
    "tue.csv": "device,time,state\na,1500,off\nb,1600,on\nb,1630,off\n",
}
OVERLAPPING = {**DAILY, "tue.csv": DAILY["tue.csv"].replace("state\n", "state\na,1380,on\n")}
POLLS = "device,time,ap,state\n" + "".join(
    f"a,{time},x,on\na,{time},y,off\n" for time in (480, 485, 490)
)
AT_POINTS = {"time_unit": "min", "online": "state == on", "columns": {"access_point": "ap"}}

ZEEK = (
    "#separator \\x09\n#fields\tts\tid.orig_h\tduration\n#types\ttime\taddr\tinterval\n"
    "1714550400.5\t10.0.0.1\t3600.0\n1714560000.0\t-\t1.0\n1714551000.0\t10.0.0.2\t60.25\n#close\t2024\n"
)
THREE_SESSIONS = (
    "device,start,end\na,2024-10-27 02:20:00,2024-10-27 03:10:00\n"
    "a,2024-10-27 02:50:00,2024-10-27 02:10:00\na,2024-10-27 02:20:00,2024-10-27 02:30:00\n"
)
WIDE = pd.DataFrame({"Time": [0, 1, 2], "p1": [1, 1, 0], "p2": [0, 1, np.nan]})
SYSLOG = "device,time,state\n" + "".join(
    f"a,{time},{state}\n"
    for time, state in (
        ("Dec 31 23:00:00", "up"),
        ("Jan  1 01:00:00", "down"),
        ("Feb 29 08:00:00", "up"),
        ("Mar  1 08:00:00", "down"),
    )
)
SLURM = "device,start,duration\nn1,2024-05-01T08:00Z,01:30:00\nn2,2024-05-01T08:00Z,1-02:00:00\n"
EVENTS_OF_NODES = (
    "NodeName|TimeStart|TimeEnd|State\nn1|2024-05-01T08:00:00|2024-05-01T12:00:00|DOWN*\n"
    "n2|2024-05-01T09:00:00|2024-05-01T10:00:00|IDLE\nn2|2024-05-01T10:00:00|2024-05-01T11:00:00|DOWN*\n"
)
NODES = {
    "columns": {"device": "nodename", "start": "timestart", "end": "timeend"},
    "time_zone": "UTC",
}
KEA = (
    "address,hwaddr,valid_lifetime,expire\n10.0.0.1,aa:bb,3600,1714554000\n"
    "10.0.0.1,aa:bb,3600,1714555800\n10.0.0.2,cc:dd,600,1714550400\n"
)
KEA_COLUMNS = {"device": "hwaddr", "end": "expire", "duration": "valid_lifetime"}
SPOT = (
    "InstanceId,LaunchTime,TerminationTime,StateReason\n"
    "i-1,2024-05-01T08:00:00.000Z,2024-05-01T10:30:00.000Z,Server.SpotInstanceTermination\n"
    "i-2,2024-05-01 08:00:00+00,,\ni-3,2024-05-01T09:00:00Z,2024-05-01T09:45:00Z,Client.UserInitiated\n"
)
METRICS = pd.DataFrame(
    {
        "device": "a",
        "metric": ["step", "eval", "step", "eval", "eval"],
        "step_time": [100, 900, 110, 950, 970],
    }
)
RUNS = METRICS.assign(
    start=[f"2024-05-01T{hour:02d}:00Z" for hour in range(0, 10, 2)],
    end=[f"2024-05-01T{hour:02d}:00Z" for hour in range(1, 11, 2)],
)
STEPS = float(METRICS.groupby("metric")["step_time"].median()["step"] / 1000)
OF_STEPS = {"compute_unit": "ms", "online": "metric == step"}
OCTETS = {"time": "t", "time_unit": "s", "down": "in", "rate_unit": "B", "kind": "counter"}
RATED = "device,time,state,down\n" + "".join(
    f"a,{time},{state},{rate}\n"
    for time, state, rate in (
        *((0, "up", 40), (10, "down", 1), (20, "", 2), (30, "up", 50), (40, "up", 30)),
        *((50, "down", ""), (60, "down", "")),
    )
)
UPS = "device,time,job,state\n" + "".join(
    f"a,2024-05-01T06:0{n}Z,node,{up}\n" for n, up in enumerate((1, 0, 0, 1))
)
SPANS = (
    "device,start,end,duration\na,2024-05-01T06:00Z,{},00:10:00\n"
    "a,2024-05-01T08:00Z,2024-05-01T09:00Z,{}\n"
)
ROAMED = "device,time,event,ap,from_ap\n" + "".join(
    f"a,{hour},{event},{ap},{old}\n"
    for hour, event, ap, old in (
        *((0, "Connected", "x", ""), (1, "Roamed", "y", "x"), (3, "Disconnected", "y", "")),
        *((4, "Connected", "x", ""), (9, "Disconnected", "x", "")),
    )
)
FIXES = "device,time,fix\na,0,3D\na,2,No Fix\na,3,3D\na,7,client-gone\n"
INFLUX = (
    ",table,_start,_stop,_time,_value,host\n"
    ",0,2024-05-01T00:00Z,2024-05-01T09:00Z,2024-05-01T01:00Z,1,pi\n"
    ",1,2024-05-01T00:00Z,2024-05-01T09:00Z,2024-05-01T04:00Z,0,pi\n"
    ",1,2024-05-01T00:00Z,2024-05-01T09:00Z,2024-05-01T08:00Z,0,pi\n"
)
ONLINE_ANYWHERE = "device,time,ap,state\na,0,x,on\na,60,y,on\na,90,x,on\na,120,y,on\n"

CHARGES = "Started,Finished,Odometer (km),Car\n" + "".join(
    f"2024-05-01 0{n}:00,2024-05-01 0{n + 2}:00,{n},{'ab'[n % 2]}\n" for n in range(6)
)
AT_ONE_CAR = {"device": "file", "start": "started", "end": "finished"}
AFK = pd.DataFrame(
    {
        "device": ["a", "a", "b", "a"],
        "timestamp": [(T0 + pd.Timedelta(hours=h)).isoformat() for h in (0, 4, 5, 6)],
        "duration": [3600, 600, 900, 1800],
        "status": ["active", "idle", "active", "active"],
    }
)
HISTORIAN = "device,metric,start,end\n" + "".join(
    f"p,{metric},{start},{end}\n"
    for start in (0, 100, 200)
    for metric, end in (("Plugged", start + 10), ("Screen", start + 50))
)
ZABBIX = "host,key,value\na,ping,0\na,ping,1\na,net,5e6\na,net,7e6\n"
POLLED = "host,clock,key,value\n" + "".join(
    f"a,{60 * n},icmpping,1.0\n" + f"a,{60 * n},net.if.in,{10**6 * n}\n" * (n % 5 == 0)
    for n in range(20)
)
JOBS = (
    "NodeName|State|Start|End\nn1|RUNNING|2024-05-01T08:00|2024-05-01T09:00\n"
    "n1|PENDING|Unknown|Unknown\nn2|RUNNING|2024-05-01T08:00|\nn2|FAILED|2024-05-01T08:00|\n"
)
SADF = "# host;interval;time;rx\nn1;600;0;1.0\nn1;600;600;3.0\nn1;600;1200;5.0\n"
FRAMES = "device,time,fcnt\n" + "".join(f"a,{15 * n},{n}\n" for n in range(20))

NIGHT = [("02:20:00", "03:10:00"), ("02:50:00", "02:10:00"), ("02:20:00", "02:30:00")]
NIGHT += [("01:00:00", "01:30:00"), ("00:10:00", "00:30:00")]
NEWEST_FIRST = [f"a,2024-10-27 {start},2024-10-27 {end}\n" for start, end in NIGHT]
TURNS = [
    f"a,2024-10-27 {h:02d}:{m:02d},{'on' if m else 'off'}\n" for h in range(6) for m in (0, 30)
]
OUTAGES = (
    "device,start,end,state\na,2024-05-01T08:00Z,2024-05-01T09:00Z,up\n"
    "a,2024-05-01T09:00Z,2024-05-01T12:00Z,down\na,2024-05-01T12:00Z,2024-05-01T13:00Z,up\n"
)
DAY_AND_TIME = "date,clock,mbps\n" + "".join(
    f"2024-05-0{day},{hour}:00:00,5\n" for day in (1, 2) for hour in (22, 23)
)

HOURS: dict[str, tuple[Any, dict[str, Any], dict[str, float]]] = {
    "the rest of outages": (
        DOWNTIMES,
        {"columns": OUT, "intervals": "offline"},
        {"a": 30.0 - 2 - 6, "b": 30.0 - 8},
    ),
    "the rest of outages that a rule chooses": (
        DOWNTIMES,
        {"columns": OUT, "intervals": "offline", "online": "cause == hard", "window": "48h"},
        {"a": 46.0, "b": 48.0},
    ),
    "intervals with a name of outages, online": (
        DOWNTIMES,
        {"columns": OUT, "intervals": "online"},
        {"a": 8.0, "b": 8.0},
    ),
    **{
        f"the state {word}": (UNKNOWN.format(word), {"online": rule}, {"a": 12.0})
        for word in ("\\N", "<NA>", "NULL", "nan", "")
        for rule in ("state == t", "state")
    },
    "switches as numbers with a point": (
        "device,time,state\na,2024-05-01T00:00Z,1.0\na,2024-05-01T06:00Z,0.0\na,2024-05-01T12:00Z,1.0\n",
        {},
        {"a": 6.0},
    ),
    **{
        f"empty cells of a wide table, {name}": (GAPS, {**WIDE_IN_MINUTES, **options}, right)
        for name, options, right in (
            ("held", {"hold": "10min"}, {"a": 0.5, "b": round(10 / 60, 6)}),
            ("kept", {}, {"a": 0.5, "b": round(40 / 60, 6)}),
        )
    },
    "rows without a device that do not count": (
        "device,start,end,status,model\na,8,9,success,x\n,8,9,canceled,y\n*,8,9,canceled,y\nb,9,11,success,z\n",
        {"time_unit": "h", "online": "status == success"},
        {"a": 1.0, "b": 2.0},
    ),
    "sessions that overlap, each with its own states": (
        TAKEOVER,
        {
            "columns": {"device": "client", "access_point": "token"},
            "online": "event == connected",
        },
        {"a": 4.0, "b": 2.0},
    ),
    "rows that all show their device online": (
        LABELS,
        {**AT_HOST, "hold": "8h", "online": "any"},
        {"a": 16.0},
    ),
    "changes at one time, the newest first": (
        "device,time,state\na,12,off\na,8,on\na,8,off\na,6,on\n",
        {"time_unit": "h"},
        {"a": 6.0},
    ),
    **{
        f"a line below the names, {name}": (text, {"time_unit": "h"}, {"a": 2.0, "b": 1.0})
        for name, text in (
            (
                "psql",
                " device | start | end\n--------+-------+-----\n a      |     0 |   2\n b      |     0 |   1\n",
            ),
            (
                "blanks",
                "device   start   end\n-------- ------- ---\na        0       2\nb        0       1\n",
            ),
            ("a row of other width", "device;start;end\n---;---;---\na;0;2\nb;0;1\n"),
        )
    },
    "the repeated hour": (FALL, BERLIN, {"ann": 3.0}),
    "day first": (
        "device,start,end\na,01.05.2024 08:00,01.05.2024 20:00\n",
        {**BERLIN, "time_format": "%d.%m.%Y %H:%M"},
        {"a": 12.0},
    ),
    "AM and PM": (
        "device,start,end\na,2024-05-01 8:00 AM,2024-05-01 1:30 PM\n",
        BERLIN,
        {"a": 5.5},
    ),
    "timedeltas of Parquet": (
        pd.DataFrame({"device": ["a"], "start": [pd.Timedelta(0)], "end": [pd.Timedelta(hours=2)]}),
        {},
        {"a": 2.0},
    ),
    "roaming of which the last row counts": (
        ROAMED,
        {"time_unit": "h", "online": "event != disconnected", "columns": {"place": "ap"}},
        {"a": 8.0},
    ),
    "values in quotes": (FIXES, {"time_unit": "h", "online": "fix == '3D'"}, {"a": 6.0}),
    "values with hyphens": (FIXES, {"time_unit": "h", "online": "fix != client-gone"}, {"a": 7.0}),
    "changes beside the range of the query": (
        INFLUX,
        {"columns": {"device": "host", "time": "_time"}, "online": "value == 1"},
        {"pi": 3.0},
    ),
    "an end from the duration": (SPANS.format("", "01:00:20"), {}, {"a": round(70 / 60, 6)}),
    "an open end with a duration of 0": (
        SPANS.format("", "01:00:00").replace("00:10:00", "0:00:00"),
        {},
        {"a": 3.0},
    ),
    "an end of 9999": (DB.format("9999-12-31 23:59:59"), {**NEW_YORK, "window": "1d"}, {"a": 14.0}),
    "an end of zeros": (
        DB.format("0000-00-00 00:00:00"),
        {**NEW_YORK, "window": "1d"},
        {"a": 14.0},
    ),
    "an empty end": (DB.format(""), {**NEW_YORK, "window": "1d"}, {"a": 14.0}),
    "heartbeats": (
        "device,time,state\n" + rows(*BEATS, more=",alive"),
        {"hold": "5min"},
        {"a": spread_over(BEATS, 300)},
    ),
    "polls that stop": (
        "device,time,state\n"
        + rows(0, 60, more=",up")
        + rows(120, more=",down")
        + rows(7200, more=",up"),
        {"hold": "5min", "online": "state == up"},
        {"a": round((120 + 300) / 3600, 6)},
    ),
    "sessions of two access points": (
        "device,start,end,ap\na,0,100,x\na,50,3600,y\nb,0,10,x\n",
        {"time_unit": "s"},
        {"a": 1.0, "b": round(10 / 3600, 6)},
    ),
    "changes at two access points": (ROAMING, AT_POINTS, {"a": 4.0}),
    "changes that end inside those of another access point": (
        ROAMING.replace("600,AP1", "600,AP2").replace("720,AP2", "720,AP1"),
        AT_POINTS,
        {"a": 4.0},
    ),
    "polls that disagree at one instant": (POLLS, {**AT_POINTS, "hold": "5min"}, {"a": 0.25}),
    "a poll is believed at its access point only": (
        "device,time,ap,state\na,0,x,on\na,4,y,off\na,8,y,off\n",
        {**AT_POINTS, "hold": "5min"},
        {"a": round(5 / 60, 6)},
    ),
    "the last row of a device counts": (
        ROAMING,
        {**AT_POINTS, "columns": {"place": "ap"}},
        {"a": 2.0},
    ),
    "access points that make no difference": (
        ONLINE_ANYWHERE,
        {"time_unit": "min", "online": "state == on", "hold": "45min"},
        union(ONLINE_ANYWHERE, 45),
    ),
    "a rule over access points": (
        ROAMING,
        {"time_unit": "min", "online": "state == on and ap == ap1"},
        {"a": 1.0},
    ),
    "one file per access point, declared": (
        POINT_FILES,
        {**MINUTES, "columns": {"access_point": "file"}},
        union(ROAMING),
    ),
    "files of which the last row counts": (
        POINT_FILES,
        {**MINUTES, "columns": {"place": "file"}},
        {"a": 2.0},
    ),
    "one file per day": (
        DAILY,
        MINUTES,
        {"a": round((540 - 480 + 1500 - 1380) / 60, 6), "b": round((100 + 30) / 60, 6)},
    ),
    "files with some rows in common": (
        OVERLAPPING,
        MINUTES,
        {"a": round((540 - 480 + 1500 - 1380) / 60, 6), "b": round((100 + 30) / 60, 6)},
    ),
    "one file per device": (
        {"ann.csv": "time,state\n0,on\n60,off\n", "bob.csv": "time,state\n0,on\n30,off\n"},
        {**MINUTES, "columns": {"device": "file"}},
        {"ann": 1.0, "bob": 0.5},
    ),
    "leases": (
        LEASES,
        {
            "columns": {"device": "mac address", "start": "lease start", "end": "lease end"},
            "time_format": "%m/%d/%Y %I:%M:%S %p",
            "time_zone": "Europe/Berlin",
        },
        LEASED,
    ),
    "states of a smart home": (HOME, AT_HOME, {"person.ann": 1.5 + 7, "person.bob": 12.0}),
    "events in JSON lines": (
        EVENTS.to_json(orient="records", lines=True),
        {
            "columns": {"device": "client", "time": "ts", "state": "event"},
            "time_unit": "unix_ms",
            "online": "state == connected",
        },
        {"s1": round(2400 / 3600, 6), "s2": 0.65},
    ),
    "percents and plugs": (
        LEVELS.to_csv(index=False),
        {"time_unit": "min", "online": "battery >= 20 and plugged != none"},
        {"a": round(float(LEVELS["time"].diff().shift(-1)[CHARGED].sum()) / 60, 6)},
    ),
    "a JSON array with names of months": (
        ASSOC,
        {
            "columns": {"device": "mac", "start": "from", "end": "to"},
            "time_format": "%b %d %Y %H:%M:%S %Z",
        },
        {"aa": 1.0, "bb": 0.5},
    ),
    "negative levels": (SCANS, {"time_unit": "min", "online": "rssi >= -90"}, {"a": 2.0}),
    "states of nodes to the ns": (
        READY,
        {"columns": {"device": "node"}},
        {"n1": 2.0, "n2": round((5400.123456) / 3600, 6)},
    ),
    "NaN is no state": (BATTERY, {"time_zone": "UTC", "online": "battery >= 20"}, {"a": 4.0}),
    "columns by other names": (
        NAMED,
        {
            "columns": {"device": "host", "time": "timestamp", "state": "status"},
            "online": "state == up",
        },
        {"a": 1.0},
    ),
    "start and duration": (
        "device,start,duration\na,2024-05-01T08:00Z,90\n",
        {"duration_unit": "min", "window": "2h"},
        {"a": 1.5},
    ),
    "durations in words": (
        'device,start,duration\na,0,1 hrs 23 min 45 sec\nb,0,8h 17m\nc,0,PT1H3S\nd,0,"0 hrs, 36 mins"\ne,0,2d 1h\n',
        {"time_unit": "h"},
        dict(zip("abcde", [1.395833, 8.283333, 1.000833, 0.6, 49.0], strict=True)),
    ),
    "a duration that carries its unit": (
        "device,start,duration\na,2024-05-01T08:00Z,01:30:00\n",
        {"window": "2h"},
        {"a": 1.5},
    ),
    "columns named in a comment": (
        ZEEK.replace("1714560000.0\t-\t1.0\n", ""),
        {
            "columns": {"device": "id.orig_h", "start": "ts"},
            "time_unit": "unix_s",
            "duration_unit": "s",
        },
        {"10.0.0.1": 1.0, "10.0.0.2": round(60.25 / 3600, 6)},
    ),
    "three sessions, the newest first, in an hour that clocks show twice": (
        THREE_SESSIONS,
        {"time_zone": "Europe/Berlin"},
        {"a": round(80 / 60, 6)},
    ),
    "one column per device": (
        WIDE,
        {"columns": {"device": "column"}, "time_unit": "h"},
        {"p1": 2.0, "p2": 1.0},
    ),
    "times without a year": (
        SYSLOG,
        {"year": 2023, "time_zone": "UTC", "online": "state == up"},
        {"a": 26.0},
    ),
    "sessions over New Year in times without a year": (
        "device,start,end\na,12-31 23:00,01-01 02:00\nb,12-31 23:30,01-01 00:30\n"
        "a,01-01 05:00,01-01 06:00\nb,02-01 00:00,10-01 00:00\na,10-02 00:00,10-02 01:00\n",
        {"time_format": "%m-%d %H:%M", "year": 2023, "time_zone": "UTC"},
        {"a": 5.0, "b": 1.0 + 243 * 24},
    ),
    "intervals of which some count": (
        EVENTS_OF_NODES,
        {**NODES, "online": "state != 'down*'"},
        {"n1": 0.0, "n2": 1.0},
    ),
    "instances of a cloud": (
        SPOT,
        {
            "columns": {"device": "InstanceId", "start": "LaunchTime", "end": "TerminationTime"},
            "window": "1d",
        },
        {"i-1": 2.5, "i-2": 24.0, "i-3": 0.75},
    ),
    "nested columns": (
        pd.DataFrame({"device": ["a"], "start": [0], "end": [60], "tags": [["x", "y"]]}),
        {"time_unit": "min"},
        {"a": 1.0},
    ),
    "semicolons of spreadsheets": ("device;start;end\na;0;60\n", {"time_unit": "min"}, {"a": 1.0}),
    "fields of JSON objects": (
        "\n".join(
            json.dumps(
                {"object": {"name": name}, "tags": [1], "lastTimestamp": time, "reason": reason}
            )
            for name, time, reason in (
                ("n1", "2024-05-01T08:00:00Z", "NodeReady"),
                ("n2", "2024-05-01T08:05:00Z", "NodeReady"),
                ("n1", "2024-05-01T10:30:00Z", "NodeNotReady"),
                ("n2", "2024-05-01T20:05:00Z", "NodeNotReady"),
            )
        ),
        {
            "columns": {"device": "object.name", "time": "lastTimestamp", "state": "reason"},
            "online": "state == NodeReady",
        },
        {"n1": 2.5, "n2": 12.0},
    ),
    "events of Windows in UTF-16, the newest first": (
        {
            "PC-Müller.csv": (
                "Ebene\tDatum und Uhrzeit\tEreignis-ID\r\nInformationen\t02.05.2024 16:30:00\t6006\r\n"
                "Informationen\t02.05.2024 07:45:00\t1\r\nInformationen\t01.05.2024 18:00:00\t42\r\n"
                "Informationen\t01.05.2024 08:00:00\t6005\r\n"
            ).encode("utf-16")
        },
        {
            "columns": {"device": "file", "time": "Datum und Uhrzeit"},
            "time_format": "%d.%m.%Y %H:%M:%S",
            "online": "ereignis_id in (6005, 1)",
            **BERLIN,
        },
        {"PC-Müller": 18.75},
    ),
    "ids with leading zeros": (
        "device,start,end\n007,0,60\n7,0,30\n",
        {"time_unit": "min"},
        {"007": 1.0, "7": 0.5},
    ),
    **{
        f"sessions over a change of the clocks, {name}": (
            "device,start,end\n" + "".join(lines),
            BERLIN,
            {"a": round((20 + 30 + 10 + 20 + 50) / 60, 6)},
        )
        for name, lines in (("newest", NEWEST_FIRST), ("oldest first", NEWEST_FIRST[::-1]))
    },
    "states of sessions": (OUTAGES, {"online": "state == up"}, {"a": 2.0}),
    "sessions of all states": (OUTAGES, {"online": "any"}, {"a": 5.0}),
    "jobs of which some never began": (
        JOBS,
        {**BERLIN, "columns": {"device": "NodeName"}, "online": "state == running"},
        {"n1": 1.0, "n2": 1.0},
    ),
    "fields of objects in Parquet": (
        {
            "part-0.parquet": parquet_of(
                pd.DataFrame(
                    {
                        "device": [{"id": "a", "tags": ["x"]}, {"id": "b", "tags": []}],
                        "start": [0, 10],
                        "end": [60, 40],
                    }
                )
            ),
        },
        {"columns": {"device": "device.id"}, "time_unit": "min"},
        {"a": 1.0, "b": 0.5},
    ),
    "a separator above the header": (
        "sep=;\ndevice;start;end\na;0;60\n",
        {"time_unit": "min"},
        {"a": 1.0},
    ),
    "a comment above the header": (
        "# of 5, b, c\ndevice,start,end\na,0,60\n",
        {"time_unit": "min"},
        {"a": 1.0},
    ),
    **{
        f"random changes at access points {seed}": (
            random_log(seed),
            AT_POINTS,
            union(random_log(seed)),
        )
        for seed in range(4)
    },
    **{
        f"random polls of access points {seed}": (
            random_log(seed),
            {**AT_POINTS, "hold": "7min"},
            union(random_log(seed), 7),
        )
        for seed in range(4)
    },
}
"""Tables: content, options, and the right hours online of each device."""

REFUSED: dict[str, tuple[Any, ...]] = {
    "outages as intervals": (
        DOWNTIMES,
        {"columns": OUT},
        "'outage_start' is no name of times at which devices are available",
        "-s intervals=offline",
    ),
    "a file of outages": (
        {"incidents-2024.csv": "device,start,end\na,1,2\n"},
        {"time_unit": "h"},
        "'incidents-2024' is no name of times",
        "-s intervals=offline",
    ),
    "offline intervals without intervals": (
        "device,time,state\na,1,on\na,2,off\n",
        {"time_unit": "h", "intervals": "offline"},
        "intervals needs a table with start and end",
    ),
    **{
        f"a switch that says the opposite, {name}": (
            f"device,time,{name}\na,1,true\na,2,false\na,3,true\n",
            {"time_unit": "h"},
            f"no rule says in which states a device is available ({name}: true and false)",
        )
        for name in ("offline", "is_down", "failed", "disconnected", "alarm", "charging")
    },
    "columns of devices that say the opposite": (
        "time,i-1 down,i-2 down\n0,0,0\n1,1,0\n2,0,0\n",
        {"time_unit": "h", "columns": {"device": "column"}},
        "no rule says",
    ),
    "sessions that overlap in a log of changes": (
        TAKEOVER,
        {"columns": {"device": "client"}, "online": "event == connected"},
        "take turns in each token: do sessions overlap?",
        "{device: client, access_point: token}",
        "{device: client, place: token}",
    ),
    "times of activities that follow each other": (
        "device,start,end,mode_status\na,0,1,not-afk\na,1,3,afk\n",
        {"time_unit": "h"},
        "no rule says which intervals count",
        "-s online='mode_status == VALUE'",
    ),
    "problems as intervals": (
        "Host,Time,Recovery time\na,2024-05-01T08:00Z,2024-05-01T09:00Z\n",
        {"columns": {"device": "host", "start": "time", "end": "recovery_time"}},
        "'Recovery time' is no name of times at which devices are available",
    ),
    "heartbeats with labels": (
        LABELS,
        {**AT_HOST, "hold": "8h"},
        "(owner: corp; compliance: ok and bad)",
        "if each row shows its device online, -s online=any and for how long",
    ),
    "states in nested columns": (
        BEATS_OF_URLS,
        {"columns": {"device": "monitor_id", "time": "timestamp"}, "time_unit": "h"},
        "monitor_status: up and down",
    ),
    "a step time that is the time since a start": (
        STEP_LOG,
        {"columns": {"device": "file", "step_time": "train_time"}, "compute_unit": "s"},
        "step_time only grows",
        "write its differences",
    ),
    "several speeds": (
        STEP_LOG,
        {"columns": {"device": "file"}},
        "has no column time, two of start, end and duration, or sample_time, step_time",
        "items_per_sec (60), steps_per_sec (2)",
    ),
    "a comma behind thousands": (
        "device;down\na;1.298,8\n",
        {"rate_unit": "kbit/s"},
        "decimal numbers are written with a point: 1298.8",
    ),
    "an end in words beside Unix times": (
        "device,start,end\na,1714531335,undefined\n",
        {"time_unit": "unix_s"},
        ":2: end is 'undefined'",
        "the end of an open session is empty",
    ),
    "a row without a device that counts": (
        "device,start,end,status\na,8,9,ok\n,8,9,ok\n",
        {"time_unit": "h", "online": "status == ok"},
        ":3: has no device",
    ),
    "states of sessions without a rule": (
        OUTAGES,
        {},
        "no rule says which intervals count (state: up and down)",
        "-s online='state == VALUE'",
        "if all count, -s online=any",
    ),
    "days of a spreadsheet without a unit": (
        "device,start,end\na,45413.25,45413.5\n",
        {},
        "not declared",
        "they fit excel",
    ),
    "a time of day without its date": (
        "device,date,time,state\na,2024-05-01,08:00,on\na,2024-05-01,09:00,off\n",
        {**BERLIN, "online": "state == on"},
        ":2: time is '08:00'",
        "of a date and a time of day, make one column",
    ),
    "sessions of several cars in one file": (
        CHARGES.replace("Car", "Asset"),
        BERLIN,
        "{device: NAME, start: started, end: finished}'; its columns, with their first cells",
        "odometer_km (0), asset (a); device: file, if each file is one",
    ),
    "heartbeats with the number of a frame": (
        FRAMES,
        {"time_unit": "min"},
        "no rule says",
        "such as -s hold=5min",
    ),
    "unix times that a spreadsheet rounded": (
        "device,time,state\na,1.71455E+12,on\na,1.71456E+12,off\n",
        {"time_unit": "unix_ms"},
        ":2: time is '1.71455E+12', which is rounded",
        "with all digits",
    ),
    "a time that never comes": (
        "device,time,state\na,1,on\na,never,off\n",
        {"time_unit": "s"},
        ":3: time is 'never'",
        "no time of an observation",
    ),
    "a header in the midst": (
        "device,time,state\na,1,on\ndevice,time,state\na,9,off\n",
        {"time_unit": "s"},
        ":3: time is 'time'",
        "the header again: remove the line",
    ),
    "a list that is no column": (
        pd.DataFrame({"device": ["a"], "start": [0], "end": [1], "tags": [["x"]]}),
        {"columns": {"model": "tags"}},
        "its columns are device, start, end; the lists tags are left out",
    ),
    "a list of Kubernetes over several lines": (
        '{\n "apiVersion": "v1",\n "items": []\n}\n',
        {},
        ":1:2: is not JSON",
        "jq -c '.items[]'",
    ),
    "nested columns alone": (
        '{"Records": [1]}\n',
        {},
        "lists are left out (Records)",
        "jq -c '.Records[]'",
    ),
    "changes or intervals": (
        INFLUX,
        {"columns": {"device": "host"}},
        "{device: host, time: time}' for the changes",
        "{device: host, other: time}' for the intervals",
    ),
    "a rule over the column that shows states": (
        INFLUX,
        {"columns": {"device": "host", "time": "_time"}},
        "value: 1 and 0",
    ),
    "heartbeats without times": (
        METRICS,
        {**OF_STEPS, "hold": "5min"},
        "hold and initial need a log",
    ),
    "states at first without times": (
        RUNS,
        {**OF_STEPS, "initial": {"x": 1}},
        "hold and initial need a log",
    ),
    "a duration that contradicts its end": (
        SPANS.format("2024-05-01T07:00Z", "01:00:00"),
        {},
        ":2: its duration is not the time",
        "{other: duration}",
    ),
    **{
        f"a duration beside both ends, {name}": (
            SPANS.format("2024-05-01T07:00Z", length).replace("00:10:00", "60"),
            {} if part[0] == "u" else {"duration_unit": "min"},
            *(part, "; or leave it out: -s columns='{other: duration}'"),
        )
        for name, length, part in (
            ("in other words", "1 Std. 23 Min.", ":3: duration is '1 Std. 23 Min.'"),
            ("without a unit", "60", "unit of the column duration is not declared"),
        )
    },
    "a state that is called up": (
        UPS.replace("state", "up"),
        {},
        "if up is a state, give -s columns='{state: up}'",
    ),
    "hours of two kinds": (
        "device,start,end\na,5/1/2024 1:05:00 PM,5/1/2024 2:05:00 PM\n",
        {**BERLIN, "time_format": "%m/%d/%Y %H:%M:%S %p"},
        "with %p",
        "write %I",
    ),
    "a window before all intervals": (
        "device,start,end\na,100,200\n",
        {"time_unit": "s", "window": "1min"},
        "-s window=",
    ),
    "an end far from all observations": (
        "device,start,end\na,1,1e12\n",
        {"time_unit": "unix_s"},
        "which is no time of an observation",
    ),
    "dates without a zone": (DAYS, {}, ":2: start is '2024-05-01'", "-s time_zone="),
    "day first without a form": (
        "device,start,end\na,13/05/2024 08:00,13/05/2024 20:00\n",
        BERLIN,
        ":2: start is '13/05/2024",
        "-s time_format=",
    ),
    "unix times in another unit": (
        "device,start,end\na,1714550400000,1714554000000\n",
        {"time_unit": "unix_s"},
        "in unix_s",
        "time_unit=unix_ms",
    ),
    "a start of 0001": (
        DB.format("").replace("2024-05-01 12", "0001-01-01 12"),
        BERLIN,
        ":3: start is '0001-01-01",
        "correct it",
    ),
    "heartbeats without hold": (
        "device,time,state\n" + rows(*BEATS, more=",alive"),
        {"online": "state == alive"},
        "only one state",
        "-s hold=5min",
    ),
    "access points that are not declared": (
        ROAMING,
        {"time_unit": "min", "online": "state == on"},
        "the column ap varies",
        "{access_point: ap}",
        "{place: ap}",
    ),
    "access points with columns by other names": (
        ROAMING.replace("device", "host"),
        {"time_unit": "min", "online": "state == on", "columns": {"device": "host"}},
        "the column ap varies",
        "give -s columns='{device: host, access_point: ap}'",
    ),
    "one file per access point": (
        POINT_FILES,
        MINUTES,
        "several files report on a device at the same time",
        "{access_point: file}",
        "{place: file}",
    ),
    "one file per device, proposed": (
        {"ann.csv": "time,state\n0,on\n60,off\n"},
        MINUTES,
        "time (0), state (on)",
        "device: file, if each file is one",
    ),
    "an end that needs its duration": (
        STOPS.replace(";600;", ";;"),
        {**BERLIN, "columns": STOP_COLUMNS, "duration_unit": "s"},
        ":3: has an end without a duration",
    ),
    "zones by abbreviation": (
        ASSOC.replace("UTC", "CEST"),
        {
            "columns": {"device": "mac", "start": "from", "end": "to"},
            "time_format": "%b %d %Y %H:%M:%S %Z",
        },
        "row 1: start is 'May 1 2024 08:00:00 CEST'",
        "time_zone",
    ),
    "the end of a job that runs": (
        "NodeList|Start|End\nn1|2024-05-01T08:00|Unknown\n",
        {**BERLIN, "columns": {"device": "NodeList"}},
        ":2: end is 'Unknown'",
        "the end of an open session is empty",
    ),
    "heartbeats with a measurement": (
        SCANS,
        {"time_unit": "min", "hold": "70min"},
        "no rule says",
        "-s online=any",
    ),
    "access points without a rule": (
        ROAMING,
        {"time_unit": "min"},
        "no rule says",
        "also -s columns='{access_point: ap}'",
    ),
    "a row without its access point": (
        ROAMING.replace("720,AP2", "720,"),
        AT_POINTS,
        ":5: has no access point",
        "-s columns='{place: ap}'",
    ),
    "NaN is no device": (
        BATTERY.assign(device=["a", None, "a"]),
        {"time_zone": "UTC", "online": "battery >= 20"},
        ", row 2: has no device",
    ),
    "words of states": (
        STATES.format("connected", "gone"),
        {},
        "(state: connected and gone)\n  give it, -s online='COLUMN == VALUE'",
    ),
    "states without a value": (
        "device,time,state\na,1,\na,2,\n",
        {"time_unit": "s"},
        "has no row with a time and a state",
    ),
    "loss above 1": (
        "device,down,loss\na,1,2.5\n",
        {"rate_unit": "Mbit/s"},
        ":2: loss is '2.5'",
        "loss_unit=percent",
    ),
    "rates that are instants": (
        pd.DataFrame({"device": ["a"], "down": [T0]}),
        {"rate_unit": "Mbit/s"},
        ", row 1: down is '2024-05-01",
        "it must be a number",
    ),
    "a step of no time": (
        "device,step_time\nb,.2\na,0\n",
        {"compute_unit": "s"},
        ":3: a step takes no time",
        "leave it empty",
    ),
    "an unknown device of R": (
        "device,start,end\na,1,2\nNA,2,3\n",
        {"time_unit": "h"},
        ":3: has no device (it is 'NA')",
    ),
    "one export under two names": (
        {"a.csv": "device,step_time\na,1\n", "a (1).csv": "device,step_time\na,1\n"},
        {"compute_unit": "s"},
        "a.csv: has the same content as ",
        "rows would count twice",
    ),
    "times from 1970 on that are spans": (
        "device,start,end\na,1714550400,5 s\n",
        {"time_unit": "unix_s"},
        ":2: end is '5 s', which is not a number of unix_s",
    ),
    "a dash in a log of Zeek": (
        ZEEK,
        {
            "columns": {"device": "id.orig_h", "start": "ts"},
            "time_unit": "unix_s",
            "duration_unit": "s",
        },
        "has no device",
    ),
    "units that fit": (
        ZEEK.replace("1714560000.0\t-\t1.0\n", ""),
        {"columns": {"device": "id.orig_h", "start": "ts"}},
        "not declared",
        "they fit unix_s",
    ),
    "one column per device, proposed": (
        WIDE,
        {"time_unit": "h"},
        "device: column, if each column beside time is one",
    ),
    "times without a year, refused": (
        SYSLOG,
        {"time_zone": "UTC", "time_format": "%b %d %H:%M:%S", "online": "state == up"},
        "have no year",
        "-s year=2024",
    ),
    "lists of Slurm's nodes": (
        EVENTS_OF_NODES.replace("n2", "n[1-3]"),
        NODES,
        ":3: device is 'n[1-3]', several devices",
        "scontrol show hostnames",
    ),
    "lines above the header": (
        "Client Sessions\nGenerated: today\n\nClient MAC,AP,Start,End\na,x,1,2\n",
        {},
        "0.csv:1: has one cell, but line 4 has more: Client MAC, AP, Start",
        "remove what comes",
    ),
    "a duration in other words": (
        "device,start,duration\na,2024-05-01T08:00Z,1 Std. 23 Min.\n",
        {},
        ":2: duration is '1 Std. 23 Min.'",
        "or as 1-02:00:00",
    ),
    "results of Prometheus": (
        json.dumps({"status": "success", "data": {"result": [{"values": [[0, "1"]]}]}}),
        {},
        "lists are left out (data)",
        "has no column device",
    ),
    "a duration without a unit": (
        "device,start,duration\na,2024-05-01T08:00Z,90\n",
        {},
        "-s duration_unit=",
    ),
    "calls with a date and a time of day": (
        "Conn. Date,Conn. Time,Number,Elapsed\n03/09/24,21:10:05,1212,0:03:34\n03/10/24,01:00:00,1212,0:10:00\n",
        {
            "columns": {"device": "number", "start": "conn_date", "duration": "elapsed"},
            "time_format": "%m/%d/%y",
            "time_zone": "UTC",
        },
        "start has dates without a time, but the column Conn. Time",
        "join them",
    ),
    "names that routers do not know": (
        "Hostname\tStart\tEnd\nanna\t0\t60\n*\t0\t60\n*\t90\t120\n",
        {"columns": {"device": "hostname"}, "time_unit": "min"},
        ":3: has no device",
        "take another column",
    ),
    "check-ins with columns that do not matter": (
        "Serial,Name,Last Check-in,Managed\nC1,x,2024-05-01T08:00Z,Yes\nC2,y,2024-05-01T08:10Z,Yes\n",
        {"columns": {"device": "serial", "time": "last_check_in"}, "hold": "20min"},
        "name: x and y; managed: yes",
    ),
}
"""Tables: content, options, and the place and the fix that the refusal must name."""

PROPOSED: dict[str, tuple[str, str]] = {
    NAMED: ("device: host, time: timestamp", "first cells: host (a)"),
    EVENTS_OF_NODES: ("device: nodename, start: timestart, end: timeend", ""),
    "Host,Started,Ended\na,1,2\n": ("device: host, start: started, end: ended", ""),
    "clientId,startedAt,duration\na,1,2\n": ("device: clientid, start: startedat", ""),
    "host,download,upload,latency\na,1,2,3\n": (
        "device: host, down: download, up: upload, rtt: latency",
        "",
    ),
    # A check or an event that says how long it took.
    "deviceId,time,status,duration\na,1,up,2\n": (
        "device: deviceid, time: time",
        "change, -s columns='{device: deviceid, start: time}' if each lasts",
    ),
    "device,time,status,duration\na,1,up,2\n": ("time: time", "has both time and duration"),
    "device,ts,status,stop\na,1,up,2\n": ("time: ts", "'{end: stop, start: ts}' if each is an int"),
    # Short words are not alike because they differ in one letter.
    "host,timestamp,dup,rt\na,1,100,5\n": ("device: host, time: timestamp", "dup (100), rt (5)"),
    # Names that say less are shown with their cells.
    INCIDENTS: ("device: NAME, time: NAME", "service_id (a), created_on (2024-05-01T08:00Z)"),
    PINGS: ("device: NAME, time: ts", "pop_ping_drop_rate (0.0), pop_ping_latency_ms (40)"),
    BEATS_OF_URLS: ("device: NAME, time: timestamp", "monitor_id (a), monitor_status (up)"),
    LEASES: ("device: NAME, time: NAME", "has no column device and no column time, two of start"),
    "User,Host,Login time,Logout\nann,pc1,1,2\n": (
        "device: host, time: NAME",
        "login_time (1), logout (2)",
    ),
}
"""Tables, the mapping of columns that is proposed, and more of the message."""

KINDS: dict[str, tuple[Any, ...]] = {
    **{
        f"a form with {what}": ("table", DAYS, {"time_format": form}, ValidationError, (message,))
        for what, form, message in (
            ("a directive twice", "%Y-%m-%d %H:%M:%d", "a directive occurs twice"),
            ("an unknown directive", "%s", "'s' is a bad directive"),
        )
    },
    **{
        name: ("table", content, options, hours, right)
        for name, (content, options, right) in HOURS.items()
    },
    **{
        f"proposed, {content[:20]}": (
            "table",
            content,
            {},
            refused,
            (f"-s columns='{{{mapping}}}'", more),
        )
        for content, (mapping, more) in PROPOSED.items()
    },
    **{
        name: ("table", content, options, refused, parts)
        for name, (content, options, *parts) in REFUSED.items()
    },
    "one window, local midnight": (
        "table",
        OFFSET,
        {},
        epoch_and_windows,
        ("2024-05-01T00:00:00+02:00", [8.0, 9.0], [10.0, 10.0]),
    ),
    "all repeat together": ("table", OFFSET, {}, column("devices", "period_us"), [7.2e9, 7.2e9]),
    "a zone in the type of a column": (
        "table",
        pd.DataFrame({name: [T0.tz_convert("Asia/Tokyo")] for name in ("start", "end")}).assign(
            device="a", end=lambda table: table["end"] + pd.Timedelta("1h")
        ),
        {},
        lambda bundle: (bundle.manifest.zone, epoch_and_windows(bundle)),
        ("Asia/Tokyo", ("2024-05-01T00:00:00+09:00", [17.0], [18.0])),
    ),
    "events that count as offline": (
        "table",
        STATES.format("connected", "password_changed") + "a,2024-05-01T21:00Z,disconnected\n",
        {"online": "state == connected"},
        notes("offline"),
        [
            "devices are online where state is connected; offline where it is password_changed and disconnected"
        ],
    ),
    "steps of years": (
        "table",
        METRICS.assign(step_time=1714550400),
        {"compute_unit": "s"},
        lambda bundle: str(implausible_rates(bundle)).split(": ", 1)[1],
        "the median step time is 19,844 d: are its step times in the right unit?\n"
        "  if not, import it again with -s compute_unit=...",
    ),
    **{
        f"odd rates in {format_}, which has no option of a unit": (
            format_,
            {name: text},
            {},
            lambda bundle: str(implausible_rates(bundle)).partition("if not, ")[2],
            "correct its source, and import it again",
        )
        for format_, name, text in (
            ("mahimahi", "a.up", "5\n" * 200),
            ("nyu_mets", "a.csv", "9,bits/sec\n9,bits/sec\n"),
            ("pensieve", "a", "0\t0.001\n1\t0.001\n"),
        )
    },
    "round trips in another unit": (
        "table",
        "device,rtt\na,18500\n",
        {"latency_unit": "ms"},
        lambda bundle: "-s latency_unit=" in str(implausible_rates(bundle)),
        True,
    ),
    "an epoch of one's own": (
        "table",
        OFFSET.replace("+02:00", "Z"),
        {"epoch": "2024-05-01T06:00:00Z"},
        lambda bundle: epoch_and_windows(bundle)[0],
        "2024-05-01T06:00:00+00:00",
    ),
    "dates in a zone": (
        "table",
        DAYS,
        NEW_YORK,
        begins,
        [
            pd.Timestamp(t, tz="America/New_York").tz_convert("UTC").isoformat()
            for t in ("2024-05-01", "2024-05-01 06:00")
        ],
    ),
    "decimal commas of logging": (
        "table",
        'device,start,end\na,"2024-05-01 08:00:00,500","2024-05-01 08:00:01,000"\n',
        BERLIN,
        begins,
        ["2024-05-01T06:00:00.500000+00:00"],
    ),
    "days of a spreadsheet": (
        "table",
        "device,start,end\na,45413.25,45413.5\n",
        {"time_unit": "excel", "time_zone": "UTC"},
        begins,
        ["2024-05-01T06:00:00+00:00"],
    ),
    "an end of 1970": (
        "table",
        DB.format("1970-01-01"),
        {**NEW_YORK, "window": "1d"},
        counted,
        {"open_sessions": 1},
    ),
    "observed from the first row at any access point": (
        "table",
        ROAMING,
        AT_POINTS,
        lambda bundle: epoch_and_windows(bundle)[1:],
        ([8.0], [12.0]),
    ),
    "sessions with end and duration": (
        "table",
        STOPS,
        {**BERLIN, "columns": STOP_COLUMNS, "duration_unit": "s"},
        lambda bundle: (hours(bundle), begins(bundle)),
        (
            {"aa": 1.0, "bb": round(600 / 3600, 6)},
            ["2024-05-01T06:00:00+00:00", "2024-05-01T07:00:00+00:00"],
        ),
    ),
    "amounts per hour of several links": (
        "throughput",
        HOURLY.to_csv(index=False),
        {"time": "hour", "down": "rx", "rate_unit": "MiB", "device": "iface"},
        mbps,
        {
            f"{name} down": round(float(rows["rx"][1:].sum()) * 2**23 / (5 * 3600) / 1e6, 6)
            for name, rows in HOURLY.groupby("iface")
        },
    ),
    "contradictory rows": (
        "table",
        "device,time,state\na,0,on\na,5,off\na,5,on\na,9,off\n",
        {"time_unit": "s"},
        lambda b: b.manifest.counts["contradictory"],
        1,
    ),
    "an unknown unit": (
        "table",
        "device,down\np1,90\n",
        {"rate_unit": "MB/h"},
        ValueError,
        ("'MB/h' is not a known unit", "MB/s (or MBps)"),
    ),
    "a counter with a reset and a wrap": (
        "throughput",
        "time,rx\n" + "".join(f"{60 * n},{v:.0f}\n" for n, v in enumerate(COUNTER)),
        {"time": "time", "time_unit": "s", "down": "rx", "rate_unit": "B", "kind": "counter"},
        column("network_series", "rate_bps", 3),
        (GROWN.where(GROWN >= 0).ffill()[1:] * 8 / 60).round(3).tolist(),
    ),
    "a counter with an empty cell": (
        "throughput",
        "t,in\n0,0\n300,\n600,3000000\n900,3000000\n",
        OCTETS,
        lambda bundle: (pieces(bundle), counted(bundle)),
        ([(0, 600, 3e6 * 8 / 600 / 1e6), (600, 300, 0)], {}),
    ),
    "a counter beyond exact numbers": (
        "throughput",
        "t,in\n0,9223372036854770000\n300,9223372036854771000\n",
        OCTETS,
        refused,
        ("a counter is above 2^53, where digits are lost", "correct it"),
    ),
    "a counter of a rate": (
        "throughput",
        "t,in\n0,0\n300,5\n",
        {**OCTETS, "rate_unit": "Mbit/s"},
        refused,
        ("Mbit/s is no amount", "for example, B"),
    ),
    **{
        f"ports of one host, {names}, {late} s apart": (
            "throughput",
            ports(names, late),
            {**OCTETS, "device": "host"},
            refused,
            (f"the column if takes turns between {names[0]} and {names[1]}", "that joins it"),
        )
        for names in ("ab", "12")
        for late in (0, 1)
    },
    "numbers beside a counter that are no ports": (
        "throughput",
        "host,t,minute,in\n" + "".join(f"a,{n},{n % 2},{n * 100}\n" for n in range(12)),
        {**OCTETS, "device": "host"},
        mbps,
        {"a down": 100 * 8 / 1e6},
    ),
    "a device with one row": (
        "throughput",
        "p,time,mbps\na,0,1\nb,0,1\na,1,1\n",
        {**LINK, "device": "p"},
        refused,
        ("0.csv:3: is the only row of its link", "remove it"),
    ),
    **{
        f"measurements of which some count, {name}": (
            "table",
            table,
            OF_STEPS,
            column("compute", "step_fixed_s"),
            [STEPS],
        )
        for name, table in {"alone": METRICS, "with sessions": RUNS}.items()
    },
    **{
        f"measurements in a log of changes, {name}": (
            "table",
            RATED,
            {"rate_unit": "Mbit/s", "time_unit": "s", "online": rule},
            lambda bundle: (
                column("network", "bandwidth_bps")(bundle),
                bundle.manifest.counts["measurements"],
            ),
            (right, number),
        )
        for name, rule, right, number in (
            ("online", "state == up", [40e6], 3),
            ("offline", "state == down", [1.5e6], 2),
        )
    },
    "measurements before the first state": (
        "table",
        "device,time,state,down\na,0,,10\na,1,down,1\na,2,up,20\na,9,up,\n",
        {"rate_unit": "Mbit/s", "time_unit": "s", "online": "state == up"},
        column("network", "bandwidth_bps"),
        [15e6],
    ),
    "measurements in a file without the states": (
        "table",
        {
            "runs.csv": RUNS.drop(columns="step_time").to_csv(index=False),
            "steps.csv": "device,step_time\na,100\na,110\n",
        },
        OF_STEPS,
        lambda bundle: (hours(bundle), column("compute", "step_fixed_s")(bundle)),
        ({"a": 2.0}, [STEPS]),
    ),
    "a rule over measurements with a mistake": (
        "table",
        METRICS,
        {**OF_STEPS, "online": "nonsense =="},
        UserError,
        ("online, column 12", "nonsense =="),
    ),
    **{
        f"the value {value} without quotes": (
            "table",
            FIXES,
            {"time_unit": "h", "online": f"fix == {value}"},
            UserError,
            ("other values than plain words in quotes",),
        )
        for value in ("3D", "No Fix")
    },
    "overlapping sessions of several cars": (
        "table",
        CHARGES,
        {**BERLIN, "columns": AT_ONE_CAR},
        lambda bundle: (
            hours(bundle),
            "{device: car, start: started, end: finished}" in str(notes("overlap")(bundle)),
        ),
        ({"0": 7.0}, True),
    ),
    "overlapping sessions of several kinds": (
        "table",
        HISTORIAN,
        {"time_unit": "s"},
        lambda bundle: "-s online='metric == VALUE'" in notes("differ in")(bundle)[0],
        True,
    ),
    "overlapping sessions at access points": (
        "table",
        HISTORIAN.replace("metric", "ap"),
        {"time_unit": "s"},
        notes("differ in"),
        [],
    ),
    "a device in each row": (
        "table",
        "device,start,end\n" + "".join(f"{n},{n},{n + 9}\n" for n in range(20)),
        {"time_unit": "s"},
        notes("each row"),
        ["each row is another device: is the column of the device the right one?"],
    ),
    "numbers of rows that do not count": (
        "table",
        ZABBIX,
        {
            "columns": {"device": "host", "down": "value"},
            "online": "key == net",
            "rate_unit": "bit/s",
        },
        column("network", "bandwidth_bps"),
        [6e6],
    ),
    "a window that ends with hold": (
        "table",
        FRAMES,
        {"time_unit": "min", "hold": "20min", "online": "fcnt >= 0"},
        lambda bundle: (
            hours(bundle),
            notes("last row")(bundle)[0].endswith("row, and 20 min (hold)"),
        ),
        ({"a": round((19 * 15 + 20) / 60, 6)}, True),
    ),
    "changes of states in no order over a change of the clocks": (
        "table",
        "device,time,state\n" + "".join(TURNS[::2] + TURNS[1::2][::-1]),
        {**BERLIN, "online": "state == on"},
        notes("clocks show twice"),
        ["2 times in an hour that clocks show twice, taken as the first"],
    ),
    **{
        f"a date and a time of day, {name}": (
            "throughput",
            DAY_AND_TIME,
            {"down": "mbps", "rate_unit": "Mbit/s", **options},
            refused,
            parts,
        )
        for name, options, parts in (
            ("date", {"time": "date"}, ("time has dates without a time", "join them in one")),
            (
                "time",
                {"time": "clock", "time_format": "%H:%M:%S"},
                (":4: the time is", "after midnight, times need a date"),
            ),
        )
    },
    "a header in a comment": (
        "throughput",
        SADF,
        {"time": "time", "time_unit": "s", "down": "rx", "rate_unit": "MB/s", "device": "host"},
        mbps,
        {"n1 down": 32.0},
    ),
    **{
        f"rates in an hour that clocks show twice, {zone}": (
            "throughput",
            "time,mbps\n"
            + "".join(
                f"2024-10-27 {(T0 + pd.Timedelta(minutes=m)).strftime(f'0{hour}:%M')},{m}\n"
                for hour in (2, 2, 3)
                for m in (0, 20, 40)
            ),
            {"time": "time", "down": "mbps", "rate_unit": "Mbit/s", **options},
            measure,
            right,
        )
        for zone, options, measure, right in (
            ("not known", {}, refused, ("-s time_zone=Europe/Berlin",)),
            (
                "known",
                BERLIN,
                lambda bundle: (bundle.manifest.horizon_us / 6e7, mbps(bundle), counted(bundle)),
                # The first of nine rates belongs to no interval.
                (160.0, {"0 down": 22.5}, {}),
            ),
        )
    },
    "rates of syslog over New Year": (
        "throughput",
        "time,mbps\nDec 31 23:59:58,1\nDec 31 23:59:59,2\nJan 01 00:00:00,3\nJan 01 00:00:01,4\n",
        {"time": "time", "down": "mbps", "rate_unit": "Mbit/s", "year": 2023},
        pieces,
        [(0, 1, 2), (1, 1, 3), (2, 1, 4)],
    ),
    "rates in a wrong unit of time": (
        "throughput",
        "time,mbps\n1714543575000,1\n1714543576000,2\n",
        {**LINK, "time_unit": "unix_s"},
        refused,
        ("in unix_s, the times would be in the year", "-s time_unit=unix_ms"),
    ),
    "columns with names, by their numbers": (
        "throughput",
        '"(PDH-CSV 4.0) (-120)","\\\\PC1\\Bytes/sec"\n0," "\n1,5\n2,7\n',
        {"time": 1, "time_unit": "s", "down": 2, "rate_unit": "MB/s"},
        pieces,
        [(0, 1, 40), (1, 1, 56)],
    ),
    "equal cells in the first row of no header": (
        "throughput",
        "1714543201;0;0\n1714543202;5;5\n",
        {},
        refused,
        ("1 1714543201, 2 0, 3 0", "-s time=..."),
    ),
    "rates of which the newest comes first": (
        "throughput",
        "time,mbps,load\n3,1,5\n2,1,6\n1,1,7\n",
        LINK,
        refused,
        (":3: the time is '2'", "the newest row comes first: reverse the rows"),
    ),
    "a switch beside measurements": (
        "table",
        "device,time,down,vpn\na,0,50,0\na,1,9,1\n",
        {"time_unit": "h", "rate_unit": "Mbit/s"},
        refused,
        ("(vpn: 0 and 1)", "if there are only measurements, -s columns='{other: time}'"),
    ),
    "a state by another name": (
        "table",
        "device,time,disconnected\na,0,0\na,1,1\n",
        {"time_unit": "h", "columns": {"state": "disconnected"}},
        refused,
        ("no rule says", "(state: 0 and 1)"),
    ),
    "open sessions before others": (
        "table",
        "device,start,end\na,0,\na,2,3\n",
        {"time_unit": "h"},
        notes("later one"),
        [
            "1 session without an end (empty, infinite, 1970 or after 2098): open until the end of the window; 1 of "
            "them although their device has a later one"
        ],
    ),
    **{
        f"the form of {cell}": (
            "table",
            f"device,start,end\na,{cell},{cell}\n",
            {"time_zone": "UTC"},
            refused,
            (f"'{cell}', which is not an instant", *(f"time_format='{form}" for form in forms)),
        )
        for cell, *forms in (
            ("05/01/2024 01:16 AM", "%d/%m/%Y %I:%M %p", "%m/%d/%Y %I:%M %p"),
            ("2024.05.01_08.00.00", "%Y.%m.%d_%H.%M.%S"),
            ("01/May/2024:08:00:00 +0200", "%d/%b/%Y:%H:%M:%S %z"),
            ("May  1 08:00:00", "%b %d %H:%M:%S', and -s year=2024"),
        )
    },
    "two kinds of measurements": (
        "table",
        "device,test,step_time\n"
        + "".join(
            f"{d},{t},{s + n}\n"
            for d in "ab"
            for t, s in (("pp", 10), ("tg", 900))
            for n in range(3)
        ),
        {"compute_unit": "ms"},
        notes("differs"),
        [
            "step_time differs by test (pp and tg): if only some count, give -s online='test == VALUE'"
        ],
    ),
    "measurements of two kinds under a rule": (
        "table",
        "device,step_time,key,ok\n"
        + "a,1.01,train,t\na,0.2,eval,t\nb,3,train,t\nb,0.6,eval,t\n" * 4
        + "a,0,train,f\n",
        {"compute_unit": "s", "online": "ok"},
        notes("step_time differs"),
        [
            "step_time differs by key (train and eval): if only some count, give -s online='key == VALUE'"
        ],
    ),
    "a comparison with empty cells": (
        "table",
        "device,step_time,error\na,1.5,\na,9,timeout\na,1.7,ok\nb,3,\n",
        {"compute_unit": "s", "online": "not error == timeout"},
        notes("empty"),
        ["no comparison holds for an empty cell: 2 rows without error left out"],
    ),
    "files of one device": (
        "table",
        {"x.csv": "device,down\neth0,5\n", "y.csv": "device,down\neth0,9\n"},
        {"rate_unit": "Mbit/s"},
        notes("all files"),
        [
            "all files are of the device 'eth0'; if each is one, give -s columns='{device: file}'",
        ],
    ),
    "the sums of iperf": (
        "throughput",
        "".join(
            f"2024050108000{time},a,{span},{mbps_}\n"
            for time, span, mbps_ in (
                (1, "0.0-1.0", 10),
                (2, "1.0-2.0", 20),
                (3, "2.0-3.0", 30),
                (3, "0.0-3.0", 20),
                (5, "0.0-1.0", 7),
            )
        ),
        {"time": 1, "down": 4, "rate_unit": "Mbit/s"},
        lambda bundle: (pieces(bundle), counted(bundle)),
        ([(0, 1, 20), (1, 1, 30), (2, 2, 7)], {"summary_rows": 1}),
    ),
    **{
        f"no table: {text[:20]}": ("table", text * 2, {}, refused, ("names of its columns", fix))
        for text, fix in (
            ("[1714543575.1] 64 bytes from gw (10.0.0.1): icmp_seq=1 ttl=64\n", "'[1714543575.1]'"),
            ("[1714543575] HOST ALERT: sw2;DOWN;HARD;1;PING CRITICAL\n", "HOST ALERT: sw2'"),
            ("a,1714543575,on\n", "'1714543575'"),
            ("ann pts/0 Wed May 1 08:00 - 10:00\n", "'08:00'"),
        )
    },
    "steps per second": (
        "table",
        "device,step_time\na,2\na,4\na,5\nb,0.5\n",
        {"compute_unit": "1/s"},
        column("compute", "step_fixed_s"),
        [0.25, 2.0],
    ),
    "no step per second": (
        "table",
        "device,sample_time\na,2\na,0\n",
        {"compute_unit": "1/s"},
        refused,
        (":3: sample_time is '0'", "(in 1/s) of more than 0"),
    ),
    "intervals under neutral names": (
        "table",
        "device,start,end\na,0,60\n",
        {"time_unit": "min"},
        notes("intervals=offline"),
        ["devices are online in the intervals; of outages, give -s intervals=offline"],
    ),
    "several measurements of one device": (
        "throughput",
        POLLED,
        {**OCTETS, "time": "clock", "down": "value", "kind": "amount", "device": "host"},
        refused,
        ("the column key takes turns between icmpping and net.if.in", "keep the rows of one"),
    ),
    "columns that the rule does not name": (
        "table",
        METRICS.assign(note="x"),
        OF_STEPS,
        lambda bundle: [each for each in bundle.manifest.caveats if "note" in each],
        ["columns that are not used: note"],
    ),
    **{
        f"what is not used, {name}": ("table", content, options, notes("not used"), [*said])
        for name, content, options, *said in (
            (
                "a duration beside changes",
                "device,time,status,duration\na,0,on,2\na,9,off,2\n",
                {"columns": {"time": "time"}, "time_unit": "s"},
                "columns that are not used: duration",
            ),
            (
                "intervals, a state and a mapped column beside changes",
                "device,time,start,end,status,net,x\na,0,1,2,up,1,1\na,9,1,2,down,0,1\n",
                {
                    "columns": {"time": "time", "mine": "x"},
                    "time_unit": "s",
                    "online": "net == 1",
                },
                "columns that are not used: start, end, status, mine",
            ),
            (
                "access points beside intervals",
                "device,start,end,access_point\na,0,9,x\n",
                {"time_unit": "s"},
                "columns that are not used: access_point",
            ),
            (
                "access points beside measurements",
                "device,down,access_point\na,9,x\n",
                {"rate_unit": "B/s"},
                "columns that are not used: access_point",
            ),
            (
                "a column that is left out",
                "device,time,status,loss\na,0,on,2\na,9,off,2\n",
                {"columns": {"other": "loss"}, "time_unit": "s"},
            ),
        )
    },
    "each row lasts its duration": (
        "table",
        AFK.to_csv(index=False),
        {"columns": {"start": "timestamp"}, "duration_unit": "s", "online": "status == active"},
        hours,
        (AFK[AFK["status"] == "active"].groupby("device")["duration"].sum() / 3600).to_dict(),
    ),
    "a counter that is not declared": (
        "throughput",
        "time,rx\n" + "".join(f"{60 * n},{5000 + 10 * n}\n" for n in range(20)),
        {"time": "time", "time_unit": "s", "down": "rx", "rate_unit": "B"},
        refused,
        ("a counter?", "-s kind=counter"),
    ),
    "a gap of an hour": (
        "throughput",
        "time,mbps\n" + "".join(f"{t},{v}\n" for t, v in GAPPED),
        LINK,
        mbps,
        {"0 down": round(float(pd.DataFrame(GAPPED)[1].drop([0, 60]).mean()), 6)},
    ),
    "links of two devices": (
        "throughput",
        PROBES,
        {**LINK, "device": "probe"},
        mbps,
        {"p1 down": 100.0, "p2 down": 2.0},
    ),
    "links of devices without their column": (
        "throughput",
        PROBES,
        LINK,
        refused,
        ("the column probe", "-s device=probe"),
    ),
    "a column of directions": (
        "throughput",
        "time,way,mbps\n" + "".join(f"{t},DL,{10 + t}\n{t},UL,1\n" for t in range(4)),
        {**LINK, "direction": "way"},
        mbps,
        {"0 down": 12.0, "0 up": 1.0},
    ),
    "median of several tests": (
        "table",
        TESTS,
        {"rate_unit": "Mbit/s", "latency_unit": "ms"},
        column("network", "bandwidth_bps"),
        (TESTS.groupby("device")["down"].median() * 1e6).tolist(),
    ),
    "spread of several tests": (
        "table",
        TESTS,
        {"rate_unit": "Mbit/s", "latency_unit": "ms"},
        column("network", "bandwidth_cv", 4),
        pytest.approx(
            (TESTS.groupby("device")["down"].std() / TESTS.groupby("device")["down"].mean())
            .round(4)
            .tolist(),
            nan_ok=True,
        ),
    ),
    "pings without rates": (
        "table",
        "device,rtt\na,40\nb,60\n",
        {"latency_unit": "ms"},
        column("network", "rtt_s"),
        [0.04, 0.06],
    ),
    "loss in percent": (
        "table",
        "device,down,loss\na,1,2.5\nb,1,0\n",
        {"rate_unit": "Mbit/s", "loss_unit": "percent"},
        column("network", "loss"),
        [0.025, 0.0],
    ),
    "a score of a search engine": (
        "table",
        '{"device": "a", "state": "up", "_score": 1.0, "time": 0}\n'
        '{"device": "a", "state": "down", "_score": 1.0, "time": 9}\n',
        {"time_unit": "s", "online": "state == up"},
        lambda bundle: (hours(bundle), sorted(bundle.tables)),
        ({"a": 0.0025}, ["availability", "devices"]),
    ),
    "numbers of no device": (
        "table",
        "device,time,state,score\na,0,on,\na,9,off,\n",
        {"time_unit": "s"},
        lambda bundle: sorted(bundle.tables),
        ["availability", "devices"],
    ),
    "a leap day without its year": (
        "throughput",
        "time,recv\n29-02 08:00:00,0\n29-02 08:00:10,1000\n",
        {"time": "time", "down": "recv", "rate_unit": "B/s", "time_format": "%d-%m %H:%M:%S"},
        mbps,
        {"0 down": 0.008},
    ),
    **{
        f"a point that may separate thousands, after {mark}": (
            "table",
            f"device{mark}down\na{mark}45.300\nb{mark}102.450\n",
            {"rate_unit": "kbit/s"},
            notes("thousands"),
            right,
        )
        for mark, right in (
            (",", []),
            (";", ["if the point in down separates thousands, write 45300 for 45.300"]),
        )
    },
    "round-trip times of 0": (
        "table",
        "device,rtt\na,0\na,0\n",
        {"latency_unit": "ms"},
        notes("round-trip times are 0"),
        ["all round-trip times are 0: is rtt the right column?"],
    ),
    "actions of seconds": (
        "table",
        "device,start,end\na,0,1\na,500,502\nb,900,901\n",
        {"time_unit": "s"},
        notes("online for"),
        ["online for 0.22% of the window: are these the times at which devices are available?"],
    ),
    "loss with its sign": (
        "table",
        "device,down,loss\na,1,2.5%\n",
        {"rate_unit": "Mbit/s"},
        column("network", "loss"),
        [0.025],
    ),
    "opportunities by the millisecond": (
        "mahimahi",
        "2\n2\n3\n3\n4\n8\n",
        {"direction": "up"},
        lambda b: (pieces(b), counted(b)),
        (
            [
                (0, 0.002, 0),
                (0.002, 0.002, 24),
                (0.004, 0.001, 12),
                (0.005, 0.003, 0),
                (0.008, 0.001, 12),
            ],
            {"opportunities": 6},
        ),
    ),
    "recordings one after the other": (
        "mahimahi",
        "2\n3\n2\n",
        {"direction": "up"},
        refused,
        (":3: the time is '2', before the one above it", "split the file"),
    ),
    "repeated times and a late start": (
        "pensieve",
        "7 1\n8 2\n8 3\n\n10 4\n",
        {"direction": "up", "app_limited": True},
        lambda b: (pieces(b), counted(b), "application" in b.manifest.caveats[0]),
        ([(0, 1, 2), (1, 2, 4)], {"first_rates": 1, "zero_length": 1}, True),
    ),
    "units that change from line to line": (
        "nyu_mets",
        "1.5,Mbits/sec\n20,Kbits/sec\n,Mbits/sec\n0.0,bits/sec\n",
        {},
        lambda b: (pieces(b), counted(b)),
        (
            [(0, 1, 1.5), (1, 1, 0.02), (2, 1, 0.02), (3, 1, 0)],
            {"seconds": 4, "missing_rates": 1},
        ),
    ),
    "eight columns": (
        "nyu_mets",
        "12.6,9,0,102,13,3,7.37,2100\n3.18,9,0,,13,3,6.51,2100\n",
        {},
        pieces,
        [(0, 1, 12.6), (1, 1, 3.18)],
    ),
    "days of a spreadsheet that are not exact": (
        "table",
        "device,start,end\na,45413.333333333336,45413.416666666664\n",
        {"time_unit": "excel", "time_zone": "UTC"},
        lambda bundle: (hours(bundle), begins(bundle)),
        ({"a": 2.0}, ["2024-05-01T08:00:00+00:00"]),
    ),
    "an end and a duration, from the first start on": (
        "table",
        KEA,
        {"columns": KEA_COLUMNS, "time_unit": "unix_s", "duration_unit": "s"},
        lambda bundle: (hours(bundle), epoch_and_windows(bundle)),
        (
            {"aa:bb": 1.5, "cc:dd": round(600 / 3600, 6)},
            ("2024-05-01T07:50:00+00:00", [0.0, 0.0], [100 / 60] * 2),
        ),
    ),
    "unused columns": (
        "table",
        "device,start,end,rssi,ssid\na,0,60,-70,x\n",
        {"time_unit": "min"},
        lambda b: [c for c in b.manifest.caveats if "rssi" in c],
        ["columns that are not used: rssi, ssid"],
    ),
    **{
        f"rates in {unit}": (
            "table",
            "device,down\np1,90\n",
            {"rate_unit": unit},
            column("network", "bandwidth_bps"),
            [90 * factor],
        )
        for unit, factor in {
            "MBps": 8e6,
            "Mbit/s": 1e6,
            "Mb/s": 1e6,
            "kbit/s": 1e3,
            "GB/s": 8e9,
            "MiB/s": 2.0**23,
        }.items()
    },
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_of_log_is_read_right_or_refused(tmp_path: Path, kind: str) -> None:
    format_, content, options, measure, right = KINDS[kind]
    files = {"0.csv": content} if isinstance(content, str) else content
    if isinstance(content, pd.DataFrame):
        content.to_parquet(tmp_path / "0.parquet")
    else:
        for name, text in files.items():
            (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    paths = sorted(tmp_path.iterdir())
    if isinstance(measure, type):
        with pytest.raises(measure) as caught:
            import_(format_, *paths, **options)
        assert all(part in str(caught.value) for part in right)
    elif measure is refused:
        message = refused(format_, *paths, **options)
        assert all(part in message for part in right), message
    else:
        assert measure(import_(format_, *paths, **options)) == right
