"""Flower's own example apps run unmodified; their hubs of data are replaced by stand-ins on the path."""

import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Self

import numpy as np
import pandas as pd
import pytest
import torch

from fedsim.flower.running import App, execute, load_devices

pytestmark = pytest.mark.real_data


class Rows:
    """A data set of a hub: rows with a transformation of batches."""

    def __init__(self, rows: list[dict[str, Any]], transform: Any = None) -> None:
        self.rows = rows
        self.transform = transform

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return pd.DataFrame(self.rows[index])
        batch = {key: [value] for key, value in self.rows[index].items()}
        return {key: value[0] for key, value in self.transform(batch).items()}

    def with_transform(self, transform: Any) -> Self:
        return Rows(self.rows, transform)

    def with_format(self, _: str) -> Self:
        return self

    def to_pandas(self) -> pd.DataFrame:
        return pd.DataFrame(self.rows)

    def train_test_split(self, test_size: float, seed: int) -> Any:
        return Split({"train": Rows(self.rows[4:]), "test": Rows(self.rows[:4])})


class Split(dict[str, Rows]):
    def with_transform(self, transform: Any) -> Self:
        return Split({name: rows.with_transform(transform) for name, rows in self.items()})


def rows_of(dataset: str, seed: int) -> Rows:
    """Twenty rows of a data set's shape."""
    generator = np.random.default_rng(seed)
    if "iris" in dataset:
        names = ["petal_length", "petal_width", "sepal_length", "sepal_width"]
        flowers = ({name: i % 3 + generator.random() for name in names} for i in range(20))
        return Rows([{**flower, "species": i % 3} for i, flower in enumerate(flowers)])
    key, shape = ("img", (3, 32, 32)) if "cifar" in dataset else ("image", (1, 28, 28))
    images = (torch.from_numpy(generator.random(shape, dtype=np.float32)) for _ in range(20))
    return Rows([{key: image, "label": i % 10} for i, image in enumerate(images)])


class FederatedDataset:
    def __init__(self, dataset: str, partitioners: Any) -> None:
        self.dataset = dataset

    def load_partition(self, partition: int, split: str = "train") -> Rows:
        return rows_of(self.dataset, partition)


class Anything:
    """Accepts whatever a logger, a fitter or a partitioner is given."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        return Anything()

    def __call__(self, *args: Any, **settings: Any) -> Any:
        return args[0] if args and isinstance(args[0], torch.Tensor) else Anything()


class NaturalIdPartitioner(Anything):
    def load_partition(self, partition: int) -> Rows:
        return Rows([{"T": float(partition + i), "E": i % 2} for i in range(10)])


@pytest.fixture
def stand_ins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules that the examples import and that may be missing."""
    anything = dict.fromkeys(
        ("Compose", "Normalize", "ToTensor", "RandomCrop", "RandomHorizontalFlip"), Anything
    )
    modules: dict[str, dict[str, Any]] = {
        "flwr_datasets": {"FederatedDataset": FederatedDataset},
        "flwr_datasets.partitioner": {
            "IidPartitioner": Anything,
            "DirichletPartitioner": Anything,
            "NaturalIdPartitioner": NaturalIdPartitioner,
        },
        "datasets": {
            "load_dataset": lambda name, split=None: (
                rows_of(name, 99) if split else {"test": rows_of(name, 99)}
            ),
            "Dataset": SimpleNamespace(from_pandas=lambda frame: frame),
        },
        "torchvision": {},
        "torchvision.transforms": anything,
        "wandb": {"init": Anything(), "log": Anything(), "define_metric": Anything()},
        "lifelines": {"KaplanMeierFitter": Anything},
        "lifelines.datasets": {"load_waltons": lambda: None},
        "torch.utils.tensorboard": {},
        "torch.utils.tensorboard.writer": {"SummaryWriter": Anything},
    }
    # The examples import two names from where later versions of Flower no longer have them.
    from flwr.clientapp.typing import ClientAppCallable, Mod

    modules["flwr.client.typing"] = {"ClientAppCallable": ClientAppCallable, "Mod": Mod}
    monkeypatch.setattr("flwr.common.typing.UserConfig", dict, raising=False)
    for name, content in modules.items():
        module = ModuleType(name)
        vars(module).update(content)
        monkeypatch.setitem(sys.modules, name, module)


@pytest.mark.parametrize(
    ("name", "unit", "config"),
    [
        ("quickstart-numpy", "example", ""),
        ("quickstart-pytorch", "step", "num-server-rounds=2"),
        ("advanced-pytorch", "step", "num-server-rounds=2 fraction-train=0.5"),
        ("quickstart-sklearn", "example", "num-server-rounds=2"),
        ("custom-mods", "step", "num-server-rounds=1"),
        ("federated-kaplan-meier-fitter", "step", ""),
    ],
)
def test_example(
    name: str,
    unit: str,
    config: str,
    fedsim_data: Path,
    stand_ins: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = fedsim_data / "flower_apps" / name
    if not folder.is_dir():
        pytest.skip(f"{folder} is missing")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(folder))
    app = App.read(folder, config)
    devices = {"task": {"clients": 4, "unit": unit}}
    run = execute(app, load_devices(devices, app.name), tmp_path / "run")
    assert run.status == "complete"
    assert run.simulated_s > 0
    assert run.info["client_errors"] == 0
    if name == "federated-kaplan-meier-fitter":
        assert run.dispatches.empty
        return
    assert run.dispatches["outcome"].eq("aggregated").all()
    assert run.info["rounds"] == app.run_config["num-server-rounds"]
    if name == "advanced-pytorch":
        (results,) = tmp_path.glob("outputs/2026-01-01/00-00-00/results.json")
        assert len(json.loads(results.read_text())) == 2
