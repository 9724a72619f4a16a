"""Handles one message with a ClientApp: the same function in every kind of worker, for the same results."""

from __future__ import annotations

import contextlib
import datetime
import sys
import time
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.nn.modules import module as torch_module
from torch.optim import optimizer as torch_optimizer

from fedsim.flower import internals as fl
from fedsim.flower.clock import on_node, thread_on
from fedsim.randomness import isolated, watched

_HAS_ACCELERATOR = torch.accelerator.is_available()


@dataclass(frozen=True, slots=True)
class Job:
    """One message for a ClientApp, as plain data that can go to another process.

    Attributes:
        message: the serialized message.
        node_id, node_config, state: the node, its configuration and its state (a serialized ``RecordDict``).
        run_config: the app's configuration.
        reply_id: id of the reply.
        delivered_s: when the message arrives at the node, in seconds since 1970.
        seed: seed of the global random generators.
        threads: threads of PyTorch.
    """

    message: bytes
    node_id: int
    node_config: Mapping[str, Any]
    state: bytes
    run_config: Mapping[str, Any]
    reply_id: str
    delivered_s: float
    seed: int
    threads: int


@dataclass
class Counts:
    """The work of one message.

    Attributes:
        steps: steps of PyTorch optimizers.
        batches, examples: batches and examples that passed a PyTorch model.
        trained: the examples among them that passed with gradients.
        host_s: CPU seconds of the host.
    """

    steps: int = 0
    batches: int = 0
    examples: int = 0
    trained: int = 0
    host_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a :class:`Job`.

    Attributes:
        reply: the serialized reply.
        state: the node's new state.
        counts: the work done.
        num_examples: examples that the reply reports (``num-examples``); 0 if it reports none.
        problem: the traceback of the app's error; None without an error.
        slept_ns: simulated nanoseconds that the app has slept or waited.
        unseeded: line of the app at which a generator took its seed from the system; empty if none did.
    """

    reply: bytes
    state: bytes
    counts: Counts = field(default_factory=Counts)
    num_examples: int = 0
    problem: str | None = None
    slept_ns: int = 0
    unseeded: str = ""


def answer(app: fl.ClientApp, job: Job) -> Answer:
    """Handle a message; an error of the app becomes an error reply, as in Flower.

    The global random generators are seeded before and restored afterward, so that results do not depend on where or in
    which order messages are handled.
    """
    message = fl.message_from_proto(fl.MessageProto.FromString(job.message))
    context = fl.Context(
        run_id=message.metadata.run_id,
        node_id=job.node_id,
        node_config=dict(job.node_config),
        state=fl.recorddict_from_proto(fl.RecordDictProto.FromString(job.state)),
        run_config=dict(job.run_config),
    )
    if torch.get_num_threads() != job.threads:
        torch.set_num_threads(job.threads)
    # Messages carry simulated time, from which the time to live of a reply is computed.
    delivered = datetime.datetime.fromtimestamp(job.delivered_s, datetime.UTC)
    problem, examples, unseeded = None, 0, list[str]()
    with (
        thread_on(None),
        isolated(job.seed),
        watched(unseeded.append),
        fl.messages_made_at(delivered),
        fl.identity(message.metadata.run_id, job.node_id),
        on_node() as node,
    ):
        if _HAS_ACCELERATOR:
            # Also the generator of a device that the app will be the first to use.
            torch.manual_seed(job.seed)
        try:
            with counted() as counts:
                reply = app(message, context)
            if not isinstance(reply, fl.Message):
                raise TypeError(
                    f"the ClientApp returned a {type(reply).__name__} instead of a Message"
                )
            examples = _examples(reply)
            state = fl.recorddict_to_proto(context.state).SerializeToString()
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # sys.exit included: a node that exits ends nothing else.
            problem, state = apps_traceback(error), job.state
            reason = f"{type(error)}:<'{error}'>"
            code = fl.ErrorCode.CLIENT_APP_RAISED_EXCEPTION
            reply = fl.Message(fl.Error(code=code, reason=reason), reply_to=message)
    reply.metadata.__dict__["_message_id"] = job.reply_id
    line = "".join(unseeded)
    return Answer(serialized(reply), state, counts, examples, problem, node.now_ns, line)


def _examples(reply: fl.Message) -> int:
    """The number of examples that a reply reports; 0 if it reports none."""
    examples: float = 0
    for record in reply.content.metric_records.values() if reply.has_content() else ():
        value = record.get("num-examples", record.get("num_examples"))
        if isinstance(value, int | float):
            examples = value
            if not 0 <= value <= 2**53:  # NaN is not, either.
                raise ValueError(f"the reply has num-examples {value}, not 0 or more")
    return int(examples)


def serialized(message: fl.Message) -> bytes:
    """The bytes of a message."""
    content = fl.recorddict_to_proto(message.content) if message.has_content() else None
    error = fl.error_to_proto(message.error) if message.has_error() else None
    proto = fl.MessageProto(
        metadata=fl.metadata_to_proto(message.metadata), content=content, error=error
    )
    return proto.SerializeToString()  # type: ignore[no-any-return]


def apps_traceback(error: BaseException) -> str:
    """The traceback of an app's error, from the first line outside Flower and fedsim on; without one, the error."""
    trace = error.__traceback__
    while trace is not None:
        name = trace.tb_frame.f_globals.get("__name__", "").partition(".")[0]
        if name not in ("flwr", "fedsim"):
            break
        trace = trace.tb_next
    return "".join(traceback.format_exception(type(error), error, trace))


def importable(app: fl.ClientApp) -> str | None:
    """``module:attribute`` of an app that is a global of an imported module; None if it is not."""
    for name, module in list(sys.modules.items()):
        if name == "__main__":
            continue
        for key, value in list(getattr(module, "__dict__", {}).items()):
            if value is app:
                return f"{name}:{key}"
    return None


# -- the work that a ClientApp does ------------------------------------------------------------------------------------

_counts: Counts | None = None
_depth = 0
_handles: list[Any] = []
"""The hooks, which are registered once, because registering takes milliseconds."""


@contextlib.contextmanager
def counted() -> Iterator[Counts]:
    """Count the work done in this process while the context lasts.

    Only outermost modules count as models, so a layer within a model does not count again. The examples of a batch are
    the length of the first dimension of the model's first tensor.
    """
    global _counts, _depth
    if not _handles:
        _handles.extend(
            (
                torch_module.register_module_forward_pre_hook(_entered),
                torch_module.register_module_forward_hook(_left, always_call=True),
                torch_optimizer.register_optimizer_step_post_hook(_stepped),
            )
        )
    _counts = counts = Counts()
    _depth = 0
    began = time.process_time()
    try:
        yield counts
    finally:
        counts.host_s = time.process_time() - began
        _counts = None


def stop_counting() -> None:
    """Remove the hooks from PyTorch."""
    while _handles:
        _handles.pop().remove()


def _entered(_: Any, inputs: tuple[Any, ...]) -> None:
    global _depth
    if _counts is None:
        return
    _depth += 1
    if _depth > 1:
        return
    tensor = next((item for item in inputs if isinstance(item, torch.Tensor)), None)
    size = 1 if tensor is None or not tensor.dim() else int(tensor.shape[0])
    _counts.batches += 1
    _counts.examples += size
    if torch.is_grad_enabled():
        _counts.trained += size


def _left(*_: Any) -> None:
    global _depth
    _depth -= _counts is not None


def _stepped(*_: Any) -> None:
    if _counts is not None:
        _counts.steps += 1
