"""Random small scenarios for the brute-force comparison, with ties on purpose."""

import random
from typing import Any

SECOND = 10**9


def random_case(seed: int) -> dict[str, Any]:
    """A scenario and its trace; whole seconds and round rates, so that things often happen at one instant."""
    rng = random.Random(seed)
    # What was added later draws from a second generator, so that each seed keeps its case otherwise.
    more = random.Random(-1 - seed)
    clients = rng.randint(2, 6)
    horizon = rng.choice([60, 120, 250])
    tables: dict[str, Any] = {
        "on_end": rng.choice(["wrap", "wrap", "hold", "unavailable"]),
        "devices": [{"window": (0, 300 * SECOND)} for _ in range(clients)],
    }
    devices: dict[str, Any] = {
        "compute": {
            "name": "values",
            "step": [rng.choice([0.5, 1, 1, 1, 2, 4, 0.3]) for _ in range(clients)],
        },
        "network": _network(rng, tables, clients),
    }
    devices["availability"] = {"name": "always"}
    if rng.random() < 0.7:
        devices["availability"] = {
            "name": "trace",
            "on_disconnect": rng.choice(["drop", "pause", "finish", "send_partial"]),
        }
        tables["availability"] = _availability(rng, clients)
    if rng.random() < 0.15:
        devices["failures"] = {"upload_loss": 1, "upload_retries": rng.choice([0, 1, 2])}
    elif rng.random() < 0.15:
        devices["failures"] = {"crash_rate": rng.choice([60, 200, 600])}
    if rng.random() < 0.15 and "failures" not in devices:
        # Figures for which joules and the time of recharging are exact.
        devices["energy"] = {
            "battery_j": rng.choice([20, 50]), "battery_floor": 0.5,
            "compute_w": 2, "download_w": 0, "upload_w": 0, "recharge_w": rng.choice([1, 2, 4]),
        }  # fmt: skip
        devices["compute"]["step"] = [rng.choice([0.5, 1, 1, 2, 4]) for _ in range(clients)]
        devices["energy"]["download_w"], devices["energy"]["upload_w"] = more.choice(
            [(0, 0), (0, 0), (1, 2), (0.5, 4)]
        )
    if rng.random() < 0.1:
        devices["compute"]["perturbations"] = [
            {"at": rng.choice([3, 10, 20]), "until": rng.choice([25, 30.5, 60]), "factor": 2}
        ]
    server: dict[str, Any] = {}
    schedule = _schedule(rng, clients, server, devices["network"]["name"] == "shared")
    server["schedule"] = schedule
    if schedule["name"] == "sync" and "deadline" in schedule:
        if more.random() < 0.3:
            server["partial_work"] = "send"
        if "partial_work" in server:
            server["foresight"] = more.random() < 0.5
    training: dict[str, Any] = {"local_steps": rng.choice([1, 3, 5, 10])}
    if rng.random() < 0.15:
        training = {"time_budget": rng.choice([2, 5, 7.5])}
    elif rng.random() < 0.1:
        training = {"local_epochs": rng.choice([0.5, 1, 2]), "batch_size": 100}
    server["selection"] = _selection(rng, clients, schedule)
    cohort = server["selection"].get("cohort", clients)
    if schedule.get("min_updates", 0) > cohort:
        schedule["min_updates"] = 1
    if schedule.get("min_cohort", 0) > cohort:
        schedule["min_cohort"] = 1
    if rng.random() < 0.2:
        server["aggregation_time"] = rng.choice([1, 2.5])
    if rng.random() < 0.25:
        server["failure_detection"] = rng.choice([1.0007, 5.0003])
        if "deadline" in schedule or "timeout" in schedule:
            server["failure_detection"] = rng.choice([1.0007, 5.0003, "never", "never"])
    if rng.random() < 0.2:
        server["compression"] = {"up": {"factor": rng.choice([0.5, 0.001])}}
    if "local_epochs" in training and rng.random() < 0.7:
        server["partial_unit"] = "epoch"
    if schedule["name"] == "sync":
        if "availability" in tables:
            schedule["min_cohort"] = 1
    else:
        # Which of several clients that check in at one instant comes first is not documented here.
        tables["availability"] = [
            (client, start + client * 1_370_000, end, state)
            for client, start, end, state in tables.get("availability", [])
        ]
        if not tables["availability"]:
            del tables["availability"]
        if "energy" in devices or schedule["name"] == "compass":
            for row in tables.get("network", []):
                row.update({key: rate if rate != 3e6 else 2e6 for key, rate in row.items()})
        if "energy" in devices or (
            schedule.get("next_client") == "same" and "availability" in tables
        ):
            server.pop("aggregation_time", None)
    stop: dict[str, Any] = {"simulated_time": horizon}
    if rng.random() < 0.3 and "timeout" not in schedule:
        stop[rng.choice(["rounds", "dispatches", "arrivals"])] = rng.randint(2, 8)
    parameters = rng.choice([1, 250_000, 1_000_000])
    network = devices["network"]
    if (
        schedule["name"] == "sync"
        and "deadline" in schedule
        and "up" in network
        and not tables.get("network")
    ):
        # Often the very instant at which the first client's update arrives if nothing holds it up.
        up = server.get("compression", {"up": {"factor": 1}})["up"]
        bits = [32 * parameters, 32 * parameters * up["factor"]]
        transfers = [
            round(SECOND * size / network[key])
            for size, key in zip(bits, ("down", "up"), strict=True)
        ]
        steps = training.get("local_steps", 5) * round(SECOND * devices["compute"]["step"][0])
        arrival = 2 * round(SECOND * network["latency"]) + sum(transfers) + steps
        if rng.random() < 0.6:
            schedule["deadline"] = arrival / SECOND
    scenario = {
        "name": "case", "seed": seed,
        "task": {"name": "timing", "clients": clients, "parameters": parameters},
        "training": training, "devices": devices, "server": server, "stop": stop,
    }  # fmt: skip
    used = "availability" in tables or tables.get("network") or tables.get("network_series")
    return {"scenario": scenario, "tables": tables if used else {}}


