"""The trace bundle: a folder with ``manifest.json`` and Parquet tables, the one format of all traces in fedsim.

A bundle records when devices were available, how fast they computed, and how fast their links were. See
:mod:`fedsim.traces.tables` for the tables and :mod:`fedsim.traces.validation` for the rules of a sound bundle.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from fedsim import bundled
from fedsim.errors import UserError, located, printable, refused
from fedsim.files.cells import time_zone
from fedsim.files.checksums import file_sha256, is_unchanged, require_regular, stamped
from fedsim.files.documents import parsed
from fedsim.files.durable import replacing_folder, require_new
from fedsim.files.room import open_parquet
from fedsim.traces.parameters import OnEnd
from fedsim.traces.tables import MOST_US, TABLES, filled, make_table, single_chunk, to_numpy
from fedsim.vocabulary.arrays import Array, Bools, Ints

_Format = Literal["fedsim.trace/1"]
SCHEMA: _Format = "fedsim.trace/1"
MANIFEST_NAME = "manifest.json"
MANIFEST_DIGEST = "manifest_sha256"
_NAMES = ("name", "epoch", "importer", "importer_version", "written_by")
"""Entries of one line."""
ROW_GROUP_ROWS = 1 << 24
"""Rows per group of a file; each group repeats the names of all devices, so many groups would be slow to read."""


class Eligibility(BaseModel):
    """The meaning of "available" in a bundle."""

    model_config = ConfigDict(extra="forbid")

    words: str
    """The rule in words."""
    expression: str | None = None
    """The rule as an expression over the keys of device_events; null if the rule cannot be applied to them."""


def _known(table: str) -> str:
    if table not in TABLES:
        raise ValueError(f"there is no table {table!r}")
    return table


class Manifest(BaseModel):
    """The origin of a bundle, and how to interpret it."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True, allow_inf_nan=False)

    format: _Format = Field(SCHEMA, alias="schema")
    """Version of the format."""
    name: str
    """Name of the bundle."""
    written_by: str | None = None
    """fedsim and its version."""
    source: str | None = None
    """Repository, commit and path of the source, or the generator."""
    license: str | None = None
    """License of the source."""
    citation: str | None = None
    """How to cite the source."""
    epoch: str | None = None
    """ISO 8601 timestamp of time 0; null: times are relative."""
    clock: Literal["local", "utc", "device-relative"] = "device-relative"
    """Meaning of time 0: local time of each device, UTC, or the start of each device's trace."""
    zone: str | None = None
    """Time zone of local time: an IANA name or an offset from UTC; null: not known."""
    epoch_weekday: int | None = Field(None, ge=0, le=6)
    """Day of the week of time 0; 0 is Monday."""
    horizon_us: int = Field(gt=0, le=MOST_US)
    """Time covered, from 0 (us)."""
    on_end: OnEnd = "wrap"
    """Behavior of a device outside its observation window: it repeats (with its period), keeps its last state, is
    unavailable, or ends the run with an error."""
    eligibility: Eligibility | None = None
    """The meaning of "available"."""
    importer: str
    """Importer or generator that wrote the bundle."""
    importer_version: str
    """Its version."""
    options: dict[str, Any] = {}
    """Its options."""
    command: str | None = None
    """Command line that produces the bundle again."""
    seed: int | None = None
    """Seed of a generated bundle."""
    sha256: dict[Annotated[str, AfterValidator(_known)], str] = {}
    """SHA-256 of each table's file."""
    manifest_sha256: str | None = None
    """SHA-256 of the manifest's other content."""
    counts: dict[str, int] = {}
    """Numbers of rows that the importer dropped or merged, by kind."""
    caveats: list[str] = []
    """Limits of the data, such as devices that were picked rather than drawn at random."""

    @model_validator(mode="after")
    def _is_plain(self) -> Manifest:
        for key, value in self.model_dump().items():
            if printable(value, lines=key not in _NAMES) != value:
                raise ValueError(f"{key} contains a control character: {value!r}")
        if self.epoch is not None:
            datetime.fromisoformat(self.epoch)
        try:
            time_zone(self.zone)
        except UserError as error:
            raise ValueError(f"zone: {error.message}") from error
        return self


