"""The rules of a method: its schedules, and what it sends, keeps and needs."""

from __future__ import annotations

from typing import Any

import click

from fedsim.parts.catalog import CATALOG


def rules(method: Any) -> dict[str, Any]:
    """The schedules of a method, its companion parts, and what it sends and keeps."""
    traffic, reason = _traffic(method), method.only_synchronous
    return {
        "title": method.title or method.name,
        "schedules": sorted(
            name
            for name, schedule in CATALOG.parts("schedule").items()
            if (schedule.synchronous or not reason)
            and (schedule.begins_with_prologue or not traffic["before_the_rounds"])
        ),
        "not_asynchronous": reason
        and (reason if isinstance(reason, str) else "it needs a synchronous schedule"),
        "brings": [f"{kind} {part['name']}" for kind, part in method.companions.items()],
        "personal": method.personal,
        **traffic,
    }


def print_rules(described: dict[str, Any]) -> None:
    """Print the schedules of a method, and what it sends and keeps."""
    for key in ("schedules", "not_asynchronous", "brings", *_TRAFFIC):
        value = described[key]
        if text := ", ".join(value) if isinstance(value, list) else value:
            click.echo(f"  {key.replace('_', ' '):<24}{text}")
    if described["known_with"]:
        click.echo(f"  (not known without values for: {', '.join(described['known_with'])})")


_TRAFFIC = (
    "local_step_takes",
    "before_the_rounds",
    "sends_down",
    "sends_up",
    "server_keeps",
    "server_keeps_per_client",
    "client_keeps",
)
"""Entries about the traffic, memory and work of a method, in the order in which they are shown."""


def _traffic(method: Any) -> dict[str, Any]:
    """Vectors and memories in words, with the method's default parameters on a small two-layer model."""
    import numpy as np
    import torch

    from fedsim.methods.base import MethodContext, Vector
    from fedsim.tasks.layout import Adapter, Layout

    needs = [key for key, info in method.Params.model_fields.items() if info.is_required()]
    if needs:
        return {**{key: [] for key in _TRAFFIC}, "known_with": needs}
    shapes = {"0.weight": (16, 8), "0.bias": (16,), "1.weight": (4, 16), "1.bias": (4,)}
    layout = Layout.of([(f"layers.{name}", shape) for name, shape in shapes.items()])
    if method.needs_adapters:
        layout = Layout.of(
            [("lora_A", (2, 8)), ("lora_B", (16, 2)), ("bias", (16,))],
            [("weight", (16, 8))] if method.merges else [],
            [Adapter("lora_A", "lora_B", "weight")],
        )
    clients = 4
    built = method(
        method.Params(),
        MethodContext(
            layout=layout,
            clients=clients,
            samples=np.full(clients, 10),
            learning_rate=lambda round_, time_s: 0.1,
            local_steps=np.full(clients, 5),
            tensors=lambda: (torch.float32, torch.device("cpu")),
            seed=0,
        ),
    )

    def sized(label: str, elements: int) -> str:
        if elements == layout.size:
            return f"{label} (P)"
        if elements > layout.size and elements % layout.size == 0:
            return f"{label} ({elements // layout.size} P)"
        share = elements / layout.size
        return f"{label} ({share:.0%} of P here)" if elements > 2 else f"{label} ({elements})"

    def sent(vector: Vector) -> str:
        bits = "" if vector.bits is None else f" at {vector.bits:g} bits per entry"
        share = "" if vector.share == 1 else f", {vector.share:.0%} of it"
        return sized(vector.name, vector.elements) + share + bits

    def kept(*, at_server: bool) -> list[str]:
        return [
            sized(key, memory.elements)
            for key, memory in built.memories().items()
            if (memory.keeper == "server") == at_server
        ]

    state = built.initial_state(torch.zeros(layout.size))
    prologue = built.prologue()
    passes, operations = built.compute_factor(), built.vector_operations()
    extra = built.extra_passes()
    before = [] if prologue is None else [("down", prologue.download), ("up", prologue.upload)]
    return {
        "local_step_takes": [
            *([] if passes == 1 else [f"{passes:g} forward and backward passes"]),
            *([f"{operations:g} more operations per parameter"] if operations else []),
            *([f"{extra:g} more pass per dispatch"] if extra else []),
        ],
        "before_the_rounds": [
            f"all clients: {sent(vector)} {way}" for way, vectors in before for vector in vectors
        ],
        "sends_down": [sent(vector) for vector in built.download()],
        "sends_up": [sent(vector) for vector in built.upload()],
        "server_keeps": [sized(key, value.numel()) for key, value in state.items()],
        "client_keeps": kept(at_server=False),
        "server_keeps_per_client": kept(at_server=True),
        "known_with": [],
    }
