"""Every command, scenario and piece of Python in the pages does what the page says."""

import doctest
import html
import importlib.util
import re
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from ruamel.yaml import YAML

from fedsim import bundled
from fedsim import run as fedsim_run
from fedsim.analysis.report import render
from fedsim.learning.metrics import Metric
from fedsim.methods.base import Method
from fedsim.parts.catalog import CATALOG
from fedsim.parts.parameters import alternatives
from fedsim.scenario.loading import load_scenario, load_scenario_dict
from fedsim.scenario.model import Scenario
from fedsim.scheduling.base import Selection
from tests.devices.worlds import LINKS, STEPS, timing
from tests.docs.pages import (
    Block,
    blocks,
    commands,
    exit_code,
    fedsim,
    make_workshop,
    quick,
    working_in,
)

HAS_FLOWER = importlib.util.find_spec("flwr") is not None
CHECKOUT = Path(__file__).resolve().parents[2]
# Pages that have tests of their own.
ELSEWHERE = {"adding_a_method.md", "extending.md", "logs.md"}
PAGES = sorted(
    path.relative_to(CHECKOUT)
    for path in [
        CHECKOUT / "README.md",
        CHECKOUT / "CONTRIBUTING.md",
        CHECKOUT / "scenarios" / "README.md",
        *CHECKOUT.glob("docs/*.md"),
        *CHECKOUT.glob("docs/tutorials/*.md"),
        *CHECKOUT.glob("docs/papers/*.md"),
    ]
    if path.name not in ELSEWHERE and not path.name.startswith("compare")
)
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
MINIMAL = {
    "task": {"name": "timing", "clients": 2},
    "devices": {"compute": {"name": "values", "step": 1}, "network": {"down": 1e6, "up": 1e6}},
    "stop": {"rounds": 1},
}
PARTS = {
    "task": ("dataset", "partition", "model"),
    "devices": ("compute", "availability", "network"),
    "server": ("method", "selection", "schedule"),
    "training": ("optimizer", "lr_schedule"),
}
A_METHOD = """
from fedsim.parts.component import Parameters
from fedsim.methods.fedavg import FedAvg
class MyParams(Parameters):
    strength: float = 1.0
class MyMethod(FedAvg):
    name = "mine"
    Params = MyParams
"""


@pytest.fixture
def workshop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with what the pages assume to be there."""
    make_workshop(tmp_path, CHECKOUT)
    (tmp_path / "my_method.py").write_text(A_METHOD)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


# test_extending.py runs the examples of its page in the scenario at its top.
@pytest.mark.parametrize("page", [page for page in PAGES if page.stem != "extending"], ids=str)
@pytest.mark.usefixtures("with_reports")
def test_the_blocks_of_a_page_run_one_after_the_other(page: Path, workshop: Path) -> None:
    if page.stem == "flower" and not HAS_FLOWER:
        pytest.skip('needs Flower: pip install "fedsim-des[flower]"')
    names: dict[str, Any] = {"__name__": "page"}
    with working_in(workshop):
        for block in blocks(CHECKOUT / page):
            match block.language:
                case "console":
                    _run_commands(block)
                case "yaml":
                    _load_yaml(block, workshop)
                case "python":
                    _run_python(block, names)
                case "pycon":
                    _run_session(block, names)
                case language:
                    assert language == "text", f"{block}: nothing checks this language"


def _run_commands(block: Block) -> None:
    for command in commands(block):
        if command.text.startswith("make "):
            target = command.text.split()[1]
            makefile = (CHECKOUT / "Makefile").read_text(encoding="utf-8")
            assert re.search(rf"^{target}:.*## ", makefile, flags=re.MULTILINE), (
                f"{block}: {target}"
            )
        elif command.text.startswith("pip install "):
            extras = re.findall(r"fedsim-des\[(\w+)\]", command.text)
            project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))
            assert set(extras) <= set(project["project"]["optional-dependencies"]), f"{block}"
        elif command.text.startswith("fedsim flower ") and not HAS_FLOWER:
            continue
        elif command.text.startswith("fedsim board run"):
            continue  # minutes; tests/cli/test_board.py runs one
        elif command.text.startswith("fedsim sweep scenarios/papers/"):
            _check_sweep(command.text.split()[2])
        elif command.text.startswith("fedsim compare runs/") and command.text.endswith("-sweep"):
            assert Path(command.text.split()[2]).is_dir(), f"{block}: {command.text}"
        elif command.output is None:
            if command.text.startswith(("fedsim resume", "fedsim report", "fedsim export")):
                _make_run(command.text.split()[2])
            runs = command.text.startswith(("fedsim run", "fedsim sweep", "fedsim flower"))
            short = ("-s", "stop.rounds=3") if runs else ()
            assert exit_code(command.text, *short) == 0, f"{block}: {command.text}"
        else:
            output = fedsim(command.text)
            checker = doctest.OutputChecker()
            assert checker.check_output(command.output, output, FLAGS), (
                f"{block}: {command.text}\n{output}"
            )


def _check_sweep(path: str) -> None:
    """A paper's sweep takes minutes: it is checked, and leaves an empty folder for the comparison that follows."""
    scenario = CHECKOUT / path
    assert exit_code(f"fedsim scenario check {scenario}") == 0
    name = YAML(typ="safe", pure=True).load(scenario.read_text(encoding="utf-8"))["name"]
    Path("runs", f"{name}-sweep").mkdir(parents=True)


