"""The record of an app's messages of all kinds, and the table ``messages`` of its run."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fedsim.runs.schema import MESSAGE_INSTANTS, MESSAGES, with_columns
from fedsim.runs.tables import from_columns, null_if_negative
from fedsim.simulation.updates import Ended
from fedsim.units import NS_PER_S


@dataclass(slots=True, eq=False)
class Sent:
    """One message that was sent; see :data:`fedsim.runs.schema.MESSAGES`.

    Attributes:
        replied_ns: arrival of its reply; -1 until then.
        ended: its course and its work on the node; None if it has not reached the front of the node's queue.
    """

    kind: str
    client: int
    sent_ns: int
    sent_hash: str
    reply_hash: str | None = None
    dispatch_id: int = -1
    replied_ns: int = -1
    failed: bool = False
    outcome: str = "unfinished"
    ended: Ended | None = None


def hash_of(content: bytes) -> str:
    """The CRC-32 of a serialized message, which takes less time than its serialization."""
    return f"{zlib.crc32(content):08x}"


def messages_table(
    sent: Sequence[Sent], columns_of: Callable[[Sequence[Ended]], Mapping[str, npt.NDArray[Any]]]
) -> pa.Table:
    """The table of messages, in order of sending.

    Args:
        sent: the messages.
        columns_of: the columns of ``dispatches``, as :func:`fedsim.simulation.rows.dispatch_columns` makes them.
    """
    columns: dict[str, Any] = {
        "message_id": np.arange(len(sent)),
        "kind": [each.kind for each in sent],
        "client_id": [each.client for each in sent],
        "dispatch_id": null_if_negative(np.array([each.dispatch_id for each in sent], np.int64)),
        "outcome": [
            "failed" if each.failed and each.outcome == "replied" else each.outcome for each in sent
        ],
        **{name: [getattr(each, name) for each in sent] for name in ("sent_hash", "reply_hash")},
    }
    for name in ("sent", "replied"):
        instants_ns = np.array([getattr(each, f"{name}_ns") for each in sent], np.float64)
        columns[f"{name}_s"] = np.where(instants_ns < 0, np.nan, instants_ns / NS_PER_S)
    begun = np.array([each.ended is not None for each in sent], np.bool_)
    spent = (
        columns_of([each.ended for each in sent if each.ended is not None]) if begun.any() else {}
    )
    table = with_columns(MESSAGES, spent)
    for field in table.schema:
        if field.name not in columns:
            # A message that its node never began took nothing.
            is_instant = field.name in MESSAGE_INSTANTS
            values = np.full(len(sent), np.nan if is_instant else 0, field.type.to_pandas_dtype())
            if begun.any():
                values[begun] = spent[MESSAGE_INSTANTS.get(field.name, field.name)]
            columns[field.name] = values
    return from_columns(table, columns)
