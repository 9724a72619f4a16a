"""Drawing from a global generator is refused in parts that do not ship with fedsim; those that do are left alone."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner, Result

import fedsim
from fedsim.cli import cli
from fedsim.errors import UserError
from fedsim.global_generators import isolated, refuse_kept_generators, unmoved, watched
from fedsim.learning.rates.constant import Constant
from fedsim.parts.catalog import CATALOG
from fedsim.parts.parameters import Parameters
from tests.lines import without_lines
from tests.methods.own_method import SCENARIO, run_with


class Part:
    def draws(self, library: str) -> float:
        if library == "random":
            return random.random()
        if library == "numpy":
            return float(np.random.rand())  # noqa: NPY002
        return float(torch.rand(()))

    def draws_its_own(self) -> float:
        return float(
            np.random.default_rng(1).random() + torch.rand((), generator=torch.Generator())
        )

    def fails(self) -> None:
        random.random()
        raise KeyError("mine")


@pytest.mark.parametrize("library", ["random", "numpy", "torch"])
def test_each_library_is_named(library: str) -> None:
    part = watched(Part(), "draws", hint="use a generator")
    with pytest.raises(UserError, match=rf"generator of {library}, so") as caught:
        part.draws(library)
    assert without_lines(caught.value.where) == f"{__file__}: Part.draws"
    assert caught.value.hint == "use a generator"


def test_a_class_without_a_file_is_named_alone() -> None:
    """That of a notebook, whose module ``__main__`` has no file."""
    console = {"__name__": "console", "random": random}
    exec("class Mine:\n    def draws(self): return random.random()", console)
    part = watched(console["Mine"](), "draws", hint="")  # type: ignore[operator]
    with pytest.raises(UserError) as caught:
        part.draws()
    assert caught.value.where == "Mine.draws"


def test_other_generators_functions_and_errors_pass() -> None:
    part = watched(Part(), "draws_its_own", "fails", hint="")
    assert part.draws_its_own() == part.draws_its_own()
    assert 0 <= part.draws("random") < 1
    with pytest.raises(KeyError, match="mine"):
        part.fails()


def test_what_ships_with_fedsim_is_left_alone() -> None:
    part = Constant(Parameters())
    assert watched(part, "factor", hint="") is part
    assert vars(part).keys() == {"params"}


@pytest.mark.parametrize(
    ("right", "wrong", "library"),
    [
        (
            "delta = trained.model - start",
            "import torch; delta = trained.model - start + 0.1 * torch.randn(start.shape)",
            "torch",
        ),
        (
            "delta = trained.model - start",
            "import random; delta = (trained.model - start) * random.random()",
            "random",
        ),
        (
            "delta = trained.model - start",
            "import torch; torch.manual_seed(7); delta = trained.model - start",
            "torch",
        ),
        (
            'return {"model"',
            'import numpy as np; np.random.normal(); return {"model"',
            "numpy",
        ),
    ],
)
def test_a_global_generator_is_refused(
    tmp_path: Path, right: str, wrong: str, library: str
) -> None:
    result = run_with(tmp_path, right, wrong)
    function = "aggregate" if library == "numpy" else "local_update"
    assert result.exit_code == 2
    assert f"{tmp_path / 'mine.py'}: Mine.{function}" in without_lines(result.stderr)
    assert f"the global random generator of {library}, so a run" in result.stderr
    assert "self.context.generator(" in result.stderr


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        # A generator of the run; a torch generator of one's own; global states put back; drawn before the run.
        ("delta = ", "self.context.generator(3).random(); delta = "),
        ("delta = ", "import torch; torch.randn(1, generator=torch.Generator()); delta = "),
        (
            "        delta = ",
            "        import torch\n        with torch.random.fork_rng(): torch.randn(1)\n        delta = ",
        ),
        (
            "    def memories(self):\n",
            "    def memories(self):\n        import torch; torch.randn(1)\n",
        ),
    ],
)
def test_other_random_numbers_are_allowed(tmp_path: Path, right: str, wrong: str) -> None:
    result = run_with(tmp_path, right, wrong)
    assert result.exit_code == 0, result.stderr


def test_a_selection_that_draws_from_a_global_generator_is_refused(tmp_path: Path) -> None:
    (tmp_path / "pick.py").write_text(
        "import numpy as np\nfrom fedsim.scheduling.base import CohortParams, Selection\n\n\n"
        "class Pick(Selection):\n    Params = CohortParams\n\n"
        "    def draw(self, count):\n        return list(np.random.permutation(self.available()))[:count]\n",
        encoding="utf-8",
    )
    (tmp_path / "own.yaml").write_text(
        SCENARIO.replace(
            'method: {name: "mine.py:Mine"}', "selection: {name: 'pick.py:Pick', cohort: 2}"
        ),
        encoding="utf-8",
    )
    result = CliRunner().invoke(
        cli, ["run", str(tmp_path / "own.yaml"), "-o", str(tmp_path / "out")]
    )
    assert result.exit_code == 2
    assert f"{tmp_path / 'pick.py'}: Pick.draw" in without_lines(result.stderr)
    assert "self.generator()" in result.stderr


SELECTION = """\
import random
import numpy as np
import torch
from fedsim.scheduling.base import CohortParams, Selection