def _make_run(folder: str) -> None:
    if not Path(folder).exists():
        assert exit_code(f"fedsim run scenarios/quickstart.yaml -o {folder}") == 0


def _load_yaml(block: Block, workshop: Path) -> None:
    """Whole scenarios become files with their name; parts of one are checked inside a small whole."""
    data = YAML(typ="safe", pure=True).load(block.text)
    if "stop" in data:
        path = workshop / f"{data['name']}.yaml"
        path.write_text(block.text)
        load_scenario(path)
    else:
        load_scenario_dict({**MINIMAL, **data}, workshop)


def _run_python(block: Block, names: dict[str, Any]) -> None:
    code = compile(block.text, str(block), "exec")
    before = set(names)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bundled, "scenario_file", _quick_file)
        exec(code, names)
    # A block that is a file of its own says so; then a scenario can name what it defines.
    title = re.match(r"# (\w+\.py)", block.text)
    if title is not None:
        Path(title.group(1)).write_text(block.text)
        defined = [
            thing
            for name, thing in names.items()
            if name not in before and getattr(thing, "__module__", "") == "page"
        ]
        assert defined, f"{block} defines nothing"
        # Other kinds of part are named by a command of the page, or run by test_extending.py.
        for part in defined:
            reference = f"{title.group(1)}:{part.__name__}"
            if isinstance(part, type) and issubclass(part, Selection):
                change = f"server.selection={{name: '{reference}', cohort: 2}}"
            elif isinstance(part, type) and issubclass(part, Metric):
                change = f"evaluation.metrics=['{reference}']"
            elif isinstance(part, type) and issubclass(part, Method):
                change = f"server.method='{reference}'"
            else:
                continue
            assert exit_code(f"fedsim run {_quick_copy()} -o runs/own-part", "-s", change) == 0


def _quick_file(path: Path, original: Callable[[Path], Path] = bundled.scenario_file) -> Path:
    """A bundled scenario cut down to a few rounds, as the commands of the pages run it."""
    quick_file = Path("scenarios", f"{path}.yaml")
    return quick_file if quick_file.exists() else original(path)


def _quick_copy() -> str:
    """The quickstart beside the user's own files."""
    text = Path("scenarios/quickstart.yaml").read_text().replace("../traces", "traces")
    Path("own.yaml").write_text(text)
    return "own.yaml"


def _run_session(block: Block, names: dict[str, Any]) -> None:
    test = doctest.DocTestParser().get_doctest(block.text, names, str(block), block.page, 0)
    runner = doctest.DocTestRunner(optionflags=FLAGS, verbose=False)
    report: list[str] = []
    runner.run(test, out=report.append, clear_globs=False)
    assert not runner.failures, "".join(report)


LINKED = sorted(
    {
        *PAGES,
        *(
            path.relative_to(CHECKOUT)
            for pattern in ("docs/**/*.md", "benchmarks/**/README.md")
            for path in CHECKOUT.glob(pattern)
        ),
    }
)


@pytest.mark.parametrize("page", LINKED, ids=str)
def test_links_lead_somewhere(page: Path) -> None:
    text = (CHECKOUT / page).read_text(encoding="utf-8")
    for target, anchor in re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", text):
        path = (CHECKOUT / page).parent / target if target else CHECKOUT / page
        assert path.exists(), target
        if anchor:
            linked = path.read_text(encoding="utf-8")
            titles = re.findall(r"^#+ (.*)", linked, flags=re.MULTILINE)
            # As MkDocs makes them; mkdocstrings gives every object of the reference its name.
            slugs = {
                re.sub(r"[\s-]+", "-", re.sub(r"[^a-z0-9 -]", "", title.lower()))
                for title in titles
            } | set(re.findall(r"^::: (\S+)", linked, flags=re.MULTILINE))
            assert anchor in slugs, f"{target}#{anchor}"


