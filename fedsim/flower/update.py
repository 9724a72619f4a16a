"""The content of the messages between a deployed server and its nodes, and the work of a method at a node.

A message holds the model as ``arrays`` and what a ClientApp needs to train it as ``config``; a reply holds the trained
model as arrays and ``num-examples`` as a metric. :class:`LocalUpdate` adds, in both directions, the vectors of methods
whose clients do more than local training, and keeps their memories in the node's state.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from fedsim.composition.build import build
from fedsim.composition.planes import build_station
from fedsim.composition.world import World
from fedsim.errors import UserError
from fedsim.flower import internals as fl
from fedsim.flower.exchange import hash_of
from fedsim.learning.device import reproducible
from fedsim.learning.workers import Group, cohort_of
from fedsim.methods.base import Memory
from fedsim.scenario.loading import LoadedScenario
from fedsim.scheduling.base import Dispatch
from fedsim.units import NS_PER_S
from fedsim.vocabulary.timeline import Train

_VECTORS, _MEMORY, _PENDING = "fedsim.vectors", "fedsim.memory", "fedsim.pending"
_SHARED = "memory/"
_MOST = 1e12
"""The largest number of samples, steps or seconds that a reply can be right about."""
_LONGEST = 500
"""Characters of a node's reason for a failure."""
_GONE = (
    fl.ErrorCode.NODE_UNAVAILABLE,
    fl.ErrorCode.MESSAGE_UNAVAILABLE,
    fl.ErrorCode.REPLY_MESSAGE_UNAVAILABLE,
)


class Refused(Exception):
    """A reply that has no update, and why: ``offline`` if the node is gone, ``failed`` if its answer is of no use."""

    def __init__(self, text: str, why: str = "failed") -> None:
        super().__init__(text)
        self.why = why


def introduction(node: int, ttl_s: float) -> fl.Message:
    """The message to which :func:`fedsim.flower.local_update` replies with the node's ``partition-id``."""
    config = fl.ConfigRecord({"local-steps": 0})
    return fl.Message(fl.RecordDict({"config": config}), node, "train", ttl=ttl_s)


def introduced(reply: fl.Message, clients: int) -> int:
    """The ``partition-id`` in the reply to an :func:`introduction`.

    Raises:
        Refused: it has none, or not of a client of the scenario.
    """
    _require_content(reply)
    numbers = reply.content.config_records.get("config", {})
    client = int(_figure(numbers, fl.NUMBER, -1.0))
    if not 0 <= client < clients:
        raise Refused(
            f"it has no partition-id between 0 and {clients - 1}; start it with --node-config partition-id=0, ..., "
            "and let its ClientApp call fedsim.flower.local_update"
        )
    return client


def _figure(record: Mapping[str, Any], name: str, default: float) -> float:
    """A number from 0 to :data:`_MOST` that a node reports; ``default`` if it reports none, or anything else."""
    value = record.get(name)
    return value if isinstance(value, int | float) and 0 <= value <= _MOST else default


def is_unavailable(reply: fl.Message) -> bool:
    """Whether a SuperLink has neither the message nor the reply, which may have been pulled before."""
    return bool(reply.has_error() and reply.error.code == fl.ErrorCode.MESSAGE_UNAVAILABLE)


def _require_content(reply: fl.Message) -> None:
    if not reply.has_error():
        return
    if reply.error.code in _GONE:
        raise Refused("its node is gone", "offline")
    reason = (reply.error.reason or "").strip().splitlines() or [f"code {reply.error.code}"]
    raise Refused("the ClientApp failed: " + reason[-1][:_LONGEST].rstrip("."))


# -- the server -------------------------------------------------------------------------------------------------------