def _network(rng: random.Random, tables: dict[str, Any], clients: int) -> dict[str, Any]:
    latency = rng.choice([0, 0.5, 1, 1])
    kind = rng.choice(["static", "static", "bundle", "traced", "shared", "shared"])
    if kind == "shared":
        network = {"name": "shared", "latency": latency, "down": 8_000_000, "up": 4_000_000}
        if rng.random() < 0.5:
            tables["network"] = [
                {key: rng.choice([8e6, 4e6, 16e6]) for key in ("down", "up")}
                for _ in range(clients)
            ]
            network |= {"down": "bundle", "up": "bundle"}
        if rng.random() < 0.7:
            network["server_down"] = rng.choice([8_000_000, 12_000_000])
        if rng.random() < 0.7:
            network["server_up"] = rng.choice([4_000_000, 10_000_000])
        return network
    if kind == "static":
        return {
            "name": "static",
            "latency": latency,
            "down": 8_000_000,
            "up": rng.choice([4_000_000, 8_000_000]),
        }
    if kind == "bundle":
        tables["network"] = [
            {key: rng.choice([8e6, 4e6, 3e6, 16e6]) for key in ("down", "up")}
            for _ in range(clients)
        ]
        return {"name": "static", "latency": latency, "down": "bundle", "up": "bundle"}
    rows = []
    for direction in ("down", "up"):
        for name in ("slow", "fast"):
            at = 0
            for _ in range(rng.randint(2, 4)):
                length = rng.choice([1, 2, 5, 10])
                rate = rng.choice([0, 4e6, 8e6, 16e6])
                rows.append((name, direction, at * SECOND, (at + length) * SECOND, rate))
                at += length
            rows.append((name, direction, at * SECOND, 50 * SECOND, 8e6))
    tables["network_series"] = rows
    tables["network_assign"] = [
        (c, rng.choice(["slow", "fast"]), rng.choice([0, 0, 5]) * SECOND, rng.choice([1.0, 0.5]))
        for c in range(clients)
    ]
    return {"name": "traced", "latency": latency}


def _availability(rng: random.Random, clients: int) -> list[tuple[int, int, int, int]]:
    rows = []
    for client in range(clients):
        at = rng.choice([0, 0, 0, 2, 5, 10])
        while at < 300:
            end = min(300, at + rng.choice([3, 5, 8, 10, 13, 20, 40, 100]))
            rows.append((client, at * SECOND, end * SECOND, 1))
            at = end + rng.choice([1, 2, 5, 10, 30])
    return rows


