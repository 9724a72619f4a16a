"""Matrices of round-trip times: n lines of n numbers, separated by tabs, blanks or commas.

Sources in this form: PlanetLab (ms) and Seattle (s) in Zhu, Liu, Niu, Li, Zhao, IEEE/ACM ToN 2017; WonderNetwork (ms).
None of these files gives its unit.
"""

from __future__ import annotations

import warnings
from typing import Literal

import numpy as np

from fedsim.files.cells import Bounds
from fedsim.files.frames import Frame, TableFile
from fedsim.files.sources import SourceFile, Sources
from fedsim.traces.importers import Imported, Importer, ImporterParams
from fedsim.traces.tables import id_column
from fedsim.vocabulary.arrays import Floats
from fedsim.vocabulary.formatting import format_duration

_FACTOR = {"ms": 1e-3, "s": 1.0}
# Median round-trip times of real networks lie within these bounds.
_PLAUSIBLE_S = (1e-4, 10.0)
_FINITE = Bounds(0, 1e30)
"""What is finite in 32 bits."""


class RttMatrix(Importer):
    """One table of pairs; of several files, each of them a slice of time, the median of each pair counts.

    The diagonal is left out. A cell that is 0 off the diagonal, empty, ``-`` or ``nan`` is unknown and has no row. The
    nodes n0, n1, ... are the devices.
    """

    name = "rtt_matrix"
    description = "RTT matrices (PlanetLab, Seattle, WonderNetwork): n lines of n"

    class Params(ImporterParams):
        """Options of the RTT matrix importer."""

        unit: Literal["ms", "s"]
        """Unit of the numbers (PlanetLab and WonderNetwork: ms; Seattle: s)."""

    @classmethod
    def read(cls, sources: Sources, params: Params) -> Imported:
        """One device per node, one row per known pair."""
        files = list(sources)
        slices = [_matrix(file) * _FACTOR[params.unit] for file in files]
        nodes = len(slices[0])
        for file, matrix in zip(files, slices, strict=True):
            if len(matrix) != nodes:
                message = f"has {len(matrix)} nodes, but {files[0].where} has {nodes}"
                raise file.error(message, "all slices of a network have the same nodes")
        stack = np.stack(slices)
        off = ~np.eye(nodes, dtype=bool)
        counts = {
            "slices": len(slices),
            "zero_off_diagonal": int(np.count_nonzero((stack == 0) & off)),
            "missing_cells": int(np.count_nonzero(np.isnan(stack) & off)),
        }
        stack = np.where(off & (stack > 0), stack, np.nan)
        if np.isnan(stack).all():
            raise sources.error("gives no round-trip time between two nodes")
        median_s = float(np.nanmedian(stack))
        if not _PLAUSIBLE_S[0] <= median_s <= _PLAUSIBLE_S[1]:
            other = "s" if params.unit == "ms" else "ms"
            raise sources.error(
                f"the median round-trip time would be {format_duration(median_s)}",
                f"the numbers do not seem to be in {params.unit}; try unit={other}",
            )
        with warnings.catch_warnings():
            # A pair that is unknown in all files stays unknown.
            warnings.filterwarnings("ignore", message="All-NaN slice")
            matrix = np.nanmedian(stack, axis=0)
        counts["unknown_pairs"] = int(np.count_nonzero(np.isnan(matrix) & off))
        src, dst = np.nonzero(~np.isnan(matrix))
        ids = [f"n{node}" for node in range(nodes)]
        rows = {"src": id_column(src, ids), "dst": id_column(dst, ids)}
        rows["rtt_s"] = matrix[src, dst].astype(np.float32)
        tables = {"devices": {"device_id": ids, "group": ids}, "rtt_matrix": rows}
        return Imported(tables, counts)


def _matrix(source: SourceFile) -> Floats:
    file = TableFile(source, header=False)
    names = [name for name in file.names if name]
    hint = "an RTT matrix has n lines of n numbers, for at least two nodes"
    lines = sum(1 for _ in source.lines("#"))
    if len(names) > 2 * max(lines, 2):  # Reading so many columns would take long.
        raise source.error(f"has {lines} lines of {len(names)} numbers", hint)
    frame = Frame([file]).load(names)
    columns = [frame.number(name, 1.0, _FINITE) for name in names]
    # A line may end with a tab.
    while columns and len(columns) > len(frame) and np.isnan(columns[-1]).all():
        columns.pop()
    if len(frame) < 2 or len(frame) != len(columns):
        raise source.error(f"has {len(frame)} lines of {len(columns)} numbers", hint)
    matrix = np.column_stack(columns)
    first, rest = matrix[0, 1:], matrix[1:, 1:]
    # Round-trip times from node 0 are as symmetric as names, but seldom in order and whole, beside others that are not.
    rises = len(first) > 2 and (np.diff(first) > 0).all() and not (first % 1).any()
    is_named = np.isnan(matrix[0, 0]) and not np.isnan(np.diag(rest)).any()
    is_named |= rises and ((np.diff(first) == 1).all() or bool((np.nan_to_num(rest) % 1).any()))
    if is_named and (first == matrix[1:, 0]).all():
        hint = "remove them: the cells are those of the matrix alone"
        raise source.error("numbers its nodes in the first line and in the first column", hint)
    return matrix