@dataclass
class TraceBundle:
    """A trace bundle in memory.

    Args:
        manifest: its origin and interpretation.
        tables: Arrow tables by name; ``devices`` is always present.
        path: folder it was read from, for messages.
        altered: tables whose files have changed since fedsim wrote them, and ``manifest`` if it has changed.
        unverified: tables whose files cannot be checked because the manifest has no SHA-256 of them.
    """

    manifest: Manifest
    tables: dict[str, Any]
    path: Path | None = None
    altered: tuple[str, ...] = ()
    unverified: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if unknown := sorted(set(self.tables) - set(TABLES)):
            hint = f"its tables are: {', '.join(TABLES)}"
            raise UserError(f"a trace bundle has no table {', '.join(unknown)}", hint=hint)
        if "devices" not in self.tables:
            raise self.error("a trace bundle needs a devices table")
        self.tables = {name: self.tables[name] for name in TABLES if name in self.tables}

    @property
    def where(self) -> str:
        """The folder, ``builtin:NAME``, or else the name, for messages."""
        return bundled.written(self.path) if self.path is not None else self.manifest.name

    def error(self, message: str, hint: str | None = None) -> UserError:
        """The error for a mistake in the bundle."""
        return UserError(message, where=self.where, hint=hint)

    def import_again(self, option: str, value: str | None = None) -> str:
        """How to correct the unit of its values: by this option, if its importer has it."""
        if option not in self.manifest.options:
            return "correct its source, and import it again"
        return f"import it again with -s {option}={value or '...'}"

    @property
    def devices(self) -> Any:
        """The table of devices."""
        return self.tables["devices"]

    @property
    def epoch(self) -> datetime | None:
        """Time 0; None if times are relative."""
        epoch = self.manifest.epoch
        return None if epoch is None else datetime.fromisoformat(epoch)

    @property
    def device_count(self) -> int:
        """Number of devices."""
        return int(self.devices.num_rows)

    @property
    def device_ids(self) -> Any:
        """Names of the devices, an Arrow string array in row order."""
        return single_chunk(self.devices.column("device_id"))

    @property
    def valid(self) -> Bools:
        """Whether each device has a usable trace, shape (devices,); true if that is unknown."""
        valid = single_chunk(self.devices.column("valid"))
        return filled(valid.cast(pa.int8()), 1).view(np.bool_)

    @property
    def windows(self) -> tuple[Ints, Ints]:
        """Start and end (us) of each device's observation window, shape (devices,) each."""
        return self.numpy("devices", "window_start_us"), self.numpy("devices", "window_end_us")

    def has(self, table: str, column: str) -> bool:
        """Whether the bundle has the table, and the table has the column."""
        return table in self.tables and column in self.tables[table].column_names

    def table(self, name: str) -> Any:
        """The table ``name``; refuses a bundle without it."""
        if name not in self.tables:
            names = ", ".join(sorted(self.tables))
            raise self.error(f"the trace bundle has no table {name}", f"its tables are: {names}")
        return self.tables[name]

    def numpy(self, table: str, column: str) -> Array:
        """A numeric column as a numpy array, without a copy if Arrow allows it; nulls of floats become NaN."""
        return to_numpy(single_chunk(self.table(table).column(column)))

    def text_codes(self, table: str, column: str) -> tuple[Ints, list[str]]:
        """A text column as the index of each row's word (-1 if null), and the words."""
        values = self.table(table).column(column)
        if not pa.types.is_dictionary(values.type):
            values = values.dictionary_encode()
        encoded = values.unify_dictionaries().combine_chunks()
        codes = filled(encoded.indices, -1).astype(np.int64)
        return codes, encoded.dictionary.to_pylist()

    def texts(self, table: str, column: str) -> npt.NDArray[np.object_]:
        """A text column as Python strings, (rows,); None if a value is unknown or the column is absent."""
        if not self.has(table, column):
            return np.full(len(self.table(table)), None, dtype=object)
        codes, words = self.text_codes(table, column)
        return np.array([*words, None], dtype=object)[codes]

    def device_rows(self, table: str) -> Ints:
        """Row number in ``devices`` of each row of ``table``; -1 if the id is null or not a device. Shape (rows,)."""
        column, ids = self.table(table).column("device_id"), self.device_ids
        if not pa.types.is_dictionary(column.type):
            column = column.dictionary_encode()
        parts = []
        for chunk in column.chunks:
            # fedsim writes the device ids themselves as the dictionary, which saves the lookup.
            if chunk.dictionary.equals(ids):
                codes = np.arange(len(ids), dtype=np.int64)
            else:
                rows = pc.index_in(chunk.dictionary, value_set=ids)
                codes = filled(rows, -1).astype(np.int64)
            codes = np.append(codes, -1)
            parts.append(codes[filled(chunk.indices, len(codes) - 1)])
        return np.concatenate(parts) if parts else np.zeros(0, np.int64)

    @classmethod
    def read(
        cls, path: Path | str, *, tables: Collection[str] | None = None, verify: bool = True
    ) -> TraceBundle:
        """Read a bundle, and compare each file with its SHA-256 in the manifest.

        Args:
            path: its folder.
            tables: read only these (and ``devices``); by default all.
            verify: refuse a file that has changed since it was written; otherwise it is listed in ``altered``.
        """
        path = Path(path)
        manifest, changed = _read_manifest(path)
        loaded, altered, unverified = {}, [], []
        if changed:
            altered.append("manifest")
            if verify:
                raise _altered(path / MANIFEST_NAME, manifest)
        for name in TABLES:
            if tables is not None and name not in tables and name != "devices":
                continue
            file = table_path(path, name)
            digest = manifest.sha256.get(name)
            if not file.is_file():
                if name == "devices" or digest is not None or os.path.lexists(file):
                    raise _altered(file, manifest)
                continue
            content = file.read_bytes()
            if digest is None:
                unverified.append(name)
            elif hashlib.sha256(content).hexdigest() != digest:
                altered.append(name)
                if verify:
                    raise _altered(file, manifest)
            trusted = name not in altered and name not in unverified
            loaded[name] = _parse_table(content, file, name, trusted=trusted)
            for key in loaded[name].column_names if verify else ():
                if loaded[name].column(key).null_count and not TABLES[name].columns[key].nullable:
                    message = f"values of {key} are missing"
                    raise UserError(message, where=file, hint="create the bundle again")
        # After decoding, the pool holds twice the memory that the tables need.
        pa.default_memory_pool().release_unused()
        return cls(manifest, loaded, path, tuple(altered), tuple(unverified))

    def write(self, path: Path | str, *, overwrite: bool = False) -> None:
        """Write the bundle as a folder, completely or not at all.

        The bytes of every file are a function of the bundle alone. The manifest's SHA-256 sums and ``written_by`` are
        filled in. Everything is flushed to disk before an existing bundle is deleted and the folder gets its name. A
        ``path`` that exists is refused, unless it is a bundle that ``overwrite`` may replace.
        """
        path = Path(path)
        check_output(path, overwrite=overwrite)
        # A symbolic link stays; the folder that it points to is replaced.
        folder = path.resolve()
        with refused("the trace bundle cannot be written", path), replacing_folder(folder) as new:
            digests = {}
            for name, table in self.tables.items():
                table = make_table(name, {key: table.column(key) for key in table.column_names})
                file, schema = table_path(new, name), table.schema
                integers = [field.name for field in schema if field.type == pa.int64()]
                pq.write_table(
                    table.replace_schema_metadata({"table": name, "schema": SCHEMA}),
                    file,
                    compression="zstd",
                    row_group_size=ROW_GROUP_ROWS,
                    use_dictionary=[f.name for f in schema if pa.types.is_dictionary(f.type)],
                    column_encoding=dict.fromkeys(integers, "DELTA_BINARY_PACKED"),
                    dictionary_pagesize_limit=1 << 26,
                )
                digests[name] = file_sha256(file)
            self.manifest = self.manifest.model_copy()  # Others may share it.
            self.manifest.sha256 = digests
            self.manifest.written_by = f"fedsim {package_version()}"
            content = self.manifest.model_dump(mode="json", by_alias=True)
            document = stamped(content, MANIFEST_DIGEST)
            self.manifest.manifest_sha256 = document[MANIFEST_DIGEST]
            (new / MANIFEST_NAME).write_bytes(f"{json.dumps(document, indent=2)}\n".encode())
            if folder.exists():
                shutil.rmtree(folder)
        self.path = path


