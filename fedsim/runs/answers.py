"""The log of what the learning plane answered to the time plane.

Where a decision in simulated time depends on a learned value (stop at a target accuracy, selection
by loss), the value is written down. Replaying the time plane with these answers needs no training,
which is how a run is resumed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO

from fedsim.errors import InvariantViolation, UserError

Key = int | str | Sequence[int]
Values = Mapping[str, float] | Sequence[float]


class AnswerLog:
    """An append-only file with one JSON object a line: ``kind``, ``key``, ``values``.

    Numbers survive exactly (shortest text that reads back to the same float64; NaN and infinities
    included). Each line is flushed, so that a killed process loses at most the line it was writing;
    opening the log removes such a part line.

    Args:
        path: the file; created if it does not exist.

    Raises:
        UserError: a line other than the last is damaged.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._known: dict[tuple[str, str], dict[str, float] | list[float]] = {}
        self._file: IO[bytes] = open(self.path, "ab+")  # noqa: SIM115 - closed by close()
        self._file.seek(0)
        whole = 0
        for number, line in enumerate(self._file, start=1):
            if not line.endswith(b"\n"):
                break
            try:
                entry = json.loads(line)
                self._known[entry["kind"], _text(entry["key"])] = entry["values"]
            except (ValueError, KeyError, TypeError):
                self._file.close()
                raise UserError(
                    "is not an answer of the learning plane",
                    where=f"{self.path}:{number}",
                    hint="the file is damaged; run the scenario again instead of resuming",
                ) from None
            whole += len(line)
        self._file.truncate(whole)

    def __len__(self) -> int:
        return len(self._known)

    def get(self, kind: str, key: Key) -> dict[str, float] | list[float] | None:
        """The recorded answer, or None where the learning plane has not been asked this yet."""
        return self._known.get((kind, _text(key)))

    def record(self, kind: str, key: Key, values: Values) -> None:
        """Write an answer down; writing the same answer again changes nothing.

        Raises:
            InvariantViolation: the recorded answer to the same question differs.
        """
        plain = (
            {name: float(value) for name, value in values.items()}
            if isinstance(values, Mapping)
            else [float(value) for value in values]
        )
        known = self.get(kind, key)
        if known is not None:
            # Compared as text because NaN differs from itself.
            if _text(known) != _text(plain):
                raise InvariantViolation(
                    f"the learning plane answered {kind} {key} with {plain}, earlier with {known}"
                )
            return
        key_text = _text(key)
        line = f'{{"kind": {json.dumps(kind)}, "key": {key_text}, "values": {_text(plain)}}}\n'
        self._file.write(line.encode())
        self._file.flush()
        self._known[kind, key_text] = plain

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> AnswerLog:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _text(value: Key | Values) -> str:
    if isinstance(value, Sequence) and not isinstance(value, str):
        value = [item.item() if hasattr(item, "item") else item for item in value]
    return json.dumps(value)