def _schedule(
    rng: random.Random, clients: int, server: dict[str, Any], shared: bool
) -> dict[str, Any]:
    name = rng.choice(["sync", "sync", "async", "buffered", "tiered", "compass", "window"])
    schedule: dict[str, Any] = {"name": name}
    if name == "sync":
        if rng.random() < 0.6:
            schedule["deadline"] = rng.choice([3, 8, 12, 20, 30])
            if rng.random() < 0.4 and not shared:
                server["partial_work"] = "send"
        if rng.random() < 0.5:
            schedule["over_selection"] = rng.choice([1.3, 1.5, 2])
        schedule["min_updates"] = rng.choice([1, 1, 0, 2])
        schedule["min_cohort"] = rng.choice([1, 1, 2])
        schedule["stragglers"] = rng.choice(["run", "cut"])
        schedule["pause"] = rng.choice([0, 0, 1, 5])
        if schedule["min_updates"] == 0:
            schedule["pause"], schedule["min_cohort"] = rng.choice([1, 5]), 1
    if name in ("async", "buffered"):
        schedule["concurrency"] = rng.randint(1, clients)
        schedule["next_client"] = rng.choice(["selection", "same"])
        if schedule["next_client"] == "same":
            schedule["concurrency"] = clients
        schedule["max_staleness"] = rng.choice([None, None, 0, 1, 2])
    if name == "buffered":
        schedule["buffer_size"] = rng.randint(1, 4)
    if name in ("async", "buffered", "tiered", "compass") and rng.random() < 0.3:
        schedule["timeout"] = rng.choice([5.001, 12.003, 20.007])
    if name == "tiered":
        if rng.random() < 0.5:
            schedule["tiers"] = rng.randint(1, clients)
        else:
            schedule["speed_ratio"] = rng.choice([1, 1.5, 2, 4])
        schedule["profiled"] = rng.choice(["online", "online", "all"])
    if name == "compass":
        schedule["max_steps"] = rng.choice([5, 10])
        schedule["min_steps"] = rng.choice([1, 2])
        schedule["latest_factor"] = rng.choice([1, 1.5, 2])
        schedule["empty_timer"] = rng.choice(["flush", "keep"])
    if name == "window":
        schedule["length"] = rng.choice([0, 10, 30])
        if rng.random() < 0.6:
            schedule["deadline"] = rng.choice([30, 40, 60])
    return schedule


def _selection(rng: random.Random, clients: int, schedule: dict[str, Any]) -> dict[str, Any]:
    if schedule["name"] in ("compass", "window"):
        return {"name": "round_robin"}
    kind = rng.choice(["round_robin", "round_robin", "cyclic"])
    selection: dict[str, Any] = {"name": "round_robin" if schedule["name"] == "tiered" else kind}
    if rng.random() < 0.8:
        selection["cohort"] = rng.randint(1, clients)
    return selection


def features(case: dict[str, Any]) -> set[str]:
    """What a case exercises, by name."""
    scenario = case["scenario"]
    devices, server = scenario["devices"], scenario["server"]
    schedule = server["schedule"]
    names = {
        f"schedule {schedule['name']}",
        f"network {devices['network']['name']}",
        f"selection {server['selection']['name']}",
    }
    availability = devices["availability"]
    names.add(f"disconnect {availability.get('on_disconnect', 'never offline')}")
    failures = devices.get("failures", {})
    names |= {f"failure {name}" for name in ("upload_loss", "crash_rate") if failures.get(name)}
    names |= {
        f"schedule {schedule['name']} {name}"
        for name in ("deadline", "timeout", "over_selection", "max_staleness", "length")
        if schedule.get(name)
    }
    if schedule["name"] == "sync":
        names.add(f"stragglers {schedule['stragglers']}")
        names.add(f"min_updates {schedule['min_updates']}")
    if "next_client" in schedule:
        names.add(f"next_client {schedule['next_client']}")
    names |= {name for name in ("aggregation_time", "failure_detection") if server.get(name)}
    if server.get("failure_detection") == "never":
        names.add("failure_detection never")
    if "energy" in devices:
        names.add("battery")
    if server.get("partial_work") == "send":
        names.add("partial_work send")
        names.add("foresight" if server.get("foresight") else "no foresight")
    if server.get("partial_unit") == "epoch":
        names.add("partial_unit epoch")
    names |= {name for name in ("time_budget", "local_epochs") if name in scenario["training"]}
    names |= {f"stop {name}" for name in scenario["stop"]}
    if devices["compute"].get("perturbations"):
        names.add("perturbations")
    if not devices["network"]["latency"]:
        names.add("no latency")
    return names


def ties(case: dict[str, Any], rows: list[dict[str, Any]]) -> set[str]:
    """Which things happen at one instant in the run with these dispatches."""
    names = set()
    arrivals = [row["arrived"] for row in rows if row["arrived"] is not None]
    starts = [row["dispatched"] for row in rows]
    if len(set(arrivals)) < len(arrivals):
        names.add("tie arrival and arrival")
    if set(arrivals) & set(starts):
        names.add("tie arrival and hand-out")
    schedule = case["scenario"]["server"]["schedule"]
    if schedule["name"] == "sync" and "deadline" in schedule:
        length = round(schedule["deadline"] * SECOND)
        if any(row["arrived"] == row["dispatched"] + length for row in rows):
            names.add("tie arrival and deadline")
    intervals = case["tables"].get("availability") or []
    ends = {(client, end) for client, _, end, _ in intervals}
    begins = {(client, start) for client, start, _, _ in intervals}
    if any((row["client_id"], row["arrived"]) in ends for row in rows):
        names.add("tie arrival and end of interval")
    if any((row["client_id"], row["dispatched"]) in begins for row in rows):
        names.add("tie hand-out and check-in")
    if any(row["outcome"] == "cut" and row["arrived"] is None and row["computed"] for row in rows):
        names.add("cut after its steps")
    return names
