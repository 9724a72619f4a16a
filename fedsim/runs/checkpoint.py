"""Checkpoints of the learning plane: named tensors and a little state, replaced as a whole.

Torch is imported only when tensors are saved or loaded, so that timing-only runs do without it.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedsim.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

_TENSORS = "tensors-{}.safetensors"
# Tensors are written in files of about this size, so that they need not all be in memory.
_FILE_BYTES = 128 << 20
# Tensors of a model have dots in their names, no slashes.
_PERSONAL = "personal/"
_STATE = "state.json"


class Checkpoints:
    """The newest checkpoint of a run, in a folder of its own.

    A checkpoint is written beside the last one and takes its place by a rename, so that one good
    checkpoint exists at every moment.

    Args:
        path: ``checkpoint/`` of the run folder; created by the first save.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def _numbered(self) -> list[Path]:
        if not self.path.is_dir():
            return []
        return sorted(
            (p for p in self.path.iterdir() if p.name.isdecimal()), key=lambda p: int(p.name)
        )

    def save(self, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        """Replace the checkpoint.

        Args:
            tensors: any shapes and types, on any device; asked for one after the other.
            state: what JSON can hold; floats survive exactly.
        """
        earlier = self._numbered()
        number = int(earlier[-1].name) + 1 if earlier else 1
        temporary = self.path / f"{number}.part"
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        files = 0
        for some in _batches(tensors):
            save_tensors(temporary / _TENSORS.format(files), some)
            files += 1
        state = {"files": files, "state": state}
        (temporary / _STATE).write_text(json.dumps(state), encoding="utf-8")
        temporary.rename(self.path / str(number))
        for path in earlier:
            shutil.rmtree(path)

    def load(self, device: str = "cpu") -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """The newest checkpoint that reads whole; None where there is none.

        Args:
            device: where the tensors are put.

        Raises:
            UserError: there are checkpoints, all of them damaged.
        """
        numbered = self._numbered()
        for path in reversed(numbered):
            try:
                state = json.loads((path / _STATE).read_text(encoding="utf-8"))
                tensors: dict[str, Tensor] = {}
                for number in range(state["files"]):
                    tensors |= load_tensors(path / _TENSORS.format(number), device)
                return tensors, state["state"]
            except (OSError, ValueError, KeyError, UserError):
                continue
        if numbered:
            raise UserError(
                "no checkpoint in it can be read",
                where=str(self.path),
                hint="remove this folder to resume from the start",
            )
        return None

    def remove(self) -> None:
        """Delete the folder; the run is complete."""
        shutil.rmtree(self.path, ignore_errors=True)


def _batches(tensors: Mapping[str, Tensor]) -> Iterator[dict[str, Tensor]]:
    """The tensors in their order, as many together as make a file."""
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
    """Write tensors as safetensors such that the file appears whole or not at all."""
    from safetensors.torch import save_file

    ready: dict[str, Tensor] = {}
    seen: set[int] = set()
    for name, tensor in tensors.items():
        value = tensor.detach().cpu().contiguous()
        storage = value.untyped_storage()
        # safetensors refuses tensors that share memory, and would write the whole of it for a view.
        if storage.data_ptr() in seen or storage.nbytes() != value.numel() * value.element_size():
            value = value.clone()
        seen.add(value.untyped_storage().data_ptr())
        ready[name] = value
    temporary = path.with_name(f".{path.name}.part")
    save_file(ready, temporary)
    # safetensors makes files that only their owner may read.
    os.chmod(temporary, 0o644)
    os.replace(temporary, path)


def save_model(path: Path, model: Mapping[str, Tensor], personal: Mapping[str, Tensor]) -> None:
    """Write a global model and personal parts into one safetensors file; :func:`load_model` takes them apart."""
    save_tensors(path, {**model, **{_PERSONAL + name: value for name, value in personal.items()}})


def load_model(path: Path) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """What :func:`save_model` wrote: the global model, and the personal parts.

    Raises:
        UserError: the file is missing or damaged.
    """
    tensors = load_tensors(path)
    personal = {
        name.removeprefix(_PERSONAL): tensors.pop(name)
        for name in list(tensors)
        if name.startswith(_PERSONAL)
    }
    return tensors, personal


def load_tensors(path: Path, device: str = "cpu") -> dict[str, Tensor]:
    """Read a safetensors file.

    Raises:
        UserError: the file is missing or damaged.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        tensors: dict[str, Tensor] = load_file(path, device=device)
    except (OSError, SafetensorError) as error:
        raise UserError(
            f"cannot be read: {error}",
            where=str(path),
            hint="the file is damaged; repeat the run, or restore the file from a copy",
        ) from error
    return tensors
