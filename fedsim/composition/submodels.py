"""Which part of the model each client trains."""

from __future__ import annotations

import numpy as np

from fedsim.composition.devices import Devices
from fedsim.composition.world import transfers_s
from fedsim.errors import UserError
from fedsim.learning.submodels import Submodels
from fedsim.learning.submodels.parts import Parts
from fedsim.learning.submodels.rules import Whole
from fedsim.methods.base import Method
from fedsim.methods.mixins import STATE, refuse_whole
from fedsim.scenario.model import Scenario
from fedsim.tasks.base import Task
from fedsim.tasks.kinds.supervised import SupervisedTask
from fedsim.vocabulary.arrays import Ints
from fedsim.vocabulary.formatting import format_bytes

_WHERE = "server.submodels"


def divided(devices: Devices, method: Method) -> Parts | None:
    """The parts that the clients of a scenario train; None if all train the whole model.

    Args:
        devices: the clients.
        method: the method, before it knows of parts.
    """
    parts = parts_of(devices.scenario, devices.task, np.zeros(devices.task.clients, dtype=np.int64))
    if parts is None:
        return None
    _refuse(devices.scenario, method)
    memory, by = devices.memory_bytes(), parts.submodels.params.by
    fits = np.ones((len(parts.rates), devices.task.clients), dtype=np.bool_)
    if memory is not None:
        needed = [devices.memory_of_part(method, parts, level) for level in range(len(parts.rates))]
        fits = memory >= np.stack(needed)
        for rate, bytes_needed, holds in zip(parts.rates, needed, fits, strict=True):
            if not holds.any():
                raise UserError(
                    f"no device can hold the part of rate {rate:g}: it needs {format_bytes(bytes_needed.min())}, and "
                    f"the largest memory is {format_bytes(memory.max())}",
                    where=f"{_WHERE}.rates",
                    hint="leave it out (fedrolex needs no part of rate 1), raise devices.memory, or ram_bytes in the "
                    "trace's compute table",
                )
    elif by == "memory":
        raise UserError(
            "parts are chosen by memory, but the memory of no device is known",
            where=f"{_WHERE}.by",
            hint="give devices.memory, or a trace with ram_bytes in its compute table, or choose by: speed or deadline",
        )
    if by != "memory":
        if by == "deadline":
            level = _by_deadline(devices, method, parts)
        else:  # Groups of equal size by the time of a local step of the whole model; the fastest have the largest part.
            step_s = devices.population(method).compute.step_s
            rank = np.argsort(np.argsort(step_s, kind="stable"))
            level = rank * len(parts.rates) // len(step_s)
        fits &= np.arange(len(parts.rates))[:, None] >= level
    # Clients that cannot hold any part are not eligible.
    parts.level[:] = np.where(fits.any(axis=0), fits.argmax(axis=0), len(parts.rates) - 1)
    return parts


def parts_of(scenario: Scenario, task: Task, level: Ints) -> Parts | None:
    """The parts of a scenario's model; None if all clients train the whole one.

    Args:
        scenario, task: the scenario and its task.
        level: number of the part that each client trains, (N,).
    """
    submodels: Submodels = scenario.server.submodels.create()
    if not isinstance(task, SupervisedTask) or isinstance(submodels, Whole):
        return None
    return Parts(submodels, task, level)


def _refuse(scenario: Scenario, method: Method) -> None:
    """Refuse parts of the server that need clients with the whole model."""
    refuse_whole(scenario.server.method.create(method.context))
    if STATE in (*method.memories(), *(vector.name for vector in method.upload())):
        raise UserError(
            "the state of optimizers cannot be kept or sent with submodels",
            where="training.optimizer_state",
            hint="use optimizer_state: reset",
        )
    if method.merges and scenario.server.submodels.name != "ranks":
        raise UserError(
            f"{method.title} sends whole matrices, of which a client cannot have a part",
            where=_WHERE,
            hint="use ranks, which gives the adapters of each client their own rank",
        )
    compression = scenario.server.compression
    for way, part in (("up", compression.up), ("down", compression.down)):
        if part.type.by_tensor:
            raise UserError(
                f"{part.name} does not work with submodels: it needs the matrices of the whole model",
                where=f"server.compression.{way}",
                hint="use another compression, such as qsgd, eden or topk",
            )


def _by_deadline(devices: Devices, method: Method, parts: Parts) -> Ints:
    """The largest part with which a dispatch ends within the schedule's limit, or the smallest."""
    schedule = devices.scenario.server.schedule
    limit_s = schedule.type.demands(schedule.params).limit_s
    if limit_s is None:
        raise UserError(
            "parts are chosen by the deadline, but the schedule has none",
            where=f"{_WHERE}.by",
            hint=f"give server.schedule a {schedule.type.patience or 'deadline, such as that of sync'}, or choose by: "
            "memory or speed",
        )
    levels = range(len(parts.rates))
    in_time = []
    for level in levels:
        parts.level[:] = level
        population = devices.population(method, parts)
        step_s = population.compute.step_s
        sizes = [
            devices.bytes_of(way, method, parts, level)
            for way in (method.download(), method.upload())
        ]
        down_s, up_s = transfers_s(population.network, np.arange(len(step_s)), sizes)
        in_time.append(devices.work.nominal_steps(step_s) * step_s + down_s + up_s <= limit_s)
    fits = np.stack(in_time)
    return np.where(fits.any(axis=0), fits.argmax(axis=0), len(levels) - 1)
