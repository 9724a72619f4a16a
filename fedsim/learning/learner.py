"""The learning plane: executes the timeline, behind the time plane, in waves.

The content of a wave follows from the timeline alone, so that the same timeline gives the same bits.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedsim.errors import InvariantViolation, UserError
from fedsim.learning.device import reproducible, return_freed_memory
from fedsim.learning.evaluation import ClientMetrics, Measurement
from fedsim.learning.memory import StateStore
from fedsim.learning.metrics import Metric
from fedsim.learning.pending import Models, Pending, evaluation_key
from fedsim.learning.replay import Replay
from fedsim.learning.server_side import ServerSide, sections_of
from fedsim.learning.updates import LossLedger
from fedsim.learning.workers import Pool, Station, Workers, make_workers
from fedsim.learning.workers.distributed import Ranks
from fedsim.methods.base import Method, ServerState
from fedsim.processes.launch import Launch
from fedsim.scenario.model import Evaluation
from fedsim.vocabulary.arrays import Floats
from fedsim.vocabulary.metrics import MetricDefinition
from fedsim.vocabulary.timeline import Adopt, Aggregate, Evaluate, Gather, Instruction, Train

Checkpoint = tuple[Mapping[str, Tensor], Mapping[str, Any]]
"""Named tensors, and data for JSON."""

# Maximum number of dispatches trained, and of versions evaluated, together: enough to fill the hardware, and few
# enough that a run can be stopped, and its metrics seen, while it is in progress.
_CPU_PENDING = 256
_CUDA_PENDING = 2048
_PENDING_EVALUATIONS = 32
_PENDING_S = 10.0
"""Maximum wall time of pending training, estimated from the last execution, and wall time after which instructions are
executed even if fewer are pending: until then there is no checkpoint, and a run cannot stop."""
_RETURN_S = 10.0
"""Wall time after which freed memory is returned to the system."""
_PENDING_FLOPS = {"cpu": 10**11, "cuda": 10**14}
"""The same in operations, on CUDA and with several ranks, whose waves must follow from the timeline alone."""
_FIRST_PENDING = 16
"""Maximum number of dispatches trained together before there is such an estimate."""
# Personal models assembled at once when they are saved.
_PERSONAL_ROWS = 64


class Learner:
    """Executes the timeline: a :class:`fedsim.vocabulary.timeline.LearningPlane`.

    Instructions are kept until enough of them are pending, then executed in waves: all dispatches that a pending
    aggregation needs and whose version exists (of clients with memories at most one, in the order of submission);
    then every aggregation and evaluation that is ready, in order; and so on. Updates that no aggregation uses are never
    trained. With ``training.verify: eager`` every instruction is executed when it is submitted, one dispatch at a time.

    Args:
        station, evaluation, metrics: task, method and device; the evaluation section, and its metrics on test samples.
        cloud: the method of the cloud, if the station's is that of edge servers.
        ranks: the processes of the run, each of which has a learner like this one; by default only this one.
        workers: what trains; the threads of the station's devices if None.
        folder: folder for rows that do not fit into memory; the system's temporary folder if None.
        checkpoint: the :meth:`state` of an earlier learner. The timeline is then submitted again from its beginning;
            what the checkpoint contains is not executed again, but its metrics are delivered again.
        on_metrics: receives the result of every submitted evaluation, in order.
        on_rest: called with the learner whenever everything submitted has been executed; the moment for a checkpoint.
        on_version: called after every aggregation with it and with the learner, which is then at that version; or with
            None instead of the learner if the checkpoint contains the aggregation.

    Attributes:
        rests_anywhere: whether :meth:`flush` may be called at any moment; on CUDA, last bits depend on it, and several
            processes must call it at the same one.

    Raises:
        UserError: the checkpoint was written with another kernel, device type or precision.
    """

    def __init__(
        self,
        station: Station,
        evaluation: Evaluation | None = None,
        *,
        metrics: Sequence[Metric] = (),
        cloud: Method | None = None,
        ranks: Ranks | None = None,
        workers: Workers | None = None,
        folder: Path | None = None,
        checkpoint: Checkpoint | None = None,
        on_metrics: Callable[[Evaluate, Mapping[str, float]], None] = lambda *_: None,
        on_rest: Callable[[Learner], None] = lambda _: None,
        on_version: Callable[[Aggregate, Learner | None], None] = lambda *_: None,
    ) -> None:
        self.station = station
        self._on_metrics = on_metrics
        self._on_rest = on_rest
        self._on_version = on_version
        self._eager = station.training.verify == "eager"
        device = station.execution.device.type
        self._ranks = ranks = ranks or Ranks(Launch())
        self.rests_anywhere = device != "cuda" and ranks.count == 1
        self._most_pending = _CUDA_PENDING if device == "cuda" else _CPU_PENDING
        self._most_flops = _PENDING_FLOPS[device]
        self._pending_flops = 0
        self._contribution_s = _PENDING_S / _FIRST_PENDING
        self._rested_at = self._returned_at = time.perf_counter()

        # Evaluates, and trains if training runs in this process on one device.
        self._pool = Pool(station.threads)
        self.workers = workers or make_workers(station, self._pool, ranks)
        self._side = ServerSide(station, folder, in_place=ranks.count == 1)
        # The side of the only server, or of the cloud, and the dispatches whose updates it has gathered.
        self._top = self._side if cloud is None else ServerSide(station, folder, cloud)
        self._gathered: dict[int, Train] = {}
        personal = station.method.personal
        self._pending = Pending(
            one_per_client=bool(self.store.of_clients),
            evaluations_in_order=personal,
            has_cloud=cloud is not None,
        )
        self._measure_at_once = personal
        self._measurement = Measurement(station, evaluation or Evaluation(), metrics, self.store)
        self._unmeasured: list[tuple[Evaluate, ServerState]] = []
        self._losses = LossLedger()
        self._answers: dict[str, Mapping[str, float]] = {}
        # By version; a resumed run, which submits the timeline again, reads them again.
        self._accuracies: dict[int, Floats] = {}
        self._replay = Replay()
        # The number of instructions that a checkpoint contains, and the dispatches among them that were not trained.
        self._executed_before = 0
        self._untrained_before: frozenset[int] = frozenset()
        if checkpoint is not None:
            self._restore(*checkpoint)

    # -- the timeline -------------------------------------------------------------------------------------------------

    def hold(self, model: int, edge: int = -1) -> None:
        """Keep the vectors of a server's ``model`` that a dispatch was sent."""
        self._models(edge).hold(model)

    def drop(self, model: int, edge: int = -1) -> None:
        """Record that a dispatch of a server's ``model`` has ended and will not be trained."""
        self._models(edge).release(model)

    def sent(self, version: int) -> Mapping[str, Tensor]:
        """The vectors that clients get with a version that is held, (elements,) by name."""
        return self._top.models().sent[version]

    def _models(self, edge: int) -> Models:
        return (self._top if edge < 0 else self._side).models(edge)

    def submit(self, instruction: Instruction) -> None:
        """Append an instruction, to be executed now or later.

        Raises:
            TimelineDiffers: the checkpoint continues another timeline.
        """
        self._replay.submitted(instruction)
        if len(self._replay) <= self._executed_before:
            self._submit_again(instruction)
            return
        if isinstance(instruction, Train):
            self._submit_train(instruction)
            return
        if isinstance(instruction, Aggregate | Adopt):
            self._models(instruction.edge).announce(instruction.model)
        if isinstance(instruction, Adopt):
            # The dispatch for which it is adopted may end before this is executed.
            self.hold(instruction.version)
        self._pending.add(instruction)
        if self._is_due():
            self.flush()

    def _is_due(self) -> bool:
        contributions = self._pending.contributions
        many = contributions >= self._most_pending
        if self._eager or many or self._pending.evaluations >= _PENDING_EVALUATIONS:
            return True
        if not self.rests_anywhere:
            return self._pending_flops >= self._most_flops
        waited_s = time.perf_counter() - self._rested_at
        return max(contributions * self._contribution_s, waited_s) >= _PENDING_S

    def evaluate(self, instruction: Evaluate) -> Mapping[str, float]:
        """Execute everything submitted and measure the newest version (a barrier); returns values by metric name."""
        key = evaluation_key(instruction)
        if len(self._replay) <= self._executed_before and key in self._answers:
            return self._answers[key]
        self.flush()
        if key not in self._answers:
            with reproducible(tf32=self.station.execution.tf32):
                (self._answers[key],) = self._measured([self.server])
        return self._answers[key]

    def training_losses(self, dispatch_ids: Sequence[int]) -> Floats:
        """Training losses of dispatches that were submitted (a barrier).

        Raises:
            UserError: a loss is not finite.
        """
        if self._losses.lack(dispatch_ids):
            self.flush()
            with reproducible(tf32=self.station.execution.tf32):
                while wave := self._wave(dispatch_ids):
                    self._train(wave)
        return self._losses.of(dispatch_ids)

    def client_accuracies(self, version: int) -> Floats:
        """Accuracy of the newest version on each client's own test samples, (N,), NaN without any (a barrier).

        Raises:
            UserError: no client has test samples.
            TimelineDiffers: the checkpoint continues a timeline without this request.
        """
        if version not in self._accuracies:
            if len(self._replay) < self._executed_before:
                raise self._replay.difference(
                    f"clients' accuracies at version {version} are requested, which were not before"
                )
            clients = self.client_metrics()
            if clients is None:
                raise UserError(
                    "clients are selected by their accuracy on their own test samples, but have none",
                    where="server.selection",
                    hint="give clients test samples (such as task.partition.test: split), or choose another selection",
                )
            self._accuracies[version] = clients.accuracy
        return self._accuracies[version]

    # -- execution ----------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Execute everything that was submitted."""
        pending = self._pending
        if not pending:
            return
        began, contributions = time.perf_counter(), pending.contributions
        with reproducible(tf32=self.station.execution.tf32):
            while pending:
                # Step 1: train the dispatches that the waiting instructions need and whose versions exist.
                wave = self._wave(pending.needed())
                if wave:
                    self._train(wave)
                # Step 2: aggregate and evaluate in order, up to the first instruction that lacks an update.
                if not self._run_ready() and not wave:
                    raise InvariantViolation(
                        f"{pending.head} uses a dispatch that was never submitted for training"
                    )
            # Step 3: measure the versions to be evaluated, several at once.
            self._measure_due()
            self._losses.settle()
        self._pending_flops = 0
        if contributions:
            self._contribution_s = (time.perf_counter() - began) / contributions
        self._on_rest(self)
        self._rested_at = time.perf_counter()
        if self._rested_at - self._returned_at >= _RETURN_S:
            return_freed_memory()
            self._returned_at = self._rested_at

    def start(self) -> None:
        """Check that all processes of the run would compute the same bits."""
        self._ranks.require_same(self.station.describe())
        waiting = self._side.waiting
        waiting.most_in_wave = min(self._ranks.values(waiting.most_in_wave))

    def close(self) -> None:
        """Execute what is pending and end the workers.

        Raises:
            TimelineDiffers: the timeline has ended before that of the checkpoint.
        """
        self._replay.ended()
        self.flush()
        self._ranks.require_equal(self._checksum)
        self.stop()

    def stop(self) -> None:
        """End the workers without executing what is pending."""
        self.workers.stop()
        self._pool.stop()

    def _wave(self, dispatch_ids: Iterable[int]) -> list[Train]:
        most = self._side.waiting.most_in_wave
        return self._pending.wave(dispatch_ids, self._side.has_model_of, most)

    def _train(self, wave: Sequence[Train]) -> None:
        self._ranks.require_equal(partial(self._checksum, wave))
        groups = self.station.groups(wave, self.workers.count)
        updates = self.workers.train([self._side.group(trains) for trains in groups])
        for trains, update in zip(groups, updates, strict=True):
            self._side.receive(trains, update)
            self._losses.note([train.dispatch_id for train in trains], update.loss)
        for train in wave:
            self._pending.mark_trained(train)

    def _checksum(self, wave: Sequence[Train] = ()) -> int:
        """The CRC-32 of the newest server state, and of the numbers of dispatches."""
        value = zlib.crc32(np.array([train.dispatch_id for train in wave]).data)
        for tensor in self._top.current.values():
            bits = tensor.detach().cpu().contiguous().view(-1).view(torch.uint8)
            value = zlib.crc32(bits.numpy().data, value)
        return value

    def _run_ready(self) -> bool:
        """Execute the instructions at the head of the queue whose updates are ready; returns whether there was any."""
        pending, waiting = self._pending, self._side.waiting
        before = len(pending)
        while pending:
            head, executed = pending.head, 1
            if isinstance(head, Evaluate):
                # It was submitted while its version was the newest, so it is again.
                self._unmeasured.append((head, self.server))
                if self._measure_at_once:
                    self._measure_due()
            elif isinstance(head, Train):
                if head.dispatch_id not in waiting:
                    break
                waiting.drop(head.dispatch_id)
                del pending.trains[head.dispatch_id]
            elif isinstance(head, Adopt):
                self._side.adopt(head, self._top)
                self.drop(head.version)
            elif isinstance(head, Gather):
                self._top.gather(head, self._side)
                self._gathered[head.train.dispatch_id] = head.train
            else:
                of_cloud = head.edge < 0 and self._top is not self._side
                side = self._top if of_cloud else self._side
                submitted = self._gathered if of_cloud else pending.trains
                ready = pending.ready(side.waiting.__contains__, side.waiting.in_product)
                if not ready:
                    break
                trains = [
                    [submitted.pop(item.dispatch_id) for item in one.contributions] for one in ready
                ]
                states = side.combined(ready, trains)
                for one, of_one, state in zip(ready, trains, states, strict=True):
                    side.aggregate(one, of_one, state)
                    if one.edge < 0:
                        self._on_version(one, self)
                executed = len(ready)
            pending.pop(executed)
        return len(pending) < before

    def _measure_due(self) -> None:
        """Carry out the evaluations that are due, several versions at once, and deliver their metrics in order."""
        due, self._unmeasured = self._unmeasured, []
        states = {instruction.version: state for instruction, state in due}
        measured = dict(zip(states, self._measured(list(states.values())), strict=True))
        for instruction, _ in due:
            metrics = self._answers[evaluation_key(instruction)] = measured[instruction.version]
            self._on_metrics(instruction, metrics)

    def _measured(self, states: Sequence[ServerState]) -> list[Mapping[str, float]]:
        """The metrics of these states; each rank measures some."""
        measure: Callable[[ServerState], Mapping[str, float]] = self._measurement.measure
        return self._ranks.map(self._pool.map, measure, states)

    # -- submission ---------------------------------------------------------------------------------------------------

    def _submit_train(self, train: Train) -> None:
        self._pending.add(train)
        self._pending_flops += train.steps * self.station.step_flops
        if self._eager:
            with reproducible(tf32=self.station.execution.tf32):
                self._train([train])

    def _submit_again(self, instruction: Instruction) -> None:
        """Process an instruction that the checkpoint contains, without executing it again."""
        if isinstance(instruction, Aggregate | Adopt):
            self._models(instruction.edge).announce(instruction.model)
            if isinstance(instruction, Aggregate) and instruction.edge < 0:
                self._on_version(instruction, None)
        elif isinstance(instruction, Gather):
            train = instruction.train
            self.drop(train.version)
            self.drop(instruction.model, train.client)
            if train.dispatch_id in self._top.waiting:
                self._gathered[train.dispatch_id] = train
        elif isinstance(instruction, Evaluate):
            self._on_metrics(instruction, self._answers[evaluation_key(instruction)])
        elif instruction.dispatch_id in self._untrained_before:
            self._submit_train(instruction)
        else:
            self.drop(instruction.model, instruction.edge)
            if instruction.dispatch_id in self._side.waiting:
                self._pending.trains[instruction.dispatch_id] = instruction

    # -- results ------------------------------------------------------------------------------------------------------

    @property
    def version(self) -> int:
        """The newest version that was executed."""
        return self._top.models().number

    @property
    def server(self) -> ServerState:
        """The server state at :attr:`version`."""
        state = self._top.current
        return {**state, "model": state["model"].to(self.station.execution.dtype)}

    @property
    def store(self) -> StateStore:
        """Memories of the clients."""
        return self._side.store

    @property
    def metric_definitions(self) -> dict[str, MetricDefinition]:
        """Direction and unit of the metrics that the run may measure, by name."""
        return self._measurement.definitions

    def named_model(self) -> dict[str, Tensor]:
        """The global model at :attr:`version` by the names of its tensors, on the CPU."""
        model, task = self._measurement.used(self.server)["model"].cpu(), self.station.task
        views = task.layout.views(model)
        return {name: view.clone() for name, view in views.items()} | task.fixed(model.dtype)

    def personal_parts(self) -> dict[str, Tensor]:
        """The personal tensors of participating clients, on the CPU; empty if nothing is personal.

        ``clients`` (C,) int64, ascending, and each personal tensor of the model as (C, *shape).
        """
        method, layout = self.station.method, self.station.task.layout
        names, clients = method.personal_parts(), self.store.clients()
        if not names or not len(clients):
            return {}
        parts: dict[str, list[Tensor]] = {name: [] for name in names}
        for batch in np.array_split(clients, -(-len(clients) // _PERSONAL_ROWS)):
            models = method.personal_models(self.server, batch, self.store.rows(batch))
            views = layout.views(models.cpu().contiguous())
            for name, rows in parts.items():
                rows.append(views[name].clone())
        stacked = {name: torch.cat(rows) for name, rows in parts.items()}
        return {"clients": torch.from_numpy(clients), **stacked}

    def client_metrics(self) -> ClientMetrics | None:
        """Metrics of each client's own model (or the global one) on its own test samples; None if there are none."""
        self.flush()
        with reproducible(tf32=self.station.execution.tf32):
            return self._measurement.of_clients(self.server)

    def describe(self) -> dict[str, str | int]:
        """Everything that the bits of the results may depend on, and notes, for ``run.json``."""
        return {**self.station.describe(), **self.workers.described, **self.station.kernel.notes()}

    # -- checkpoints --------------------------------------------------------------------------------------------------

    def state(self) -> Checkpoint:
        """Everything that a resumed run needs, while nothing is pending: in ``on_rest``, or after :meth:`flush`.

        Rows of clients' memories are read on access, so that those on disk need not be in memory together: save or copy
        them before anything else is executed.
        """
        if self._pending:
            raise RuntimeError("instructions are pending; take the state in on_rest")
        tensors = self._side.tensors()
        if self._top is not self._side:
            tensors |= {f"cloud/{name}": value for name, value in self._top.tensors().items()}
            tensors |= self._top.store.tensors("cloud/memory/")
        self._losses.settle()
        tensors["losses"] = torch.from_numpy(self._losses.values.copy())
        tensors["timeline"] = self._replay.tensor()
        for version, accuracies in self._accuracies.items():
            tensors[f"accuracies/{version}"] = torch.from_numpy(accuracies)
        meta = {
            "learning": self.station.identity(),
            "version": self.version,
            "executed": len(self._replay),
            "untrained": self._pending.untrained(),
            "waiting": self._side.waiting.ids(),
            "answers": self._answers,
        }
        return self.store.tensors("memory/", tensors), meta

    def _restore(self, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> None:
        identity = self.station.identity()
        if meta["learning"] != identity:
            raise UserError(
                f"the checkpoint was written with {meta['learning']}, this run uses {identity}",
                where="checkpoint",
                hint="resume on the same kind of device with the same version of fedsim, or run the scenario again",
            )
        sections = sections_of(tensors)
        self._side.restore(int(meta["version"]), tensors)
        if self._top is not self._side:
            self._top.restore(int(meta["version"]), sections["cloud"])
        self._losses.values = tensors["losses"].numpy().copy()
        self._replay.expect(tensors["timeline"])
        self._accuracies = {
            int(name): value.numpy().copy()
            for name, value in sections.get("accuracies", {}).items()
        }
        self._executed_before = int(meta["executed"])
        self._untrained_before = frozenset(meta["untrained"])
        self._answers = {key: dict(values) for key, values in meta["answers"].items()}