class Pick(Selection):
    Params = CohortParams

    def __init__(self, params, server):
        super().__init__(params, server)
        self.dice = {made}

    def draw(self, count):
        return self.available()[:count].tolist()
"""


@pytest.mark.parametrize(
    "made",
    [
        "np.random.default_rng(0)",
        "np.random.RandomState(0)",
        "random.Random(0)",
        "torch.Generator()",
        "self.generator()",
    ],
)
def test_a_part_that_keeps_a_generator_is_refused(tmp_path: Path, made: str) -> None:
    (tmp_path / "pick.py").write_text(SELECTION.format(made=made), encoding="utf-8")
    selection = "selection: {name: 'pick.py:Pick', cohort: 2}"
    (tmp_path / "own.yaml").write_text(
        SCENARIO.replace('method: {name: "mine.py:Mine"}', selection), encoding="utf-8"
    )
    for command in (["scenario", "check"], ["run", "-o", str(tmp_path / "out")]):
        result = CliRunner().invoke(cli, [*command, str(tmp_path / "own.yaml")])
        assert result.exit_code == 2
        assert f"{tmp_path / 'pick.py'}: Pick: keeps a random generator in self.dice" in (
            without_lines(result.stderr)
        )
        assert "draw from self.generator()" in result.stderr
    assert not (tmp_path / "out").exists()


def test_every_kind_of_part_has_a_source_of_random_numbers_or_needs_none(tmp_path: Path) -> None:
    class Kept:
        def __init__(self) -> None:
            self.dice = random.Random(0)

    for kind in CATALOG.kinds:
        with pytest.raises(UserError) as caught:
            refuse_kept_generators(Kept(), kind)
        hint = str(caught.value.hint)
        assert hint.startswith("draw from ") or f"the result of a {kind} must" in hint


def test_a_schedule_that_makes_a_generator_at_its_start_is_refused(tmp_path: Path) -> None:
    (tmp_path / "waits.py").write_text(
        "import random\nfrom fedsim.scheduling.schedules.sync import Sync\n\n\n"
        "class Waits(Sync):\n    def start(self):\n        self.dice = random.Random(0)\n"
        "        super().start()\n",
        encoding="utf-8",
    )
    (tmp_path / "own.yaml").write_text(
        SCENARIO.replace('method: {name: "mine.py:Mine"}', "schedule: 'waits.py:Waits'"),
        encoding="utf-8",
    )
    result = CliRunner().invoke(
        cli, ["run", str(tmp_path / "own.yaml"), "-o", str(tmp_path / "out")]
    )
    assert result.exit_code == 2
    assert "Waits: keeps a random generator in self.dice" in result.stderr
    assert "self.selection.generator()" in result.stderr


SCHEDULE = """\
import random
import numpy as np
import torch
from fedsim.scheduling.schedules.sync import Sync


class Waits(Sync):
    def __init__(self, params, server, selection):
        super().__init__(params, server, selection)
        {in_init}

    def start(self):
        {in_start}
        super().start()
        self.server.call_at(1, self.later)

    def on_arrival(self, dispatch):
        {in_arrival}
        super().on_arrival(dispatch)

    def later(self):
        {in_call}
"""


def run_part(tmp_path: Path, file: str, text: str, section: str, value: str) -> Result:
    (tmp_path / file).write_text(text, encoding="utf-8")
    (tmp_path / "own.yaml").write_text(
        SCENARIO.replace('server: {method: {name: "mine.py:Mine"}}\n', ""), encoding="utf-8"
    )
    options = ["-s", f"{section}={value}", "-o", str(tmp_path / "out")]
    return CliRunner().invoke(cli, ["run", str(tmp_path / "own.yaml"), *options])


@pytest.mark.parametrize(
    ("moment", "function"),
    [
        ("in_init", "__init__"),
        ("in_start", "start"),
        ("in_arrival", "on_arrival"),
        ("in_call", "later"),
    ],
)
@pytest.mark.parametrize(
    ("draw", "library"),
    [
        ("random.random()", "random"),
        ("np.random.rand()", "numpy"),
        ("torch.rand(1)", "torch"),
    ],
)
def test_a_schedule_that_draws_from_a_global_generator_is_refused(
    tmp_path: Path, moment: str, function: str, draw: str, library: str
) -> None:
    draws = dict.fromkeys(("in_init", "in_start", "in_arrival", "in_call"), "pass") | {moment: draw}
    text = SCHEDULE.format(**draws)
    result = run_part(tmp_path, "waits.py", text, "server.schedule", "waits.py:Waits")
    assert result.exit_code == 2, result.output
    where = f"{tmp_path / 'waits.py'}: Waits.{function}"
    assert f"{where}: draws from or seeds the global random generator of {library}, so" in (
        without_lines(result.stderr)
    )
    assert "draw from self.selection.generator()" in result.stderr


COMPUTE = """\
import random
import numpy as np
from fedsim.devices.compute.base import ComputeModel, ComputeParams


