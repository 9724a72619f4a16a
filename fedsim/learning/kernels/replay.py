"""Records steps of many small operations as a CUDA graph, which is replayed with one launch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fedsim.errors import UserError

# A step is recorded after it has been executed this often; recording rarer steps does not pay.
_SIGHTINGS = 2
# Maximum number of recordings; the least recently used one is dropped.
_MOST_RECORDINGS = 256


@dataclass(frozen=True, slots=True)
class _Recording:
    """A recorded graph, and the memory that it reads and writes."""

    graph: torch.cuda.CUDAGraph
    fixed: list[Tensor]
    given: list[Tensor]
    result: Tensor


class Replay:
    """Calls functions of tensors; where it records, the operations they launch are replayed from then on.

    Most of a local step of small models is the time that starting its operations takes, one after the other. A
    recorded function must launch the same operations whatever the values of its tensors, and must not wait for any.

    Args:
        device: of the tensors.
        records: whether to record; only on CUDA.
    """

    def __init__(self, device: torch.device, *, records: bool) -> None:
        self.records = records
        self._device = device
        self._seen: Counter[tuple[Any, ...]] = Counter()
        self._recordings: dict[tuple[Any, ...], _Recording] = {}
        # All recordings share memory, for which they must be made on one stream; one replays at a time.
        self._stream: torch.cuda.Stream | None = None
        self._pool: Any = None

    def __call__(
        self, function: Callable[..., Tensor], fixed: Sequence[Tensor], given: Sequence[Tensor]
    ) -> Tensor:
        """``function(*fixed, *given)``.

        Args:
            function: the same object for the same operations.
            fixed: tensors that lie in the same memory at every call, which ``function`` may change.
            given: tensors that may lie elsewhere every time, and are not changed.

        Returns:
            What the function returns; valid until the next call.

        Raises:
            UserError: the function cannot be recorded.
        """
        if not self.records:
            return function(*fixed, *given)
        key = (function, *map(_location, fixed), *map(_shape, given))
        recording = self._recordings.pop(key, None)
        if recording is None:
            self._seen[key] += 1
            if self._seen[key] <= _SIGHTINGS:
                return function(*fixed, *given)
            recording = self._record(function, fixed, given)
            if len(self._recordings) >= _MOST_RECORDINGS:
                del self._recordings[next(iter(self._recordings))]
        self._recordings[key] = recording
        torch._foreach_copy_(recording.given, list(given))
        recording.graph.replay()
        return recording.result

    def _record(
        self,
        function: Callable[..., Tensor],
        fixed: Sequence[Tensor],
        given: Sequence[Tensor],
    ) -> _Recording:
        copies = [tensor.clone() for tensor in given]
        if self._stream is None:
            self._stream = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        stream, graph = self._stream, torch.cuda.CUDAGraph()
        # On this stream once before, with copies: libraries prepare themselves for every stream.
        stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(stream):
            function(*(tensor.clone() for tensor in fixed), *copies)
            torch.cuda.synchronize(self._device)
            # Other threads may work on other devices meanwhile.
            graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
            try:
                try:
                    result = function(*fixed, *copies)
                finally:
                    graph.capture_end()
            except RuntimeError as error:
                raise UserError(
                    f"a local step cannot be recorded as a CUDA graph: {error}",
                    where="training.cuda_graphs",
                    hint="set it to false",
                ) from error
        torch.cuda.current_stream(self._device).wait_stream(stream)
        self._pool = graph.pool()
        return _Recording(graph, list(fixed), copies, result)


def _location(tensor: Tensor) -> tuple[Any, ...]:
    return (tensor.data_ptr(), *_shape(tensor))


def _shape(tensor: Tensor) -> tuple[Any, ...]:
    return (tensor.dtype, tuple(tensor.shape), tensor.stride())
