"""The log of a real deployment of a Flower app, as ``fedsim calibrate`` reads it."""

from __future__ import annotations

import csv
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedsim.flower import internals as fl
from fedsim.flower.grid import SimulatedGrid
from fedsim.vocabulary.outcomes import Outcome

_POLL_S = 0.1
COLUMNS = (
    *("client", "start", "downloaded", "computed", "end", "ended"),
    *("bytes_down", "bytes_up", "round", "outcome"),
)


def logged(grid: fl.Grid, path: str | Path) -> fl.Grid:
    """A grid that does what ``grid`` does, and writes a log of the training messages for ``fedsim calibrate``.

    Does nothing in a run of fedsim, whose run folder is the log. A message gets its row when its reply arrives, even
    after its round. The server measures the time between start and end. The time that the mod ``timed`` reports is the
    node's work; the rest is divided between download and upload by their bytes, since the nodes' clocks may differ.

    Args:
        grid: the ServerApp's grid.
        path: the CSV file; replaced if it exists.
    """
    return grid if isinstance(grid, SimulatedGrid) else _LoggedGrid(grid, Path(path))


@dataclass
class _Sent:
    """A training message without a reply."""

    client: int
    start_s: float
    size_bytes: int
    round: str
    is_late: bool = False


@fl.Grid.register
class _LoggedGrid:
    """What it does not log itself, the grid inside does."""

    def __init__(self, grid: fl.Grid, path: Path) -> None:
        self._grid = grid
        self._path = path
        self._sent: dict[str, _Sent] = {}
        self._rounds = 0
        self._append(COLUMNS, "w")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._grid, name)

    def push_messages(self, messages: Iterable[fl.Message]) -> Iterable[str]:
        messages = list(messages)
        start_s = time.time()
        ids = list(self._grid.push_messages(messages))
        for message, message_id in zip(messages, ids, strict=False):
            metadata = message.metadata
            if fl.trains(message):
                self._sent[message_id] = _Sent(
                    metadata.dst_node_id, start_s, _size(message), metadata.group_id
                )
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[fl.Message]:
        requested = set(message_ids)
        late = {each for each, sent in self._sent.items() if sent.is_late}
        replies = list(self._grid.pull_messages(requested | late))
        for reply in replies:
            self._note(reply)
        return [reply for reply in replies if reply.metadata.reply_to_message_id in requested]

    def send_and_receive(
        self, messages: Iterable[fl.Message], *, timeout: float | None = None
    ) -> Iterable[fl.Message]:
        left = set(self.push_messages(messages))
        trained = [self._sent[each] for each in left if each in self._sent]
        for sent in trained:
            # A ServerApp need not number its rounds.
            sent.round = sent.round or str(self._rounds)
        self._rounds += bool(trained)
        deadline_s = None if timeout is None else time.time() + timeout
        replies: list[fl.Message] = []
        while left:
            arrived = list(self.pull_messages(left))
            replies += arrived
            left -= {reply.metadata.reply_to_message_id for reply in arrived}
            if not left or (deadline_s is not None and time.time() >= deadline_s):
                break
            time.sleep(_POLL_S)
        for each in left & self._sent.keys():
            self._sent[each].is_late = True
        return replies

    def _note(self, reply: fl.Message) -> None:
        sent = self._sent.pop(reply.metadata.reply_to_message_id, None)
        if sent is None:
            return
        end_s = time.time()
        row: dict[str, Any] = {
            "client": sent.client,
            "start": sent.start_s,
            "ended": end_s,
            "bytes_down": sent.size_bytes,
            "round": sent.round,
            "outcome": Outcome.DROPPED.label,
        }
        if not reply.has_error():
            timing = reply.content.pop(fl.TIMING, None)
            size = _size(reply)
            outcome = Outcome.LATE if sent.is_late else Outcome.AGGREGATED
            row |= {"end": end_s, "bytes_up": size, "outcome": outcome.label}
            if timing is not None:
                work_s = float(timing["seconds"])
                transfers_s = max(end_s - sent.start_s - work_s, 0.0)
                down_s = transfers_s * sent.size_bytes / (sent.size_bytes + size)
                row |= {
                    "downloaded": sent.start_s + down_s,
                    "computed": end_s - (transfers_s - down_s),
                }
        self._append([row.get(name, "") for name in COLUMNS])

    def _append(self, row: Iterable[Any], mode: str = "a") -> None:
        with self._path.open(mode, newline="") as file:
            csv.writer(file).writerow(row)


def _size(message: fl.Message) -> int:
    """Bytes of a message's content, as Flower serializes it."""
    return len(fl.recorddict_to_proto(message.content).SerializeToString())