def table_path(folder: Path, name: str) -> Path:
    """File of a table in a bundle's folder."""
    return folder / f"{name}.parquet"


def package_version() -> str:
    """Version of fedsim, for the manifests it writes."""
    try:
        return version("fedsim-des")
    except PackageNotFoundError:
        return "source"


def check_output(path: Path, *, overwrite: bool) -> None:
    """Refuse a path that exists; with ``overwrite``, one that contains more than a trace bundle.

    A folder that a shell or this process is in is also refused: it would be replaced by another folder.
    """
    if Path.cwd().is_relative_to(os.path.realpath(path)):
        message, hint = "is the current folder", f"name a folder in it, such as {path / 'traces'}"
        raise UserError(message, where=path, hint=hint)
    above = next(each for each in path.absolute().parents if each.exists())
    if not (above.is_dir() and os.access(above, os.W_OK)):
        message, hint = "is not a folder in which you may write", "name another output"
        raise UserError(message, where=above, hint=hint)
    if not os.path.lexists(path) or (path.is_dir() and not any(path.iterdir())):
        return
    known = {MANIFEST_NAME, *(table_path(path, name).name for name in TABLES)}
    try:
        _read_manifest(path)
    except UserError:
        message = "exists and is not a trace bundle, so it is not replaced"
        raise UserError(message, where=path, hint="name another folder") from None
    if others := sorted({item.name for item in path.iterdir()} - known):
        message = f"contains other files than a trace bundle: {', '.join(others[:5])}"
        hint = "move them elsewhere, or name another folder; they will not be replaced"
        raise UserError(message, where=path, hint=hint)
    if not overwrite:
        require_new(path, "name another folder, or use --force to replace the trace bundle")


