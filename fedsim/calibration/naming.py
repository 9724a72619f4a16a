"""Which client of the scenario each name in a log means."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from fedsim.errors import UserError
from fedsim.vocabulary.formatting import format_names

_KINDS = {
    "client_id": "client numbers",
    "client_name": "names in the data set",
    "device_id": "device ids",
}
"""What the names in these columns of a log are."""
_NAMED = 5
"""Number of clients that a message names."""


def paired(
    clients: list[str], named_by: str, count: int, names: Mapping[str, Any], where: str
) -> tuple[list[str], list[str]]:
    """The name of each of the scenario's clients as the log names it, and a flag if the pairing is a guess.

    The log may name clients by their numbers, their names in the data set, or their devices in the trace. Its column
    decides between them. In the column ``client`` all are possible, so names that would mean different clients are
    refused. If the scenario does not have most of the names, they are paired in order.

    Args:
        clients: the names in the log, in order.
        named_by: the column of the log that names the clients.
        count: number of the scenario's clients.
        names: names that the scenario has, as from :meth:`~fedsim.composition.world.World.names`.
        where: the log, for messages.
    """
    kinds = {"client_id": [str(number) for number in range(count)]}
    for kind, key in (("client_name", "name"), ("device_id", "device")):
        if key in names:
            kinds[kind] = pa.array(names[key]).to_pylist()
    meant = "device_id" if named_by == "device" else named_by
    if meant in ("client_name", "device_id") and meant in kinds:
        kinds = {meant: kinds[meant]}
    number_of = {kind: {name: row for row, name in enumerate(all_)} for kind, all_ in kinds.items()}
    fitting = [kind for kind in kinds if number_of[kind].keys() >= set(clients)]
    # Devices that several clients share do not identify a client.
    identifying = [kind for kind in fitting if len(number_of[kind]) == count]
    if named_by == "client":
        pairings = {tuple(number_of[kind][name] for name in clients) for kind in identifying}
        if len(pairings) > 1:
            meanings = [f"{kind} if they are {_KINDS[kind]}" for kind in identifying]
            raise UserError(
                f"the clients {format_names(clients, _NAMED)} may be"
                f" {' or '.join(_KINDS[kind] for kind in identifying)}, which mean different clients",
                where=where,
                hint=f"rename the column client to {', or to '.join(meanings)}",
            )
    if identifying:
        return kinds[identifying[0]], []
    if fitting:
        raise UserError(
            "device ids do not identify the clients, because several clients of the scenario are on one device",
            where=where,
            hint=f"name the clients by their numbers (0 to {count - 1}) in a column client_id",
        )
    likeliest = max(kinds, key=lambda kind: len(number_of[kind].keys() & set(clients)))
    unknown = [name for name in clients if name not in number_of[likeliest]]
    if len(unknown) < len(clients) / 2:
        kind = _KINDS[likeliest]
        raise UserError(
            f"{format_names(unknown, _NAMED)}: not among the scenario's {kind}, but most clients of the log are",
            where=where,
            hint=f"its {kind} are {format_names(kinds[likeliest], _NAMED)}",
        )
    unseen = [f"unseen-{number}" for number in range(count - len(clients))]
    flag = (
        f"The log's clients have names that the scenario does not ({format_names(unknown, _NAMED)}): they are paired"
        " with its clients 0, 1, ... in the order of their names. Name them by their numbers (column client_id) if"
        " samples or steps differ between clients."
    )
    return clients + unseen, [flag]