def request(
    world: World,
    dispatch: Dispatch,
    sent: Mapping[str, Tensor],
    shared_row: Callable[[str], Tensor],
    *,
    node: int,
    ttl_s: float,
    kept: Dispatch | None,
    deadline_ns: int | None,
) -> fl.Message:
    """The message of a dispatch.

    Args:
        world: the run.
        dispatch: the dispatch.
        sent: the vectors of its version.
        shared_row: returns the client's row of a memory that the server shares with it.
        node: its node.
        ttl_s: seconds after which it is lost.
        kept: the client's previous dispatch, if the client keeps what it learned in it.
        deadline_ns: when its round closes, if that is known; a ClientApp that understands it stops by itself, because
            a SuperNode takes no message while its ClientApp works.
    """
    task, training, method = world.task, world.scenario.training, world.method
    vectors = {name: vector.cpu() for name, vector in sent.items()}
    model = method.whole_model(vectors)
    arrays = {**task.layout.views(model), **task.fixed(model.dtype)}
    rate = method.context.learning_rate(dispatch.round, dispatch.dispatched_ns / NS_PER_S)
    config: dict[str, Any] = {
        "server-round": dispatch.round + 1,
        "lr": float(rate),
        "batch-size": training.batch_size,
        "local-steps": dispatch.steps,
        "version": dispatch.version,
        "client": dispatch.client_id,
        "sequence": dispatch.sequence,
        "in-full": dispatch.in_full or not dispatch.sequence,
        "keeps": -1 if kept is None else kept.sequence,
    }
    if deadline_ns is not None:
        config["deadline-s"] = (deadline_ns - dispatch.dispatched_ns) / NS_PER_S
    if training.local_epochs is not None:
        config["local-epochs"] = training.local_epochs
    content = fl.RecordDict({"arrays": _record(arrays), "config": fl.ConfigRecord(config)})
    more = {name: vector for name, vector in vectors.items() if name != "model"}
    for name, memory in method.memories().items():
        if memory.keeper == "shared":
            more[_SHARED + name] = shared_row(name)
    if more:
        content[_VECTORS] = _record(more)
    group = str(dispatch.round + 1)
    return fl.Message(content, node, "train", ttl=ttl_s, group_id=group)


def received(
    world: World, dispatch: Dispatch, sent: Mapping[str, Tensor], reply: fl.Message
) -> tuple[dict[str, Any], dict[str, Tensor], float]:
    """The course of a dispatch that its reply reports, the vectors of its update, and its training loss.

    Raises:
        Refused: the reply has no update that can be used.
    """
    _require_content(reply)
    serialized = fl.recorddict_to_proto(reply.content).SerializeToString()
    metrics: dict[str, Any] = {}
    for record in reply.content.metric_records.values():
        metrics |= record
    records = dict(reply.content.array_records)
    exact = records.pop(_VECTORS, None)
    try:
        if exact is not None:
            vectors = _vectors(world, exact)
        else:
            vectors = _from_model(world, records, sent)
    except Exception as error:  # Whatever the bytes of another machine do to those who read them.
        raise Refused(f"the reply has no usable arrays: {error}") from error
    for name, vector in vectors.items():
        if vector.is_floating_point() and not torch.isfinite(vector).all():
            what = "model" if exact is None else f"vector '{name}'"
            raise Refused(f"the {what} in the reply is not finite")
    timing = reply.content.config_records.get(fl.TIMING, {})
    course = {
        "steps": int(_figure(metrics, "steps", dispatch.steps)),
        "samples": int(_figure(metrics, "num-examples", 0)),
        "work_ns": int(_figure(timing, "seconds", NS_PER_S) * NS_PER_S),
        "bytes_up": float(len(serialized)),
        "hash": hash_of(serialized),
    }
    loss = metrics.get("train_loss", metrics.get("loss"))
    return course, vectors, float(loss) if isinstance(loss, int | float) else math.nan


def _vectors(world: World, record: fl.ArrayRecord) -> dict[str, Tensor]:
    """The vectors that :class:`LocalUpdate` has sent."""
    method = world.method
    declared = {vector.name: (vector.elements,) for vector in method.upload()}
    prologue = method.prologue()
    first = {} if prologue is None else {each.name: (each.elements,) for each in prologue.upload}
    tensors = dict(record.to_torch_state_dict())
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    if shapes not in (declared, first) or any(map(torch.is_complex, tensors.values())):
        raise ValueError(f"it has {shapes}, the method {declared}")
    return tensors


