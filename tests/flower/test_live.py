"""The server in wall time: every schedule keeps its rules, whatever nodes do, and after the server was killed."""

import math
import random
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from flwr.app import ConfigRecord, Message, MetricRecord, RecordDict

import fedsim
from fedsim.composition import run as execution
from fedsim.errors import UserError
from fedsim.flower import server_app
from fedsim.flower.internals import TIMING
from fedsim.flower.live import _Journal
from fedsim.units import parse_duration_s
from tests.flower.loopback import LoopbackGrid, spoiled, trained
from tests.flower.test_serving import DEVICES, scenario

COHORT = {"name": "uniform", "cohort": 3}


def deployment(
    grid: LoopbackGrid,
    folder: Path,
    server: dict[str, Any],
    local_update: bool = False,
    **stop: Any,
) -> Any:
    section = scenario(server, stop={"simulated_time": "20s", **stop})
    grid.serve(server_app(section, output=folder / "run", local_update=local_update))
    run = fedsim.load(folder / "run")
    assert run.info["clock"] == "wall"
    # A run is checked by its invariants before it is complete.
    assert run.info["status"] == "complete"
    return run


def schedules(deadline: str) -> list[tuple[dict[str, Any], dict[str, Any], Callable[[Any], None]]]:
    """Schedules and selections, each with its own rule; some nodes answer after the deadline."""

    def in_time(run: Any) -> None:
        used = run.dispatches.query("outcome == 'aggregated'")
        assert (used["arrived_s"] - used["dispatched_s"] <= parse_duration_s(deadline)).all()
        assert (run.aggregations["contributors"] <= 3).all()
        assert "late" in set(run.dispatches["outcome"])

    def of_size(count: int) -> Callable[[Any], None]:
        def check(run: Any) -> None:
            assert (run.aggregations["contributors"] == count).all()

        return check

    def fresh(run: Any) -> None:
        of_size(4)(run)
        assert (run.dispatches.query("outcome == 'aggregated'")["staleness"] == 0).all()

    def within_rounds(run: Any) -> None:
        used = run.dispatches.query("outcome == 'aggregated'")
        assert (used.groupby("aggregated_version")["round"].nunique() == 1).all()
        assert (run.aggregations["contributors"] >= 2).all()

    def within_tiers(run: Any) -> None:
        used = run.dispatches.query("outcome == 'aggregated'")
        assert (used.groupby("aggregated_version")[["group", "version"]].nunique() == 1).all(
            axis=None
        )
        assert set(used["group"]) <= {0, 1}

    def one_version_each(run: Any) -> None:
        groups = [dict(row)["group"] for row in run.aggregations["attributes"]]
        of_groups = [group for group in groups if group]
        assert len(of_groups) == len(set(of_groups))
        first = run.dispatches.query("outcome == 'aggregated' and sequence == 0")
        assert groups.count(0) == len(first[first["group"] == 0])

    cohort = {"selection": COHORT}
    return [
        ({"name": "sync", "deadline": deadline, "over_selection": 1.5}, cohort, in_time),
        ({"name": "sync", "stragglers": "cut", "quorum": 2}, cohort, within_rounds),
        ({"name": "buffered", "buffer_size": 3}, {}, of_size(3)),
        ({"name": "async"}, {}, of_size(1)),
        ({"name": "compass"}, {}, one_version_each),
        ({"name": "tiered", "tiers": 2}, {}, within_tiers),
        ({"name": "rennala", "batch": 4}, {}, fresh),
    ]


def named(value: Any) -> str:
    return value["name"] if isinstance(value, dict) and "name" in value else ""


def counted_once(run: Any) -> None:
    used = [each for ids in run.aggregations["contributor_ids"] for each in ids]
    assert len(used) == len(set(used))


@pytest.mark.parametrize(("schedule", "more", "check"), schedules("300ms"), ids=named)
def test_every_schedule_keeps_its_rules(
    schedule: dict[str, Any], more: dict[str, Any], check: Any, tmp_path: Path
) -> None:
    grid = LoopbackGrid(5, delay_s=0.08)
    run = deployment(grid, tmp_path, {"schedule": schedule, **more}, rounds=6)
    assert run.info["versions_made"] >= 5
    assert len(run.messages) == len(run.dispatches)
    check(run)
    counted_once(run)


def test_an_update_that_comes_after_its_timeout_is_late(tmp_path: Path) -> None:
    """Nodes 4 and 5 answer after 0.32 and 0.4 s."""
    schedule = {"name": "async", "timeout": "300ms"}
    run = deployment(LoopbackGrid(5, delay_s=0.08), tmp_path, {"schedule": schedule}, rounds=6)
    assert {"aggregated", "late"} <= set(run.dispatches["outcome"])


