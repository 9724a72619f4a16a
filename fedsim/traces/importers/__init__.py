"""Readers of other trace formats: an :class:`Importer` turns files into the tables of a bundle.

An importer invents nothing: rows that it drops, merges or fills are counted in ``manifest.counts``, and values that the
source does not give are null. Intervals of a bundle are half open; a source with inclusive ends differs only at that
instant.

A user's importer is a class in a Python file, named on the command line as ``file.py:ClassName``.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa

from fedsim.errors import UserError, UserErrors, printable, reason
from fedsim.files.sources import SourceFile as SourceFile
from fedsim.files.sources import Sources as Sources
from fedsim.parts.catalog import CATALOG
from fedsim.parts.component import Component, Parameters, is_bundled, users_line
from fedsim.parts.functions import returned, wrong_return
from fedsim.traces.bundle import Eligibility, Manifest, TraceBundle
from fedsim.traces.parameters import OnEnd
from fedsim.traces.tables import MOST_US, TABLES, make_table
from fedsim.traces.validation import require_sound
from fedsim.units import DAY_US
from fedsim.vocabulary.formatting import format_duration

_ENDINGS = r"(\.(json|pkl|csv|tab|avt|txt|parquet|xlsx|jsonl))?(\.(gz|bz2|xz|zst|zip))?$"


class ImporterParams(Parameters):
    """Options that every importer takes."""

    name: str | None = None
    """Name of the bundle; by default that of its folder."""
    source: str | None = None
    """Repository, commit and path of the source; by default the files' names and SHA-256."""
    license: str | None = None
    """License of the source."""
    citation: str | None = None
    """How to cite the source."""
    caveat: str | None = None
    """Limits of the data, such as devices that were picked rather than drawn at random; kept in the manifest."""


@dataclass(frozen=True)
class Imported:
    """The result of an importer.

    Args:
        tables: tables by name, each an Arrow table or a mapping from column names to lists or arrays, or to one value
            for all rows; see :mod:`fedsim.traces.tables`. NaN in an array of floats is an unknown value. Devices are
            valid, observed from 0 to ``horizon_us``, and named as in the source unless their columns say otherwise.
        counts: numbers of rows dropped, merged or filled, by kind.
        caveats: limits of the data.
        eligibility: what "available" means, in words or as an :class:`~fedsim.traces.bundle.Eligibility`.
        horizon_us: time covered, from 0 (us); by default up to the last end of a device's window, or one day, which
            repeats, if there is none (capacities, scores, latencies).
        epoch, clock, zone, on_end: as in :class:`~fedsim.traces.bundle.Manifest`.
    """

    tables: Mapping[str, Any]
    counts: Mapping[str, int] = field(default_factory=dict)
    caveats: Sequence[str] = ()
    eligibility: Eligibility | str | None = None
    horizon_us: int | None = None
    epoch: str | None = None
    clock: Literal["local", "utc", "device-relative"] = "device-relative"
    zone: str | None = None
    on_end: OnEnd = "wrap"


class Importer(Component, ABC):
    """Base of every importer.

    Attributes:
        description: one line for the list of formats; by default the first line of the docstring.
        version: version of the importer, for the manifest.
        signature: regular expression that matches the name and the first 4 KiB of a file of this format, joined by a
            newline; such files are imported without naming the format. If empty, none are.
        Params: options, a subclass of :class:`ImporterParams`.
    """

    description: ClassVar[str] = ""
    version: ClassVar[str] = "1"
    signature: ClassVar[str] = ""
    Params: ClassVar[type[Parameters]] = ImporterParams

    @classmethod
    @abstractmethod
    def read(cls, sources: Sources, params: Any) -> Imported:
        """Read files of this format.

        Args:
            sources: iterable of the files, unpacked, in order.
            params: an instance of the class's ``Params``.

        Raises:
            UserError: a file is not of this format; names the file, the line or record, and how to fix it.
        """