def test_every_schedule_and_selection_stands_in_its_page() -> None:
    text = (CHECKOUT / "docs" / "schedules.md").read_text(encoding="utf-8")
    for kind in ("schedule", "selection"):
        for name in CATALOG.parts(kind):
            assert f"`{name}`" in text, name


def _keys(model: type[BaseModel]) -> Iterator[str]:
    for key, info in model.model_fields.items():
        yield key
        for inner in alternatives(info.annotation):
            if isinstance(inner, type) and issubclass(inner, BaseModel):
                yield from (f"{key}.{name}" for name in _keys(inner))


PAPERS = sorted((CHECKOUT / "docs" / "papers").glob("*.md"))


@pytest.mark.parametrize("page", PAPERS, ids=lambda path: path.stem)
def test_a_page_of_a_paper_shows_the_readme_of_its_sweeps(page: Path) -> None:
    included = re.findall(r'^--8<-- "(\S+):2:"$', page.read_text(encoding="utf-8"), re.MULTILINE)
    expected = [] if page.stem == "index" else [f"scenarios/papers/{page.stem}/README.md"]
    assert included == expected
    assert all((CHECKOUT / path).is_file() for path in included)


def test_every_paper_has_a_page() -> None:
    folders = {path.parent.name for path in CHECKOUT.glob("scenarios/papers/*/README.md")}
    assert folders == {path.stem for path in PAPERS} - {"index"}


@pytest.mark.parametrize("page", PAPERS, ids=lambda path: path.stem)
def test_options_of_a_paper_are_options(page: Path) -> None:
    """Keys written with their dots lead through a section, or through some part of the kind they name."""
    options = re.findall(r"`([a-z_]+(?:\.[a-z_0-9]+)+)[`:]", page.read_text(encoding="utf-8"))
    options = [option for option in options if option.split(".")[0] in Scenario.model_fields]
    assert options or page.stem == "index"
    known = set(_keys(Scenario))
    for task in CATALOG.parts("task").values():
        known |= {f"task.{key}" for key in ("name", *_keys(task.Params))}
    for section, kinds in PARTS.items():
        for kind in kinds:
            for part in CATALOG.parts(kind).values():
                known |= {f"{section}.{kind}.{key}" for key in ("name", *_keys(part.Params))}
    for part in CATALOG.parts("compression").values():
        known |= {f"server.compression.up.{key}" for key in _keys(part.Params)}
    for part in CATALOG.parts("submodels").values():
        known |= {f"server.submodels.{key}" for key in _keys(part.Params)}
    assert [option for option in options if option not in known] == []


def test_every_figure_of_the_report_is_explained(tmp_path: Path) -> None:
    # Clients contribute unequally often, or their evenness would be left out.
    scenario = quick(CHECKOUT / "scenarios" / "fedcompass.yaml", rounds=13)
    scenario["task"]["partition"]["test"] = "split"
    one_of_four = timing(
        {"compute": STEPS, "network": LINKS},
        server={"selection": {"name": "scripted", "rounds": [[0]]}},
    )
    scenario["server"]["compression"] = {"up": {"factor": 0.5}}
    scenario["server"]["submodels"] = {"name": "heterofl", "rates": [1, 0.5], "by": "speed"}
    pages = [
        render(fedsim_run(scenario, tmp_path / "run")),
        render(fedsim_run(one_of_four, tmp_path / "one")),
    ]
    headings = re.findall(r'<h3 id="title-.*?">(.*?)</h3>', "".join(pages))
    titles = set(map(html.unescape, headings))
    assert len(titles) == 15
    text = (CHECKOUT / "docs" / "runs.md").read_text(encoding="utf-8")
    explained = set(re.findall(r"^- \*\*(.+?)\*\*:", text, flags=re.MULTILINE))
    assert "### The life of clients\n" in text
    # Neither run has a drop, nor a client that was absent for part of it alone.
    others = {"Who was in the rounds of the largest drop", "Absence of the longest absent client"}
    assert titles | others == explained | {"The life of clients"}