def _from_model(
    world: World, records: Mapping[str, fl.ArrayRecord], sent: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """The update of a ClientApp that returns its model, as the method's clients would have sent it."""
    if len(records) != 1:
        raise ValueError(f"it has {len(records)} array records instead of one")
    layout = world.task.layout
    (record,) = records.values()
    tensors = record.to_torch_state_dict()
    given = [(name, tuple(tensor.shape)) for name, tensor in tensors.items()]
    fixed = world.task.fixed(torch.float32)
    expected = list(zip(layout.names, layout.shapes, strict=True))
    changed = [each for each in given if each[0] not in fixed]
    if sorted(changed) != sorted(expected):
        differ = sorted(set(changed) ^ set(expected))[:2]
        raise ValueError(f"its shapes are not those of the model that was sent, such as {differ}")
    start = sent["model"]
    flat = [tensors[name].reshape(-1).to(start.dtype) for name in layout.names]
    model = torch.cat(flat) if flat else start.clone()
    (upload,) = world.method.upload()
    if upload.name == "model":
        return {"model": model}
    delta = model - start.cpu()
    if world.method.sends_buffers():
        delta[layout.trainable :] = model[layout.trainable :]
    return {upload.name: delta}


def _record(tensors: Mapping[str, Tensor]) -> fl.ArrayRecord:
    return fl.ArrayRecord(
        {
            name: fl.Array(tensor.detach().cpu().contiguous().numpy())
            for name, tensor in tensors.items()
        }
    )


# -- the nodes --------------------------------------------------------------------------------------------------------


class LocalUpdate:
    """The work of the clients of a scenario at a node, see :func:`fedsim.flower.local_update`."""

    def __init__(self, loaded: LoadedScenario) -> None:
        self._world = world = build(loaded)
        training = world.training.model_copy(update={"threads": 1})
        self._station = build_station(replace(world, training=training))
        (self._worker,) = self._station.workers(1)

    def __call__(self, message: fl.Message, context: fl.Context) -> fl.Message:
        """Train, and reply."""
        began = time.perf_counter()
        world = self._world
        content, layout = message.content, world.task.layout
        config, clients = content["config"], world.task.clients
        client = int(context.node_config.get(fl.NUMBER, -1))
        if not 0 <= client < clients:
            raise UserError(
                f"the node has no number between 0 and {clients - 1}, which is the part of the data that it trains on",
                where="flower-supernode --node-config",
                hint='start it with --node-config "partition-id=0", "partition-id=1", ...',
            )
        tensors = content["arrays"].to_torch_state_dict()
        down = {"model": torch.cat([tensors[name].reshape(-1) for name in layout.names])}
        memory = _kept(context, config, world.method.memories(), self._station.server["model"])
        if _VECTORS in content:
            for name, tensor in content[_VECTORS].to_torch_state_dict().items():
                into = memory if name.startswith(_SHARED) else down
                into[name.removeprefix(_SHARED)] = tensor
        train = Train(
            dispatch_id=0,
            client=client,
            sequence=config["sequence"],
            version=config["version"],
            round=config["server-round"] - 1,
            steps=config["local-steps"],
            steps_assigned=config["local-steps"],
            dispatched_s=0.0,
            in_full=config["in-full"],
        )
        make = partial(
            cohort_of,
            samples=world.task.samples[[client]],
            rates=[config["lr"]],
            down={name: [vector] for name, vector in down.items()},
            memory={name: row[None].clone() for name, row in memory.items()},
        )
        with reproducible(tf32=self._station.execution.tf32):
            update = self._worker.train(Group([train], make))
        if update.memory:
            context.state[_PENDING] = _record({name: row[0] for name, row in update.memory.items()})
            context.state[f"{_PENDING}.of"] = fl.ConfigRecord({"sequence": config["sequence"]})
        metrics = {
            "num-examples": int(world.task.samples[client]),
            "steps": config["local-steps"],
            "train_loss": float(update.loss),
        }
        answer = {
            _VECTORS: _record({name: rows[0] for name, rows in update.vectors.items()}),
            "metrics": fl.MetricRecord(metrics),
            fl.TIMING: fl.ConfigRecord({"seconds": time.perf_counter() - began}),
        }
        return fl.Message(fl.RecordDict(answer), reply_to=message)


def _kept(
    context: fl.Context, config: fl.ConfigRecord, memories: Mapping[str, Memory], model: Tensor
) -> dict[str, Tensor]:
    """The node's memories, with what it learned in its last dispatch if the server has used that."""
    state = context.state
    pending = state.pop(_PENDING, None)
    of = state.pop(f"{_PENDING}.of", None)
    if pending is not None and of["sequence"] == config["keeps"]:
        state[_MEMORY] = pending
    rows: dict[str, Tensor] = {}
    if _MEMORY in state:
        rows |= state[_MEMORY].to_torch_state_dict()
    for name, memory in memories.items():
        if memory.keeper == "client" and name not in rows:
            initial = memory.initial_row(model)
            dtype = memory.dtype or model.dtype
            rows[name] = torch.zeros(memory.elements, dtype=dtype) if initial is None else initial
    return rows