def compare_files(folder: Path) -> tuple[int, list[UserError], bool]:
    """Compare a bundle's files with their SHA-256 sums.

    Returns:
        The number of files compared, one error per file that is missing or has changed, and whether every file
        (including the manifest) has a checksum.
    """
    manifest, changed = _read_manifest(folder)
    problems = [_altered(folder / MANIFEST_NAME, manifest)] if changed else []
    present = {name for name in TABLES if os.path.lexists(table_path(folder, name))}
    for name in sorted(present | manifest.sha256.keys()):
        file, digest = table_path(folder, name), manifest.sha256.get(name)
        if not file.is_file() or digest not in (None, file_sha256(file)):
            problems.append(_altered(file, manifest))
    sealed = manifest.manifest_sha256 is not None
    is_listed = present <= manifest.sha256.keys()
    return max(len(manifest.sha256) + sealed, len(problems)), problems, sealed and is_listed


def _altered(file: Path, manifest: Manifest) -> UserError:
    """The error for a file that is missing or has changed."""
    message = f"the table {file.stem} of this trace bundle is missing"
    if file.is_file():
        message = (
            "the file has changed since fedsim wrote it: its SHA-256 differs from the manifest's"
        )
    elif os.path.lexists(file):
        message = "is not a regular file"
    hint = "copy the bundle again, or create it again"
    if manifest.command is not None:
        # Words of somebody else, perhaps.
        hint += f"; its manifest says how it was created: {manifest.command!r}"
    return UserError(message, where=file, hint=hint)


def _read_manifest(folder: Path) -> tuple[Manifest, bool]:
    """The manifest in a bundle's folder, and whether it has changed since fedsim wrote it."""
    file = folder / MANIFEST_NAME
    if not folder.exists():
        hint = bundled.suggested_trace(folder)
        raise UserError("no such trace bundle", where=bundled.written(folder), hint=hint)
    if not file.exists():
        message = f"is not a trace bundle: it has no {MANIFEST_NAME}"
        hint = "create one with `fedsim traces import` or `fedsim traces synthesize`"
        raise UserError(message, where=folder, hint=hint)
    hint = "import the trace again, or upgrade fedsim if a later version wrote the bundle"
    with refused("the manifest cannot be read", file, hint, (ValueError, OSError)):
        require_regular(file)
        content = parsed(file.read_text(encoding="utf-8"))
        manifest = Manifest.model_validate(content)
    return manifest, bool(manifest.manifest_sha256) and not is_unchanged(content, MANIFEST_DIGEST)


def _parse_table(content: bytes, file: Path, name: str, *, trusted: bool) -> Any:
    """The table in the bytes of a Parquet file; every value is checked unless a digest shows that it is unchanged."""
    # The decoder fails on damaged files in many ways: IndexError, ValueError, OverflowError ...
    hint = "the file is truncated or not Parquet; copy the bundle or create it again"
    with refused("the table cannot be read", file, hint, Exception):
        table = open_parquet(pa.py_buffer(content), file).read()
        if not trusted:
            table.validate(full=True)
        with located(file):
            return make_table(name, {key: table.column(key) for key in table.column_names})
