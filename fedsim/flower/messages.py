"""The record of an app's messages of all kinds, and the table ``messages`` of its run."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from fedsim.runs.schema import MESSAGES
from fedsim.runs.tables import from_columns, null_if_negative
from fedsim.simulation.life import Plan
from fedsim.units import NS_PER_S


@dataclass(slots=True, eq=False)
class Sent:
    """One message that was sent; see :data:`fedsim.runs.schema.MESSAGES`. Instants are -1 until they have come."""

    kind: str
    client: int
    sent_ns: int
    sent_hash: str
    reply_hash: str | None = None
    dispatch_id: int = -1
    delivered_ns: int = -1
    replied_ns: int = -1
    bytes_down: float = 0.0
    bytes_up: float = 0.0
    failed: bool = False
    outcome: str = "unfinished"

    def follow(self, plan: Plan) -> None:
        """Record the course of the message up to now."""
        self.delivered_ns = plan.downloaded_ns
        self.bytes_down, self.bytes_up = plan.bytes_down, plan.bytes_up


def hash_of(content: bytes) -> str:
    """The CRC-32 of a serialized message, which takes less time than its serialization."""
    return f"{zlib.crc32(content):08x}"


def messages_table(sent: Sequence[Sent]) -> pa.Table:
    """The table of messages, in order of sending."""
    instants = {
        f"{name}_s": np.array([getattr(each, f"{name}_ns") for each in sent], np.float64) / NS_PER_S
        for name in ("sent", "delivered", "replied")
    }
    columns = {
        "message_id": np.arange(len(sent)),
        "kind": [each.kind for each in sent],
        "client_id": [each.client for each in sent],
        "dispatch_id": null_if_negative(np.array([each.dispatch_id for each in sent], np.int64)),
        **{name: np.where(values < 0, np.nan, values) for name, values in instants.items()},
        "bytes_down": [round(each.bytes_down) for each in sent],
        "bytes_up": [round(each.bytes_up) for each in sent],
        "outcome": [
            "failed" if each.failed and each.outcome == "replied" else each.outcome for each in sent
        ],
    }
    columns |= {
        name: [getattr(each, name) for each in sent] for name in ("sent_hash", "reply_hash")
    }
    return from_columns(MESSAGES, columns)