def test_nodes_that_are_killed_and_restarted(tmp_path: Path) -> None:
    """Forty rounds: nothing hangs, and nothing is counted twice."""
    grid, chance, pulls = LoopbackGrid(5, delay_s=0.01), random.Random(0), 0

    def disturb() -> None:
        nonlocal pulls
        pulls += 1
        if pulls % 5 == 0 and len(grid.nodes) > 2:
            grid.nodes.remove(chance.choice(sorted(grid.nodes)))
        elif pulls % 7 == 0:
            # A node without keys gets another id each time.
            grid.nodes.add(max(grid.nodes) + 1)

    grid.on_pull = disturb
    server = {"schedule": {"name": "sync", "deadline": "500ms"}, "selection": COHORT}
    run = deployment(grid, tmp_path, server, rounds=40, simulated_time="60s")
    assert run.info["rounds"] == 40
    assert {"aggregated", "dropped"} <= set(run.dispatches["outcome"])
    counted_once(run)


@pytest.mark.parametrize(
    "kind", ["never", "upload", "twice", "error", "nan", "shapes", "names", "nothing", "bytes"]
)
def test_a_bad_node_is_named_and_the_rest_goes_on(kind: str, tmp_path: Path) -> None:
    grid = LoopbackGrid(4, answer=spoiled(kind))
    grid.twice, grid.uploading = int(kind == "twice"), int(kind == "upload")
    server = {
        "schedule": {"name": "sync", "deadline": "1s"},
        "selection": {"name": "uniform", "cohort": 8},
    }
    run = deployment(grid, tmp_path, server, rounds=4)
    of_bad = run.dispatches.query("client_id == 0")
    assert (kind == "twice") == (of_bad["outcome"] == "aggregated").any()
    assert run.info["versions_made"] == 4
    counted_once(run)
    said = {"never": "", "upload": "", "twice": "did not wait for"}.get(kind, "client 0")
    assert said in " ".join(run.info["notes"])


def test_pulls_may_overtake_each_other(tmp_path: Path) -> None:
    """On a busy machine, pulls take longer than the server waits for one; of two, one gets an error."""
    grid, chance = LoopbackGrid(4), random.Random(0)
    grid.on_pull = lambda: time.sleep(chance.choice((0.0, 0.15, 0.3)))
    run = deployment(grid, tmp_path, {"schedule": "async"}, rounds=25)
    assert set(run.dispatches["outcome"]) <= {"aggregated", "unfinished"}
    assert not any("did not wait for" in note for note in run.info["notes"])


@pytest.mark.parametrize(
    "wrong", [math.nan, math.inf, -7, 1e300, 2**62, [1, 2], []], ids=lambda value: repr(value)
)
def test_figures_that_are_no_numbers_count_as_absent(wrong: Any, tmp_path: Path) -> None:
    def answer(message: Message, node: int) -> RecordDict:
        figures = MetricRecord({"num-examples": wrong, "steps": wrong, "train_loss": wrong})
        timing = ConfigRecord({"seconds": wrong})
        return RecordDict({**trained(message, node), "metrics": figures, TIMING: timing})

    run = deployment(LoopbackGrid(2, answer=answer), tmp_path, {"schedule": "async"}, rounds=3)
    assert run.info["versions_made"] == 3
    assert (run.dispatches.query("outcome == 'aggregated'")["steps_done"] > 0).all()


