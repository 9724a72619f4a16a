"""The LaTeX table of a comparison."""

import re

from fedsim.analysis.comparison import Comparison, Target, compare
from fedsim.analysis.comparison.latex import latex
from fedsim.sweeps import Sweep
from fedsim.vocabulary.formatting import format_mean, format_mean_count, format_number
from tests.analysis.comparison.compared import SETTINGS, row
from tests.analysis.comparison.made import of
from tests.analysis.comparison.test_groups import facts


def _rows(text: str) -> list[list[str]]:
    """The cells of a table, whose rows all have its columns."""
    caption, begin, *lines, end = text.splitlines()
    assert caption.startswith("% ")
    assert end == r"\end{tabular}"
    columns = len(begin.removeprefix(r"\begin{tabular}{").removesuffix("}"))
    rows = []
    for line in lines:
        if line.endswith(r" \\"):
            spans = sum(int(n) - 1 for n in re.findall(r"\\multicolumn\{(\d+)\}", line))
            rows.append(re.split(r"(?<!\\)&", line.removesuffix(r" \\")))
            assert len(rows[-1]) + spans == columns, line
            opened, closed = (re.findall(rf"(?<!\\){brace}", line) for brace in "{}")
            assert len(opened) == len(closed)
        else:
            assert line in (r"\toprule", r"\midrule", r"\bottomrule")
    return [[cell.strip() for cell in row] for row in rows]


def test_rows_are_variants_and_columns_the_targets(comparison: Comparison) -> None:
    first, second, *rows = _rows(latex(comparison))
    levels = [rf"\multicolumn{{2}}{{c}}{{{level}\% accuracy}}" for level in (50, 70)]
    assert first == ["", "", *levels, r"99\% accuracy", "final"]
    times = ["time (s)", "speed"]
    assert second == ["", "", *times, *times, "time (s)", r"accuracy (\%)"]
    # From the fastest to the hardest target that was reached, in each setting.
    assert [row[0] for row in rows] == [SETTINGS[0], "", SETTINGS[1], ""]
    target = comparison.targets[comparison.targets["target"] == 0.7]
    for setting, two in zip(SETTINGS, (rows[:2], rows[2:]), strict=True):
        times_s = target[target["setting"] == setting].set_index("label")["time_s"]
        assert [row[1] for row in two] == times_s.sort_values().index.tolist()
    fedbuff = next(row for row in rows[:2] if row[1] == "fedbuff")
    shown = row(comparison.targets, SETTINGS[0], "fedbuff", target=0.5)
    of_runs = comparison.at(SETTINGS[0], Target("accuracy", 0.5))["fedbuff"]
    mean, low, high = (f"{each:.2f}" for each in (shown["time_s"], of_runs.min(), of_runs.max()))
    assert fedbuff[2] == rf"{mean} {{\scriptsize [{low}, {high}]}}"
    assert fedbuff[3].startswith(f"{shown['relative']:.2g} times as slow, ")
    assert fedbuff[6] == "--"
    last = row(comparison.summary, SETTINGS[0], "fedbuff")
    final = format_mean(last["final_accuracy"], last["final_accuracy_sd"], "share")
    assert fedbuff[7] == final.replace("%", "").replace("±", r"$\pm$")


def test_a_single_target_has_its_client_updates(sweep: Sweep) -> None:
    comparison = compare(sweep.path, targets=["accuracy=0.5"])
    rows = _rows(latex(comparison))
    updates = ["client updates", "updates per hour"]
    assert rows[1][2:] == ["time (s)", "speed", *updates, r"accuracy (\%)"]
    shown = row(comparison.targets, SETTINGS[0], "fedbuff")
    assert next(row for row in rows[2:4] if row[1] == "fedbuff")[4:6] == [
        format_mean_count(shown["client_updates"]),
        format_number(shown["client_updates_per_h"]),
    ]


def test_numbers_are_rounded_as_on_the_page() -> None:
    runs = []
    for name, end_s, accuracy in (("a", 160.0, 0.90625), ("b", 100.0, 0.8)):
        scenario = {"server": {"method": {"name": name}}}
        runs.append(facts(scenario, 0, name, (0.0, end_s), (0.0, accuracy)))
    rows = _rows(latex(of(*runs, goals=(Target("accuracy", 0.7), Target("accuracy", 0.75)))))
    assert rows[-2] == ["b", *("1.67", "1.6 times as fast") * 2, "80.0"]
    assert rows[-1] == ["a", *("2.67", "baseline") * 2, "90.6"]


def test_names_cannot_break_the_table() -> None:
    names = ["[a]", "50% & _{", r"FedAvg $\alpha_1$", "~^\\"]
    runs = []
    for name in names:
        runs.append(facts({"server": {"method": {"name": name}}}, 0, name, (0.0,), (0.5,)))
    assert [row[0] for row in _rows(latex(of(*runs)))[2:]] == [
        "{}[a]",
        r"50\% \& \_\{",
        r"FedAvg $\alpha_1$",
        r"\textasciitilde{}\textasciicircum{}\textbackslash{}",
    ]
