"""Nodes in wall time without a SuperLink: every message is handled by a thread, some time after it was sent."""

from __future__ import annotations

import io
import threading
import time
import uuid
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.app.error import Error
from flwr.server.superlink.linkstate.utils import (
    create_message_error_unavailable_ins_message as unavailable,
)
from flwr.serverapp import Grid

from fedsim.flower import internals as fl

Answer = Callable[[Message, int], RecordDict | None]


def trained(message: Message, node: int) -> RecordDict:
    """The answer of an unmodified ClientApp."""
    arrays = {name: Array(value.numpy() * 0.9) for name, value in message.content["arrays"].items()}
    metrics = MetricRecord({"num-examples": 10 + node})
    return RecordDict({"arrays": ArrayRecord(arrays), "metrics": metrics})


class LoopbackGrid(Grid):  # type: ignore[misc]
    """The grid of a run whose nodes answer after ``delay_s`` times their number plus one.

    Attributes:
        nodes: numbers of the nodes that are connected.
        twice: the node whose replies come twice.
        uploading: the node whose replies have begun to come, and hold the pull that they are given to.
        on_pull, on_push: called at every pull, and for every message.
    """

    def __init__(self, count: int, delay_s: float = 0.02, answer: Answer = trained) -> None:
        self.nodes = set(range(1, count + 1))
        self.delay_s, self.answer, self.twice = delay_s, answer, 0
        self.uploading = 0
        self.on_pull: Callable[[], None] = lambda: None
        self.on_push: Callable[[], None] = lambda: None
        self._replies: dict[str, list[Message]] = {}
        self._lock = threading.Lock()
        self._given: set[str] = set()

    def set_run(self, run: Any) -> None: ...

    @property
    def run(self) -> Any:
        return fl.Run.create_empty(run_id=1)

    def create_message(self, *args: Any, **more: Any) -> Any:
        raise NotImplementedError

    def get_nodes(self) -> Any:
        raise NotImplementedError

    def send_and_receive(self, *args: Any, **more: Any) -> Any:
        raise NotImplementedError

    def get_node_ids(self) -> Iterable[int]:
        return list(self.nodes)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        ids = []
        for message in messages:
            self.on_push()
            message_id = uuid.uuid4().hex
            message.metadata.__dict__["_message_id"] = message_id
            ids.append(message_id)
            threading.Thread(target=self._handle, args=(message,), daemon=True).start()
        return ids

    def _handle(self, message: Message) -> None:
        node = message.metadata.dst_node_id
        time.sleep(self.delay_s * (1 + node % 5))
        try:
            content = self.answer(message, node)
        except RuntimeError as problem:
            reply = Message(Error(0, str(problem)), reply_to=message)
        else:
            if content is None or node not in self.nodes:
                return
            reply = Message(content, reply_to=message)
        with self._lock:
            times = 2 if node == self.twice else 1
            self._replies[message.metadata.message_id] = [reply] * times

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        self.on_pull()
        with self._lock:
            here = [each for each in message_ids if each in self._replies]
            replies = [reply for each in here for reply in self._replies.pop(each)]
            gone = [unavailable(each, 1) for each in message_ids if each in self._given]
            held = [each for each in replies if each.metadata.src_node_id == self.uploading]
            self._given |= {each.metadata.reply_to_message_id for each in replies}
        if held:
            time.sleep(3600)
        return [*replies, *gone]

    def serve(self, app: Any) -> None:
        """Run a ServerApp."""
        context = Context(1, 0, {}, RecordDict(), {})
        with fl.identity(1, 1):
            app(self, context)


def spoiled(kind: str) -> Answer:
    """What node 1 answers instead: nothing, an error, or arrays that are of no use."""

    def answer(message: Message, node: int) -> RecordDict | None:
        content = trained(message, node)
        if node != 1:
            return content
        if kind == "never":
            return None
        if kind == "error":
            raise RuntimeError("no memory")
        arrays = {name: array.numpy() for name, array in content["arrays"].items()}
        if kind == "nan":
            arrays = {name: value * np.nan for name, value in arrays.items()}
        if kind == "shapes":
            arrays = {name: value[:1] for name, value in arrays.items()}
        if kind == "names":
            arrays = {f"other.{name}": value for name, value in arrays.items()}
        if kind == "nothing":
            return RecordDict()
        if kind == "bytes":
            # Bytes that claim to be an array of 373 GiB.
            header = io.BytesIO()
            claim = {"descr": "<f4", "fortran_order": False, "shape": (10**11,)}
            np.lib.format.write_array_header_1_0(header, claim)
            huge = Array("float32", (1,), "numpy.ndarray", header.getvalue())
            return RecordDict({"arrays": ArrayRecord(dict.fromkeys(arrays, huge))})
        content["arrays"] = ArrayRecord({name: Array(value) for name, value in arrays.items()})
        return content

    return answer
