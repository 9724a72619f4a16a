"""Parts of tasks, networks, devices and schedules are found, and their parameters read, without the heavy libraries."""

import subprocess
import sys

HEAVY = ("torch", "sklearn", "scipy", "PIL", "pandas", "pyarrow", "networkx", "simpy")


def loaded_after(code: str) -> set[str]:
    """Which heavy libraries a new process has loaded after ``code``."""
    script = f"import sys\n{code}\nprint(*[name for name in {HEAVY} if name in sys.modules])"
    output = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout
    return set(output.split())


def test_parameters_of_all_parts_are_read_without_heavy_libraries() -> None:
    assert not loaded_after(
        "from fedsim.parts.catalog import CATALOG\n"
        "for kind in ('dataset', 'task', 'model', 'partition', 'network', 'transport', 'compute', 'availability',"
        " 'schedule', 'selection'):\n"
        "    for part in CATALOG.parts(kind).values(): part.Params.model_json_schema()"
    )


BUILD = """
from pathlib import Path
from fedsim.parts.catalog import CATALOG
from fedsim.randomness import Purpose, Stream
from fedsim.scenario.model import Evaluation
from fedsim.scenario.training import Training
from fedsim.tasks.kinds.supervised import SupervisedTask
def part(kind, name, **params):
    component = CATALOG.parts(kind)[name]
    return component(component.Params(**params))
dataset = part("dataset", "digits").load()
partition = part("partition", "dirichlet", alpha=0.3, clients=200)
dealt = partition.split(dataset, Stream(0, Purpose.PARTITION))
task = SupervisedTask(dataset, dealt, part("model", "mlp"))
training = Training(batch_size=8)
task.check(training, Evaluation())
assert task.local_steps(training).sum() and task.layout.size and task.partition_rows()
assert task.memory_bytes(training, 0).all()
tasks = CATALOG.parts("task")
assert tasks["quadratic"](tasks["quadratic"].Params(centers=[1, 2])).layout.size == 1
assert tasks["timing"](tasks["timing"].Params(clients=3)).layout.size == 1_000_000
"""


def test_a_built_in_task_is_dealt_checked_and_measured_with_torch_alone() -> None:
    assert loaded_after(BUILD) <= {"torch"}


def test_the_check_can_see_the_libraries() -> None:
    assert loaded_after("import PIL") == {"PIL"}
