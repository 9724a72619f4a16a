"""What clients do besides local SGD, at nodes of an app."""

from pathlib import Path
from typing import Any

import pytest
import torch
from flwr.app import Message
from flwr.app.error import Error

import fedsim
from fedsim.flower import internals
from fedsim.flower.update import Refused, introduced
from fedsim.runs.checkpoint import load_model
from tests.flower.test_serving import scenario, served
from tests.flower.worlds import ask


@pytest.mark.parametrize(
    "changes",
    [
        {"method": {"name": "fedprox", "mu": 0.1}},
        {"method": {"name": "scaffold"}},
        {"method": {"name": "feddyn"}},
        {"method": {"name": "mifa"}},
        {"compression": {"up": {"name": "topk", "share": 0.2}}},
    ],
    ids=lambda changes: str(changes),
)
def test_the_model_of_the_simulation(changes: dict[str, Any], tmp_path: Path) -> None:
    """Corrections, and memories in the nodes' state, give the bits of ``fedsim run``.

    Times differ, because a message does not declare what a correction costs.
    """
    server = {
        "schedule": {"name": "sync"},
        "selection": {"name": "uniform", "cohort": 4},
        **changes,
    }
    section = scenario(server, evaluation={"every_rounds": 1})
    simulated = fedsim.run(section, tmp_path / "simulated")
    real = served(section, tmp_path, local_update=True)
    columns = ["version", "contributor_ids"]
    assert len(real.aggregations) == 5
    assert (
        real.aggregations[columns].astype(str).equals(simulated.aggregations[columns].astype(str))
    )
    assert real.metrics["loss"].equals(simulated.metrics["loss"])
    models = [load_model(each.folder.model)[0] for each in (real, simulated)]
    assert all(torch.equal(value, models[1][name]) for name, value in models[0].items())


@pytest.mark.parametrize(
    ("codes", "why"), [((3, 4, 5), "offline"), ((0, 1, 2, 8), "failed")], ids=["gone", "failed"]
)
def test_flowers_errors(codes: tuple[int, ...], why: str) -> None:
    """Flower's own codes: the node or its reply is gone; its ClientApp fails, or dies without a reply (8)."""
    with internals.identity(1, 1):
        message = ask(1)
    message.metadata.__dict__["_message_id"] = "1"
    message.metadata.__dict__["_src_node_id"] = 1
    for code in codes:
        with pytest.raises(Refused) as caught:
            introduced(Message(Error(code, "text"), reply_to=message), 5)
        assert caught.value.why == why