def test_what_a_node_says_cannot_control_the_terminal(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def answer(message: Message, node: int) -> RecordDict:
        if node == 1:
            raise RuntimeError("\x1b]0;owned\x07" + "x" * 100_000)
        return trained(message, node)

    run = deployment(LoopbackGrid(2, answer=answer), tmp_path, {"schedule": "async"}, rounds=3)
    texts = [record.getMessage() for record in caplog.records] + run.info["notes"]
    assert any("owned" in text for text in texts)
    assert not any("\x1b" in text or len(text) > 1000 for text in texts)


def test_clients_are_numbered_by_partition_id(tmp_path: Path) -> None:
    """A later node with the number of an earlier one takes its place; a number that no client has is refused."""

    def answer(message: Message, node: int) -> RecordDict:
        if "arrays" in message.content:
            return trained(message, node)
        return RecordDict(
            {"config": ConfigRecord({"partition-id": {1: 7, 2: 5, 3: 99}.get(node, 5)})}
        )

    grid, pulls = LoopbackGrid(3, answer=answer), 0

    def replace() -> None:
        nonlocal pulls
        pulls += 1
        if pulls == 10:
            grid.nodes.add(4)

    grid.on_pull = replace
    server = {"schedule": {"name": "buffered", "buffer_size": 1}}
    run = deployment(grid, tmp_path, server, rounds=60, local_update=True)
    assert set(run.dispatches["client_id"]) == {5, 7}
    notes = " ".join(run.info["notes"])
    assert "Node 3 gets no work" in notes
    assert "Node 2 gets no work: a later node has its partition-id 5" in notes


class Killed(BaseException):
    pass


@pytest.mark.parametrize(("kills", "interval_s"), [([8], 30), ([10, 15], 30), ([20, 12], 0)])
def test_a_killed_server_continues(
    kills: list[int], interval_s: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder gives back what was decided, with and without checkpoints; work that was under way is lost."""
    monkeypatch.setattr(execution, "CHECKPOINT_INTERVAL_S", interval_s)
    grid = LoopbackGrid(5)
    server = {"schedule": {"name": "buffered", "buffer_size": 3}, "selection": COHORT}
    for at in kills:
        sent = 0

        def kill(at: int = at) -> None:
            nonlocal sent
            sent += 1
            if sent == at:
                raise Killed

        grid.on_push = kill
        with pytest.raises(Killed):
            deployment(grid, tmp_path, server, rounds=12)
    with pytest.raises(UserError, match=r"were real nodes.*\n  start its ServerApp again"):
        fedsim.resume(tmp_path / "run")
    grid.on_push = lambda: None
    run = deployment(grid, tmp_path, server, rounds=12)
    with pytest.raises(UserError, match=r"were real nodes.*\n  start its ServerApp again"):
        fedsim.what_if(run.path, {"server.schedule.buffer_size": 2})
    assert run.info["versions_made"] == 12
    assert run.info["resumed"] == len(kills)
    assert (run.aggregations["contributors"] == 3).all()
    # Each kill loses what was under way.
    lost = run.dispatches.query("outcome == 'dropped'")
    assert 0 < lost["ended_s"].nunique() <= len(kills)


def test_a_damaged_journal_is_named(tmp_path: Path) -> None:
    grid = LoopbackGrid(3)

    def kill() -> None:
        if len(list(tmp_path.glob("run/checkpoint/replies/*"))) > 1:
            raise Killed

    grid.on_push = kill
    server = {"schedule": "async"}
    with pytest.raises(Killed):
        deployment(grid, tmp_path, server, rounds=9)
    journal = tmp_path / "run" / "checkpoint" / "journal.jsonl"
    content = bytearray(journal.read_bytes())
    content[20] ^= 4
    journal.write_bytes(content)
    with pytest.raises(UserError, match=r"journal.jsonl:1: it has changed since"):
        deployment(grid, tmp_path, server, rounds=9)


@pytest.mark.parametrize(
    "content",
    [
        *(b"1", b"[1]", b'"abcd"', b"[" * 5000 + b"]" * 5000, b"\xff\xfe", b'[0,"came",0,{},1]'),
        *(b'[NaN,"gone",0,{}]', b'[-1,"gone",0,{}]', b'[0,"left",0,{}]', b'[0,"came",0,{}]'),
    ],
)
def test_a_line_of_the_journal_with_other_types_is_damage(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "journal.jsonl"
    good = b'[0,"came",0,{"node":7}]'
    path.write_bytes(b"".join(b"%08x %s\n" % (zlib.crc32(c), c) for c in (good, content)))
    with pytest.raises(UserError, match=r"journal.jsonl:2: it has changed since"):
        _Journal(path)


@pytest.mark.parametrize(
    ("changes", "where", "word"),
    [
        ({"method": {"name": "scaffold"}}, "server.method", "SCAFFOLD"),
        ({"method": {"name": "fedprox"}}, "server.method", "FedProx"),
        ({"partial_work": "send"}, "server.partial_work", "partial work"),
        ({"compression": {"up": {"name": "topk", "share": 0.1}}}, "server.method", "compress"),
    ],
)
def test_what_cannot_be_deployed_is_refused(
    changes: dict[str, Any], where: str, word: str, tmp_path: Path
) -> None:
    grid = LoopbackGrid(2)
    section = scenario({"schedule": {"name": "sync"}, **changes}, devices=DEVICES)
    with pytest.raises(UserError) as caught:
        grid.serve(server_app(section, output=tmp_path / "run"))
    assert where in str(caught.value)
    assert word in caught.value.message
    assert not (tmp_path / "run").exists()


def test_an_app_knows_when_its_round_closes(tmp_path: Path) -> None:
    """A SuperNode takes no message while its app works, so that an app can only stop by itself."""
    limits_s = set()

    def answer(message: Message, node: int) -> RecordDict:
        limits_s.add(message.content["config"]["deadline-s"])
        return trained(message, node)

    server = {"schedule": {"name": "sync", "deadline": "300ms"}, "selection": COHORT}
    deployment(LoopbackGrid(3, answer=answer), tmp_path, server, rounds=2)
    assert limits_s
    assert all(0 < limit_s <= 0.3 for limit_s in limits_s)
