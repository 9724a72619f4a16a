"""Records steps of many small operations as a CUDA graph, which is replayed with one launch."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from fedsim.errors import UserError, refused

_LOGGER = logging.getLogger("fedsim")
# A step is recorded after it has been executed this often; recording rarer steps is not worthwhile.
_SIGHTINGS = 2
# Maximum number of recordings; the least recently used one is dropped.
_MOST_RECORDINGS = 64


@dataclass(frozen=True, slots=True)
class _Recording:
    """A recorded graph, and the memory that it reads and writes."""

    graph: torch.cuda.CUDAGraph
    fixed: list[Tensor]
    given: list[Tensor]
    result: Any


class Replay:
    """Calls functions that return tensors; if it records, the operations that they launch are replayed in later calls.

    For small models, most of the time of a local step is spent launching its operations one after the other. A
    recorded function must launch the same operations whatever the values of its tensors, and must not wait for any.
    If ``records`` is ``auto``, a step that cannot be recorded only ends the recording.

    Attributes:
        records: whether steps are recorded from now on.
        failure: why recording ended; None if it did not.
    """

    def __init__(self, device: torch.device, *, records: Literal["auto"] | bool) -> None:
        self.records = bool(records)
        self.failure: str | None = None
        self._required = records is True
        self._device = device
        self._seen: Counter[tuple[Any, ...]] = Counter()
        self._recordings: dict[tuple[Any, ...], _Recording] = {}
        # All recordings share memory, for which they must be made on one stream; one replays at a time.
        self._stream: torch.cuda.Stream | None = None
        self._pool: Any = None

    def __call__(
        self, function: Callable[..., Any], fixed: Sequence[Tensor], given: Sequence[Tensor]
    ) -> Any:
        """The result of ``function(*fixed, *given)``; valid until the next call.

        The ``fixed`` tensors, which the function may change, are in the same memory at every call; the ``given`` ones
        may be elsewhere.
        """
        if not self.records:
            return function(*fixed, *given)
        key = (function, *map(_location, fixed), *map(_shape, given))
        recording = self._recordings.pop(key, None)
        if recording is None:
            self._seen[key] += 1
            if self._seen[key] <= _SIGHTINGS:
                return function(*fixed, *given)
            try:
                recording = self._record(function, fixed, given)
            except (UserError, RuntimeError) as error:
                if self._required:
                    raise
                self._give_up(error)
                return function(*fixed, *given)
            if len(self._recordings) >= _MOST_RECORDINGS:
                del self._recordings[next(iter(self._recordings))]
        self._recordings[key] = recording
        torch._foreach_copy_(recording.given, list(given))
        recording.graph.replay()
        return recording.result

    def forget(self) -> None:
        """Drop all recordings and free their memory."""
        self._recordings.clear()
        self._pool = None

    def _give_up(self, error: Exception) -> None:
        self.records = False
        text = error.message if isinstance(error, UserError) else str(error)
        self.failure = (text.splitlines() or [type(error).__name__])[0]
        self._recordings.clear()
        _LOGGER.warning("CUDA graphs are off for the rest of the run: %s", self.failure)

    def _record(
        self, function: Callable[..., Any], fixed: Sequence[Tensor], given: Sequence[Tensor]
    ) -> _Recording:
        copies = [tensor.clone() for tensor in given]
        if self._stream is None:
            self._stream = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        stream, graph = self._stream, torch.cuda.CUDAGraph()
        # A first call on this stream, with copies, because libraries initialize themselves for every stream.
        stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(stream):
            function(*(tensor.clone() for tensor in fixed), *copies)
            torch.cuda.synchronize(self._device)
            # Other threads may be working on other devices.
            graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
            message, hint = (
                "a local step cannot be recorded as a CUDA graph",
                "set it to auto or false",
            )
            with refused(message, "training.cuda_graphs", hint, RuntimeError):
                try:
                    result = function(*fixed, *copies)
                finally:
                    graph.capture_end()
        torch.cuda.current_stream(self._device).wait_stream(stream)
        self._pool = graph.pool()
        return _Recording(graph, list(fixed), copies, result)


def _location(tensor: Tensor) -> tuple[Any, ...]:
    return (tensor.data_ptr(), *_shape(tensor))


def _shape(tensor: Tensor) -> tuple[Any, ...]:
    return (tensor.dtype, tuple(tensor.shape), tensor.stride())
