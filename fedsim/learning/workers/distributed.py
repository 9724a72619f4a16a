"""Workers in the processes (ranks) that torchrun or srun started.

Every rank executes the whole timeline, trains a share of the groups of a wave, and receives the updates of the others,
so that all have the same states, and the bits of a run are those of one process.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import re
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from fedsim.errors import ProcessLost, UserError, reason
from fedsim.learning.workers.station import mapped
from fedsim.methods.base import LocalUpdate
from fedsim.processes.launch import Launch
from fedsim.vocabulary.formatting import format_duration

_WHERE = "training.workers"
_PORT, _PORTS = 12_000, 20_000
_TIMEOUT = timedelta(minutes=15)
"""Longest time that a rank waits for the others, which may train or evaluate longer than it does."""
_PATIENCE_S = 5.0
"""Seconds after which a process says that it waits for others."""

_Value = TypeVar("_Value")
_Item = TypeVar("_Item")


class Ranks:
    """The processes of one run, which call the same methods in the same order.

    Args:
        launched: this process among them.
        on_cuda: whether each rank uses one of the CUDA devices of its machine, and exchanges tensors by NCCL.

    Attributes:
        number: number of this rank; rank 0 writes the run.
        count: number of ranks.
    """

    def __init__(self, launched: Launch, *, on_cuda: bool = False) -> None:
        self.number, self.count = launched.rank, launched.count
        self._store: Any = None
        self._device = torch.device("cpu")
        if on_cuda:
            self._device = torch.device("cuda", launched.local % torch.cuda.device_count())
            torch.cuda.set_device(self._device)
        # They stay together until the process ends, for further runs.
        if self.count > 1 and not dist.is_initialized():
            self._join("cpu:gloo,cuda:nccl" if on_cuda else "gloo")
            atexit.register(dist.destroy_process_group)

    def _join(self, backend: str) -> None:
        missing = threading.Timer(_PATIENCE_S, self._say_that_it_waits)
        missing.daemon = True
        missing.start()
        try:
            # Two jobs on one machine must not meet.
            job, step = (int(os.environ.get(f"SLURM_{name}_ID", 0)) for name in ("JOB", "STEP"))
            os.environ.setdefault("MASTER_PORT", str(_PORT + (16 * job + step) % _PORTS))
            if "MASTER_ADDR" not in os.environ:
                raise ValueError("MASTER_ADDR is not set")
            with _interruptible():
                address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
                is_master = self.number == 0 and "TORCHELASTIC_USE_AGENT_STORE" not in os.environ
                listening: dict[str, Any] = {}
                if address in ("localhost", "127.0.0.1"):
                    # On one machine, nobody else may connect: torch would listen on all addresses.
                    address = "127.0.0.1"
                    if sys.platform == "linux":
                        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
                    if is_master:
                        server = socket.create_server((address, port))
                        listening["master_listen_fd"] = server.detach()
                # As torch's env:// does, apart from where it listens.
                self._store = dist.TCPStore(  # type: ignore[attr-defined]
                    address,
                    port,
                    self.count,
                    is_master=is_master,
                    timeout=_TIMEOUT,
                    wait_for_workers=False,
                    multi_tenant=True,
                    **listening,
                )
                dist.init_process_group(
                    backend,
                    store=self._store,
                    timeout=_TIMEOUT,
                    rank=self.number,
                    world_size=self.count,
                )
        except Exception as error:  # Sockets and torch refuse values of variables in many ways.
            raise UserError(
                f"the {self.count} processes of the run do not find each other: {_sentence(error)}",
                where=_WHERE,
                hint="start them with torchrun, or with srun after: "
                "export MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1); if another program "
                "uses the port, export MASTER_PORT, too",
            ) from error
        finally:
            missing.cancel()

    def _say_that_it_waits(self) -> None:
        """On rank 0, and on a rank that has not reached it."""
        if self._store is not None and self.number:
            return
        address = f"{os.environ.get('MASTER_ADDR')}:{os.environ['MASTER_PORT']}"
        limit = format_duration(_TIMEOUT.total_seconds())
        warning = UserError(
            f"rank {self.number} of {self.count} waits for the others at {address} (MASTER_ADDR and MASTER_PORT) for "
            f"up to {limit}",
            where=_WHERE,
            hint="if it takes long, check that all processes were started, with the same address and "
            "port",
        )
        logging.getLogger("fedsim").warning("warning: %s", warning)

    def part(self) -> None:
        """Wait until all ranks have done their work."""
        # The one that comes last may find that the others have left.
        with contextlib.suppress(ProcessLost):
            self.values(None)

    # -- communication ------------------------------------------------------------------------------------------------

    def updates(self, here: Iterable[LocalUpdate], groups: int) -> Iterator[LocalUpdate]:
        """The updates of all groups of a wave, in order, from those of each :attr:`count`-th one, computed ``here``."""
        if self.count == 1:
            yield from here
            return
        computed = list(here)
        shapes = self.values([mapped(lambda rows: rows.to("meta"), each) for each in computed])
        for index in range(groups):
            number, owner = divmod(index, self.count)
            update = (computed if owner == self.number else shapes[owner])[number]
            yield mapped(partial(self._sent, owner), update)

    def _sent(self, owner: int, rows: Tensor) -> Tensor:
        if self.number == owner:
            rows = rows.contiguous()
        else:
            rows = torch.empty(rows.shape, dtype=rows.dtype, device=self._device)
        with self._together():
            dist.broadcast(rows.view(-1).view(torch.uint8), owner)
        return rows

    def values(self, value: _Value) -> list[_Value]:
        """The values of all ranks, which must be picklable and small."""
        result: list[Any] = [value]
        if self.count > 1:
            result = [None] * self.count
            with self._together():
                dist.all_gather_object(result, value)
        return result

    @contextlib.contextmanager
    def _together(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            raise ProcessLost(
                f"another process of the run was lost: {_sentence(error)}",
                where=_WHERE,
                hint="its own output may say why; 'fedsim resume' continues from the last checkpoint, with any number "
                "of processes",
            ) from error

    def require_same(self, here: Mapping[str, str | int]) -> None:
        """Check that all ranks would compute the same bits.

        Args:
            here: :meth:`Station.describe` of this rank.
        """
        for there in self.values(dict(here)):
            known = there if isinstance(there, dict) else {}  # Of a rank that does something else.
            for name in here:
                if name != "threads" and known.get(name) != here[name]:
                    raise UserError(
                        f"a process of the run would give different results: {name} is {known.get(name)} there and "
                        f"{here[name]} here",
                        where=_WHERE,
                        hint="use the same command, machines of one kind, and the same versions of libraries",
                    )

    def require_equal(self, checksum: Callable[[], int]) -> None:
        """Check that all ranks have the same state, of which a single rank needs no checksum."""
        if self.count > 1 and len(set(self.values(checksum()))) > 1:
            raise UserError(
                "the processes of the run have computed different models: a part of the scenario is not reproducible, "
                "or they have not read the same files",
                where=_WHERE,
                hint="'fedsim scenario check --replay' names the part",
            )

    def map(
        self,
        work: Callable[[Callable[[_Item], _Value], Sequence[_Item]], Iterator[_Value]],
        function: Callable[[_Item], _Value],
        items: Sequence[_Item],
    ) -> list[_Value]:
        """Results of ``function`` on all items, each computed by one rank, with ``work`` as its ``map``."""
        shares = self.values(list(work(function, items[self.number :: self.count])))
        return [shares[index % self.count][index // self.count] for index in range(len(items))]

    def agree(self, due: bool, signal: int | None) -> tuple[bool, int | None]:
        """Whether all write a checkpoint, and the signal for which all stop then.

        Args:
            due: whether a checkpoint is due; that of rank 0 counts.
            signal: the signal that this process has received, if any; that of any rank counts.
        """
        votes = self.values((due, signal))
        agreed = next((number for _, number in votes if number is not None), None)
        return votes[0][0] or agreed is not None, agreed


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """Let signals end the process at once while torch waits, in which Python would not receive them."""
    signals = (signal.SIGINT, signal.SIGTERM)
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = [signal.signal(number, signal.SIG_DFL) for number in signals]
    try:
        yield
    finally:
        for number, handler in zip(signals, before, strict=True):
            signal.signal(number, handler)


def _sentence(error: Exception) -> str:
    """The first sentence of an error, to which torch adds lines of code, advice and stacks."""
    return re.sub(r"^\[\S+:\d+\] ", "", reason(error)).partition(". ")[0]
