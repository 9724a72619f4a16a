from pathlib import Path
from typing import Any

import pytest
from pydantic import Field

from fedsim.parts.catalog import CATALOG, Kind
from fedsim.parts.component import Component, Parameters
from fedsim.units import Duration


class Nothing(Parameters):
    """No parameters."""


class Mixing(Parameters):
    """Parameters of a part that mixes."""

    alpha: float = Field(default=0.5, gt=0)
    """How much."""
    wait: Duration | None = None
    """How long."""
    file: Path | None = None
    """From where."""
    width: int = Field(default=3, alias="lambda")
    """A name that Python reserves."""


class Needy(Parameters):
    """A parameter without a default."""

    size: int
    """How many."""


def part(name: str, params: type[Parameters] = Nothing, **attributes: Any) -> type[Component]:
    return type(name, (Component,), {"name": name, "Params": params, "__doc__": name, **attributes})


def kind(*parts: type[Component]) -> Kind:
    registry = {one.name: one for one in parts}
    return Kind(lambda: registry, lambda: Component)


SHIPPED = ("task", "optimizer", "lr_schedule", "compression", "submodels")
OWN = {
    "dataset": [part("digits"), part("mnist", Mixing)],
    "partition": [part("iid"), part("dirichlet", Mixing), part("shards", Needy)],
    "model": [part("mlp")],
    "method": [
        part("fedavg", Mixing),
        part("fedbuff", companions={"schedule": {"name": "buffered", "alpha": 3}}),
    ],
    "selection": [part("uniform")],
    "schedule": [part("sync"), part("buffered", Mixing)],
    "compute": [part("trace", Mixing), part("values")],
    "availability": [part("trace"), part("always")],
    "network": [part("static", Mixing)],
    "metric": [part("accuracy")],
    "logging": [part("tensorboard")],
    "transport": [part("fluid")],
    "exchange": [part("server")],
}


@pytest.fixture
def catalog(monkeypatch: pytest.MonkeyPatch) -> None:
    """In place of most of the parts that ship with fedsim, these."""
    shipped = {name: CATALOG.kinds[name] for name in SHIPPED}
    own = {name: kind(*parts) for name, parts in OWN.items()}
    monkeypatch.setattr(CATALOG, "kinds", shipped | own)