class Mine(ComputeModel):
    Params = ComputeParams
    redraws = True

    def step_s(self):
        {in_step}
        return np.ones(self.context.clients)

    def redrawn_step_s(self, client, sequence):
        {in_redraw}
        return 1.0
"""
AVAILABILITY = """\
import random
from fedsim.devices.availability.base import AvailabilityModel, AvailabilityParams
from fedsim.traces.availability import AvailabilityIndex


class Mine(AvailabilityModel):
    Params = AvailabilityParams

    def index(self):
        random.random()
        return AvailabilityIndex.always(self.context.clients)
"""
NETWORK = """\
import random
from fedsim.network.kinds.static import Static


class Mine(Static):
    def build(self, context):
        random.random()
        return super().build(context)
"""
LISTENS = """\
import random
from fedsim.scheduling.selections.uniform import Uniform


class Mine(Uniform):
    def on_arrival(self, dispatch):
        random.random()
"""


@pytest.mark.parametrize(
    ("section", "text", "function", "advice"),
    [
        (
            "devices.compute",
            COMPUTE.format(in_step="random.random()", in_redraw="pass"),
            "step_s",
            "draw from np.random.default_rng(self.context.seed)",
        ),
        (
            "devices.compute",
            COMPUTE.format(in_step="pass", in_redraw="random.random()"),
            "redrawn_step_s",
            "draw from np.random.default_rng(self.context.seed)",
        ),
        (
            "devices.availability",
            AVAILABILITY,
            "index",
            "draw from np.random.default_rng(self.context.seed)",
        ),
        ("devices.network.name", NETWORK, "build", "draw from np.random.default_rng(context.seed)"),
        ("server.selection", LISTENS, "on_arrival", "draw from self.generator()"),
    ],
)
def test_other_parts_that_decide_about_times_are_refused_too(
    tmp_path: Path, section: str, text: str, function: str, advice: str
) -> None:
    result = run_part(tmp_path, "part.py", text, section, "part.py:Mine")
    assert result.exit_code == 2, result.output
    assert f"{tmp_path / 'part.py'}: Mine.{function}: draws from or seeds" in without_lines(
        result.stderr
    )
    assert advice in result.stderr


def test_a_progress_function_may_draw_while_a_schedule_of_the_users_is_called(
    tmp_path: Path,
) -> None:
    quiet = dict.fromkeys(("in_init", "in_start", "in_arrival", "in_call"), "pass")
    (tmp_path / "waits.py").write_text(SCHEDULE.format(**quiet), encoding="utf-8")
    (tmp_path / "own.yaml").write_text(
        SCENARIO.replace('method: {name: "mine.py:Mine"}', "schedule: 'waits.py:Waits'"),
        encoding="utf-8",
    )
    seen: list[float] = []
    fedsim.run(
        tmp_path / "own.yaml",
        tmp_path / "out",
        on_progress=lambda progress: seen.append(random.random()),
    )
    assert seen


def test_a_part_of_fedsim_may_keep_a_generator() -> None:
    part = Constant(Parameters())
    part.dice = random.Random(0)  # type: ignore[attr-defined]
    refuse_kept_generators(part, "lr_schedule")


BUILT = """\
import random
import numpy as np
import torch
from torch import nn
from fedsim.methods.fedavg import FedAvg
from fedsim.tasks.dataset import Dataset, DatasetComponent


class Points(DatasetComponent):
    def load(self, folder=None):
        random.random(), torch.rand(1)
        x = np.random.normal(size=(60, 4)).astype(np.float32)
        y = np.arange(60) % 2
        return Dataset("points", x, y, x[:10], y[:10], classes=2)


class Net(nn.Module):
    def __init__(self, input_shape, classes):
        super().__init__()
        self.layer = nn.Linear(4, classes)
        with torch.no_grad():
            self.layer.bias += np.random.normal() + random.random()

    def forward(self, x):
        return self.layer(x)


