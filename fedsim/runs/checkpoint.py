"""Checkpoints of the learning plane: named tensors and a little state, replaced as a whole.

Torch is imported only when tensors are saved or loaded, so that timing-only runs do not need it.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Json
from typing_extensions import TypedDict

from fedsim.errors import UserError
from fedsim.files.checksums import file_crc32
from fedsim.files.documents import parsed
from fedsim.files.durable import (
    TEMPORARY_PREFIX,
    remove_matching,
    remove_temporaries,
    replacing,
    replacing_folder,
)
from fedsim.files.records import Record, entries
from fedsim.runs.records import RUN, Amount, Count
from fedsim.vocabulary.formatting import format_word

if TYPE_CHECKING:
    from torch import Tensor

_TENSORS = "tensors-{}.safetensors"
# Tensors are written in files of about this size, so that they need not all be in memory.
_FILE_BYTES = 128 << 20
# Tensors of a model have dots in their names, no slashes.
_PERSONAL = "personal/"
_KEPT = 2


@entries
class _Reached(TypedDict, total=False):
    version: Count
    simulated_s: Amount
    share: Amount


@entries
class _State(TypedDict):
    run: str
    """SHA-256 of the scenario file of the run."""
    tensors: list[str]
    """CRC-32 of the files of tensors."""
    state: Json[_Reached]
    """JSON text, because what was measured need not be finite."""


STATE = Record("state.json", 1, _State, hint=RUN.hint)


class Checkpoints:
    """The newest two checkpoints of a run, in a separate folder.

    A checkpoint appears whole, by a rename, before the second-to-last one is removed. Each contains the checksums of
    its files, so that damage to the newer one is noticed and the older one is used. One of another run is damaged.

    Args:
        path: ``checkpoint/`` of the run folder; created by the first save.
        run: SHA-256 of the scenario file of the run.
    """

    def __init__(self, path: str | os.PathLike[str], run: str) -> None:
        self.path = Path(path)
        self._run = run

    def _numbered(self) -> list[Path]:
        # A folder that may not be read is an error, not one without checkpoints.
        names = os.listdir(self.path) if self.path.is_dir() else []
        return [self.path / name for name in sorted(filter(str.isdecimal, names), key=int)]

    def save(self, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        """Add a checkpoint, and remove all but the one before it.

        Args:
            tensors: any shapes and types, on any device; read one after the other.
            state: what JSON can hold; floats survive exactly.
        """
        earlier = self._numbered()
        number = int(earlier[-1].name) + 1 if earlier else 1
        if not self.path.is_dir():
            self.path.unlink(missing_ok=True)  # No checkpoint is in what is there instead.
        self.path.mkdir(parents=True, exist_ok=True)
        remove_temporaries(self.path)
        with replacing_folder(self.path / str(number)) as folder:
            checksums: list[str] = []
            for batch in _batches(tensors):
                path = folder / _TENSORS.format(len(checksums))
                save_tensors(path, batch)
                checksums.append(file_crc32(path))
            content = {"run": self._run, "tensors": checksums, "state": json.dumps(state)}
            STATE.write(folder, content)
        for path in earlier[: 1 - _KEPT]:
            # Under another name, because a process that is killed may leave a part of it.
            shutil.rmtree(
                path.rename(path.with_name(f"{TEMPORARY_PREFIX}{path.name}")), ignore_errors=True
            )

    def load(self, device: str = "cpu") -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """The newest checkpoint that is undamaged; None if there is none.

        Raises:
            UserError: there are checkpoints, all of them damaged.
        """
        numbered = self._numbered()
        for path in reversed(numbered):
            try:
                content = self._intact(path)
                tensors: dict[str, Tensor] = {}
                for number in range(len(content["tensors"])):
                    tensors |= load_tensors(path / _TENSORS.format(number), device)
                return tensors, parsed(content["state"])
            except (OSError, ValueError, UserError):
                continue
        if numbered:
            raise UserError(
                "every checkpoint is damaged",
                where=self.path,
                hint=f"resume from the start: rm -r {format_word(str(self.path))}, then repeat the command",
            )
        return None

    def newest_state(self) -> dict[str, Any]:
        """The state of the newest checkpoint whose state can be read, without its tensors; empty if there is none."""
        for path in reversed(self._numbered()):
            with contextlib.suppress(OSError, ValueError, UserError):
                state: dict[str, Any] = parsed(STATE.read(path)["state"])
                return state
        return {}

    def damaged(self) -> list[tuple[Path, str]]:
        """Every file of a checkpoint that is missing or has changed, with the problem."""
        problems = []
        for path in self._numbered():
            try:
                self._intact(path)
            except UserError as error:
                problems.append((Path(error.where or path), error.message))
        return problems

    def remove(self) -> None:
        """Remove the checkpoints and the scenario beside them, and the folder if nothing else is in it."""
        with contextlib.suppress(OSError):
            numbers = [path.name for path in self._numbered()]
            remove_matching(self.path, [*numbers, "scenario.yaml", f"{TEMPORARY_PREFIX}*"])

    def _intact(self, path: Path) -> dict[str, Any]:
        with STATE.reading(path / STATE.file):
            content = STATE.read(path)
        if content["run"] != self._run:
            raise STATE.damaged(path / STATE.file, "belongs to the checkpoint of another run")
        for number, expected in enumerate(content["tensors"]):
            file = path / _TENSORS.format(number)
            with STATE.reading(file):
                checksum = file_crc32(file)
            if checksum != expected:
                raise STATE.damaged(file, "has changed since fedsim wrote it")
        return content


def _batches(tensors: Mapping[str, Tensor]) -> Iterator[dict[str, Tensor]]:
    batch: dict[str, Tensor] = {}
    size = 0
    for name in tensors:
        value = tensors[name]
        if batch and size + value.nbytes > _FILE_BYTES:
            yield batch
            batch, size = {}, 0
        batch[name] = value
        size += value.nbytes
    if batch:
        yield batch


def save_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write tensors as a safetensors file, which appears whole or not at all."""
    from safetensors.torch import save_file

    ready: dict[str, Tensor] = {}
    seen: set[int] = set()
    for name, tensor in tensors.items():
        value = tensor.detach().cpu().contiguous()
        storage = value.untyped_storage()
        # safetensors refuses tensors that share memory, and writes the whole storage of a view.
        if storage.data_ptr() in seen or storage.nbytes() != value.numel() * value.element_size():
            value = value.clone()
        seen.add(value.untyped_storage().data_ptr())
        ready[name] = value
    # safetensors makes files that only their owner may read; ``replacing`` sets the usual permissions.
    with replacing(path) as temporary:
        save_file(ready, temporary)


def save_model(path: Path, model: Mapping[str, Tensor], personal: Mapping[str, Tensor]) -> None:
    """Write a global model and personal parts into one safetensors file, which :func:`load_model` reads."""
    save_tensors(path, {**model, **{_PERSONAL + name: value for name, value in personal.items()}})


def load_model(path: Path) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Read the global model and the personal parts from a file of :func:`save_model`."""
    tensors = load_tensors(path)
    personal = {
        name.removeprefix(_PERSONAL): tensors.pop(name)
        for name in list(tensors)
        if name.startswith(_PERSONAL)
    }
    return tensors, personal


def load_tensors(path: Path, device: str = "cpu") -> dict[str, Tensor]:
    """Read a safetensors file."""
    from safetensors.torch import load_file

    with STATE.reading(path):
        tensors: dict[str, Tensor] = load_file(path, device=device)
    return tensors