def recognize(paths: Sequence[Path]) -> list[str]:
    """Names of the formats whose signature matches the first file of ``paths``."""
    first = next(iter(Sources(paths, head=4096)))
    head = f"{first.name}\n{first.data.decode('utf-8', 'replace')}"
    return [
        name
        for name, importer in CATALOG.parts("importer").items()
        if importer.signature and re.search(importer.signature, head)
    ]


def import_bundle(importer: type[Importer], paths: Sequence[Path], params: Any) -> TraceBundle:
    """Import files as one bundle, which is checked.

    Args:
        importer: class of the importer.
        paths: files, folders of files, or zip archives; ``.gz`` files are unpacked.
        params: an instance of the importer's ``Params``.
    """
    sources = Sources(paths)
    try:
        bundle = _imported(importer, sources, paths, params)
    except UserError as error:
        if error.where is None and not isinstance(error, UserErrors):  # of a table of the bundle
            raise sources.error(error.message, error.hint) from error
        raise
    except (
        *(ArithmeticError, AttributeError, LookupError, TypeError, ValueError),
        pa.ArrowException,
    ) as error:
        # The name of a file that is not UTF-8 is no fault of the format.
        is_name = isinstance(error, UnicodeEncodeError) and error.object[error.start] >= "\udc80"
        if users_line(error) is not None or is_name:
            raise
        problem = reason(error)
        if not is_bundled(importer):
            hint = "see fedsim.traces.importers.Imported"
            raise wrong_return(importer, "read", f"no bundle: {problem}", hint) from error
        raise sources.error(
            f"not in the {importer.name} format: {problem}",
            f"'fedsim describe {importer.name}' describes the files, or the download may be incomplete",
        ) from error
    require_sound(bundle, where=sources.where)
    return bundle


def _imported(importer: Any, sources: Sources, paths: Sequence[Path], params: Any) -> TraceBundle:
    imported = returned(importer, "read", importer.read(sources, params), Imported)
    tables = dict(imported.tables)
    if isinstance(devices := tables.get("devices"), Mapping):
        window = {"window_start_us": 0, "window_end_us": imported.horizon_us or DAY_US}
        defaults = {"source_id": devices.get("device_id", ()), "valid": True} | window
        tables["devices"] = {**defaults, **devices}
    for name, table in tables.items():
        if name in TABLES and not isinstance(table, pa.Table):
            tables[name] = make_table(name, table)
    name = params.name or re.sub(_ENDINGS, "", paths[0].name if paths else importer.name)
    eligibility = imported.eligibility
    if isinstance(eligibility, str):
        eligibility = Eligibility(words=eligibility)
    horizon_us = imported.horizon_us
    if horizon_us is None and "devices" in tables:
        horizon_us = int(np.max(tables["devices"].column("window_end_us").to_numpy(), initial=0))
    if horizon_us is not None and horizon_us > MOST_US:
        message = f"covers {format_duration(horizon_us / 1e6)}, more than 142 years"
        raise sources.error(message, "correct its times or their unit")
    bundle = TraceBundle(
        Manifest(
            name=printable(name, lines=False),
            source=printable(params.source or sources.describe()),
            license=params.license,
            citation=params.citation,
            importer=importer.name or importer.__name__,
            importer_version=importer.version,
            options=params.model_dump(mode="json", exclude=set(ImporterParams.model_fields)),
            counts={key: int(value) for key, value in imported.counts.items()},
            caveats=printable([*imported.caveats, *([params.caveat] if params.caveat else [])]),
            horizon_us=horizon_us or 1,
            epoch=imported.epoch,
            clock=imported.clock,
            zone=imported.zone,
            on_end=imported.on_end,
            eligibility=eligibility,
        ),
        tables,
    )
    if bundle.epoch is not None:
        bundle.manifest.epoch_weekday = bundle.epoch.weekday()
    return bundle