class Mine(FedAvg):
    def __init__(self, params, context):
        super().__init__(params, context)
        self.scale = random.random()

    def initial_state(self, model):
        return {"model": model + self.scale * torch.randn(len(model)) + np.random.normal()}
"""


def built_run(folder: Path, name: str, seed: int = 0) -> fedsim.Run:
    """A run with parts that draw while they are built, with global generators in any state."""
    (folder / "built.py").write_text(BUILT, encoding="utf-8")
    scenario = {
        "seed": seed,
        "task": {
            "dataset": f"{folder}/built.py:Points",
            "partition": {"name": "iid", "clients": 3},
            "model": f"{folder}/built.py:Net",
        },
        "training": {"local_steps": 2, "batch_size": 8},
        "devices": {
            "compute": {"name": "values", "step": "1s"},
            "network": {"name": "static", "down": "1Mbps", "up": "1Mbps"},
        },
        "server": {"method": f"{folder}/built.py:Mine"},
        "stop": {"rounds": 2},
    }
    return fedsim.run(scenario, folder / name)


def test_what_is_drawn_while_something_is_built_is_the_same_in_every_run(tmp_path: Path) -> None:
    first = built_run(tmp_path, "first")
    random.seed(11)
    np.random.seed(12)  # noqa: NPY002
    torch.manual_seed(13)
    states = [random.getstate(), torch.get_rng_state().tolist()]
    second = built_run(tmp_path, "second")
    assert [random.getstate(), torch.get_rng_state().tolist()] == states
    assert first.folder.model.read_bytes() == second.folder.model.read_bytes()
    assert first.metrics.equals(second.metrics)
    other = built_run(tmp_path, "other", seed=1)
    assert other.folder.model.read_bytes() != first.folder.model.read_bytes()


def test_a_context_restores_the_generators_and_starts_from_a_seed() -> None:
    def drawn() -> list[float]:
        return [random.random(), float(np.random.normal()), float(torch.rand(1))]  # noqa: NPY002

    with isolated(3):
        first = drawn()
    with unmoved("here", ""), isolated(3):
        assert drawn() == first
    assert drawn() != first


def test_a_function_that_is_the_first_to_import_torch_starts_from_the_seed_too() -> None:
    code = (
        "import sys; from fedsim.global_generators import isolated; assert 'torch' not in sys.modules\n"
        "before = list(sys.meta_path)\n"
        "with isolated(3), isolated(5):\n"
        "    import torch; print(torch.rand(4).tolist())\n"
        "assert sys.meta_path == before"
    )
    command = [sys.executable, "-c", code]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    with isolated(5):
        assert json.loads(printed) == torch.rand(4).tolist()


def test_another_bit_generator_is_watched_too() -> None:
    former = np.random.mtrand.get_bit_generator()
    np.random.mtrand.set_bit_generator(np.random.PCG64(1))
    try:
        part = watched(Part(), "draws", hint="")
        with pytest.raises(UserError, match="generator of numpy, so"):
            part.draws("numpy")
    finally:
        np.random.mtrand.set_bit_generator(former)


@pytest.mark.parametrize("draws", [1, 623, 624, 625, 1248])
def test_every_number_of_draws_is_seen(draws: int) -> None:
    with pytest.raises(UserError, match="generator of numpy, so"), unmoved("here", ""):
        np.random.randint(0, 2**32, draws, dtype=np.uint32)  # noqa: NPY002


def test_seeding_is_seen() -> None:
    np.random.rand()  # noqa: NPY002
    with pytest.raises(UserError, match="generator of numpy, so"), unmoved("here", ""):
        np.random.seed(5)  # noqa: NPY002


TASK = """\
import random
from fedsim.tasks.kinds.quadratic import Quadratic{name}


class Mine(Quadratic{name}):
    def measure(self, model):
        random.random()
        return super().measure(model)
"""


def test_a_task_that_draws_while_it_is_used_is_refused(tmp_path: Path) -> None:
    (tmp_path / "part.py").write_text(TASK.format(name="Task"), encoding="utf-8")
    (tmp_path / "own.yaml").write_text(
        SCENARIO.replace('server: {method: {name: "mine.py:Mine"}}\n', "").replace(
            "name: quadratic", "name: 'part.py:Mine'"
        ),
        encoding="utf-8",
    )
    options = ["run", str(tmp_path / "own.yaml"), "-o", str(tmp_path / "out")]
    result = CliRunner().invoke(cli, options)
    assert result.exit_code == 2, result.output
    assert "part.py:6: Mine.measure: draws from or seeds the global random generator" in (
        result.stderr
    )
    assert "draw from the stream that initial and noise are given" in result.stderr
