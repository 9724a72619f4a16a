"""The LaTeX table of a comparison."""

from __future__ import annotations

import itertools
import math
import re
from typing import Any

from fedsim.analysis.comparison import Comparison, Target, compare
from fedsim.analysis.comparison.latex import _time, latex
from fedsim.sweeps import Sweep
from fedsim.vocabulary.formatting import format_mean, format_mean_count, format_number, format_ratio
from tests.analysis.comparison.compared import SETTINGS, VARIANTS, row
from tests.analysis.comparison.made import of
from tests.analysis.comparison.test_groups import facts

_COMMANDS = {
    *("begin", "end", "toprule", "midrule", "cmidrule", "bottomrule", "multicolumn"),
    *("textit", "scriptsize", "pm", "times"),
}


def _lines(text: str) -> list[str]:
    """The lines of a table, whose rows all have its columns and whose commands are those of booktabs and LaTeX."""
    caption, begin, *lines, end = text.splitlines()
    assert caption.startswith("% ")
    assert end == r"\end{tabular}"
    commands = re.findall(r"\\([a-z]+)", "\n".join([begin, *lines, end]))
    assert set(commands) <= _COMMANDS
    columns = len(re.fullmatch(r"\\begin\{tabular\}\{(lr*)\}", begin)[1])  # type: ignore[index]
    rows = [line for line in lines if line.endswith(r" \\")]
    assert set(lines) - set(rows) <= {r"\toprule", r"\midrule", r"\bottomrule"} | {
        line for line in lines if line.startswith(r"\cmidrule(lr){")
    }
    for line in rows:
        spans = re.findall(r"\\multicolumn\{(\d+)\}", line)
        cells = len(re.split(r"(?<!\\)&", line)) + sum(int(span) - 1 for span in spans)
        assert cells == columns, line
        assert line.count("{") == line.count("}")
    return [begin, *lines]


def test_settings_are_groups_of_rows_and_targets_groups_of_columns(comparison: Comparison) -> None:
    lines = _lines(latex(comparison))
    assert lines[:6] == [
        r"\begin{tabular}{lrrrrrr}",
        r"\toprule",
        r" & \multicolumn{2}{c}{50\% accuracy} & \multicolumn{2}{c}{70\% accuracy} & 99\% accuracy & final \\",
        r"\cmidrule(lr){2-3} \cmidrule(lr){4-5}",
        r" & time (s) & relative & time (s) & relative & time (s) & accuracy (\%) \\",
        r"\midrule",
    ]
    rows = [line.split(" & ")[0] for line in lines[5:-1]]
    assert rows == list(
        itertools.chain.from_iterable(
            [r"\midrule", rf"\multicolumn{{7}}{{l}}{{\textit{{{setting}}}}} \\", *VARIANTS]
            for setting in SETTINGS
        )
    )
    cells = lines[8].removesuffix(r" \\").split(" & ")
    shown = row(comparison.targets, SETTINGS[0], "fedbuff", target=0.5)
    mean, low, high = (f"{shown[name]:.2f}" for name in ("time_s", "time_low_s", "time_high_s"))
    assert cells[1] == rf"{mean} {{\scriptsize [{low}, {high}]}}"
    assert cells[2] == format_ratio(shown["relative"]).replace("×", r"$\times$")
    assert cells[5] == "--"
    last = row(comparison.summary, SETTINGS[0], "fedbuff")
    final = format_mean(last["final_accuracy"], last["final_accuracy_sd"], "share")
    assert cells[6] == final.replace("%", "").replace("±", r"$\pm$")


def test_a_single_target_has_its_client_updates(sweep: Sweep) -> None:
    comparison = compare(sweep.path, targets=["accuracy=0.5"])
    text = latex(comparison)
    lines = _lines(text)
    assert lines[4] == (
        r" & time (s) & relative & client updates & updates per hour & accuracy (\%) \\"
    )
    shown = row(comparison.targets, SETTINGS[0], "fedbuff")
    assert lines[8].split(" & ")[3:5] == [
        format_mean_count(shown["client_updates"]),
        format_number(shown["client_updates_per_h"]),
    ]
    assert "per hour of the mean time" in text


def test_numbers_are_rounded_as_on_the_page() -> None:
    runs = []
    for name, end_s, accuracy in (("a", 160.0, 0.90625), ("b", 100.0, 0.8)):
        scenario = {"server": {"method": {"name": name}}}
        runs.append(facts(scenario, 0, name, (0.0, end_s), (0.0, accuracy)))
    lines = _lines(latex(of(*runs, goals=(Target("accuracy", 0.7), Target("accuracy", 0.75)))))
    assert lines[-2] == r"b & 1.67 & 0.63$\times$ & 1.67 & 0.63$\times$ & 80.0 \\"
    assert lines[-3] == r"a & 2.67 & 1.00$\times$ & 2.67 & 1.00$\times$ & 90.6 \\"


def test_names_cannot_break_the_table() -> None:
    names = ["[a]", "50% & _{", r"FedAvg $\alpha_1$", "~^\\"]
    runs = []
    for name in names:
        runs.append(facts({"server": {"method": {"name": name}}}, 0, name, (0.0,), (0.5,)))
    lines = latex(of(*runs)).splitlines()
    assert [line.rpartition(" & ")[0] for line in lines[6:10]] == [
        "{}[a]",
        r"50\% \& \_\{",
        r"FedAvg $\alpha_1$",
        r"\textasciitilde{}\textasciicircum{}\textbackslash{}",
    ]


def test_a_mean_over_some_of_the_seeds_is_marked() -> None:
    row: dict[Any, Any] = {"time_s": 90.0, "time_low_s": math.nan, "time_high_s": math.nan}
    assert _time({**row, "reached": 2, "runs": 2}, 60, 1) == "1.5"
    assert _time({**row, "reached": 1, "runs": 2}, 60, 1) == r"1.5 {\scriptsize [1/2]}"
    some = {**row, "time_low_s": 60.0, "time_high_s": 97.5, "reached": 3, "runs": 4}
    assert _time(some, 60, 2) == r"1.50 {\scriptsize [1.00, 1.63] [3/4]}"
