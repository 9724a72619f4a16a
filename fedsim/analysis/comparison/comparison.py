"""The comparison of the Python interface: its tables, a figure, and a page with files."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedsim.analysis.comparison.figure import FigureStyle, draw, save
from fedsim.analysis.comparison.latex import latex
from fedsim.analysis.comparison.loading import PAGE, PathLike, load
from fedsim.analysis.comparison.page import render
from fedsim.analysis.comparison.tables import ComparisonTables
from fedsim.analysis.comparison.targets import Target
from fedsim.analysis.pages import real_time, write_page
from fedsim.errors import refused, strings
from fedsim.files.durable import remove_temporaries, replacing, require_new, write_text
from fedsim.files.locks import locked
from fedsim.runs import Run
from fedsim.runs.tables import csv_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def compare(
    paths: Iterable[PathLike | Run] | PathLike | Run,
    *,
    targets: Iterable[str] = (),
    baseline: str | None = None,
    labels: Mapping[str, str] | None = None,
    settings: Iterable[str] = (),
    on_progress: Callable[[int, int], None] | None = None,
) -> Comparison:
    """Compare runs.

    Args:
        paths: run folders, folders of sweeps, folders that contain run folders, or runs; one or several.
        targets: values to reach, such as ``"accuracy=0.9"``; by default those of the reference file, else those of the
            scenarios, else round levels that were reached. Those of one metric are shown from easy to hard.
        baseline: variant that times are relative to; the first one if None.
        labels: other names for variants and settings, by their default names.
        settings: keys of the server section, such as ``"server.selection.cohort"``, whose values name settings instead
            of variants, with all keys below them; by default those of the reference file.
        on_progress: called with the number of runs read and of all runs.
    """
    listed = (
        [paths]
        if isinstance(paths, str | os.PathLike | Run) or not isinstance(paths, Iterable)
        else paths
    )
    given = strings("targets", targets, 'for example targets=["accuracy=0.9"]')
    parsed = [Target.parse(text) for text in given]
    keys = strings("settings", settings, 'for example settings=["server.selection.cohort"]')
    loaded = load(listed, on_progress)
    return Comparison(loaded, targets=parsed, baseline=baseline, labels=labels, settings=keys)


class Comparison(ComparisonTables):
    """A comparison of runs.

    Every table is a pandas frame whose first columns are ``setting`` and ``label`` (the variant).
    """

    def plot(
        self,
        metric: str | Sequence[str] | None = None,
        against: str = "time_s",
        *,
        labels: Mapping[str, str] | None = None,
        **style: Any,
    ) -> Figure:
        """A Matplotlib figure of :meth:`curves`, or of the main figures of timing-only runs, in the colors of the page.

        Args:
            metric: a metric, or several for one panel each; the first one if None.
            against: one of :data:`fedsim.analysis.comparison.facts.COSTS`, such as ``bytes``.
            labels: other names for variants and settings, as for :func:`compare`.
            style: ``xlim``, ``ylim``, ``log``, ``bands``, ``width`` and ``height`` of
                :class:`~fedsim.analysis.comparison.figure.FigureStyle`.
        """
        from fedsim.runs.notebook import show_figures

        if labels:
            return self._relabeled(labels).plot(metric, against, **style)
        show_figures()
        names = [metric] if isinstance(metric, str) or metric is None else metric
        if self.metrics or metric is not None:
            return draw(self, FigureStyle(tuple(map(self.measured, names)), against, **style))
        return draw(self, FigureStyle((), against, **style))

    def write(
        self,
        folder: PathLike,
        style: FigureStyle | None = None,
        *,
        labels: Mapping[str, str] | None = None,
    ) -> Path:
        """Write page, tables and figure into a folder, and return the page's path.

        The files: ``compare.html``, ``summary`` and ``targets`` as ``.csv`` and ``.parquet``, ``table.tex``,
        ``curves.pdf``, ``curves.svg`` and ``curves.png`` (``timing.pdf``, ... of timing-only runs).

        Args:
            folder: the folder.
            style: the figure, and the initial view of the page.
            labels: other names for variants and settings, as for :func:`compare`.
        """
        if labels:
            return self._relabeled(labels).write(folder, style)
        folder, style = Path(folder), style or FigureStyle()
        if self.metrics or style.metrics:
            metrics = map(self.measured, style.metrics or (None,))
            style = dataclasses.replace(style, metrics=tuple(metrics))
        page, stem = folder / PAGE, "curves" if self.metrics else "timing"
        tables = {"summary": self.summary, "targets": self.targets}
        texts = {f"{name}.csv": csv_text(frame) for name, frame in tables.items() if len(frame)}
        texts["table.tex"] = latex(self)
        figures = [folder / f"{stem}.{suffix}" for suffix in ("pdf", "svg", "png")]
        for path in [*(folder / name for name in texts), *figures]:
            if not page.exists():  # Then these files are not those of a comparison.
                require_new(path, "choose another folder with -o, or remove the file")
        figure = draw(self, style)
        text = render(self, style)
        is_real = any(facts.scenario["clock"] != "simulated" for facts in self.facts)
        with refused("cannot be written", folder), locked(folder, kept=False):
            remove_temporaries(folder)
            write_page(page, real_time(text) if is_real else text)
            for name, text in texts.items():
                write_text(folder / name, text)
            for name, frame in tables.items():
                if len(frame):
                    with replacing(folder / f"{name}.parquet") as temporary:
                        frame.to_parquet(temporary, index=False)
            save(figure, figures, style)
        return page

    def _relabeled(self, labels: Mapping[str, str]) -> Comparison:
        """The same comparison with other names for variants and settings, by their default names."""
        default = {new: old for old, new in self.renamed.items()}.get(self.baseline, self.baseline)
        return Comparison(
            (self.facts, self.left_out, self.reference),
            targets=self.goals,
            baseline={**self.renamed, **labels}.get(default, default),
            labels={**self.labels, **labels},
            settings=self.requested,
        )

    def _repr_html_(self) -> str:
        shown = self.targets if self.goals else self.summary
        return str(shown.to_html(index=False))

    def __repr__(self) -> str:
        return f"<Comparison: {len(self.facts)} runs, {len(self.groups)} groups>"
