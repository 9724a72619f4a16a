"""A CUDA device that is not there: tensors on the CPU that claim to lie on it, and graphs of what they were part of.

Every operation on such tensors runs on the CPU, so results can be compared with the CPU's bit for bit. What a real
device refuses is refused: operations on tensors of both places, and, while a graph is recorded, anything that waits for
a value or takes one from the host. A graph replays the recorded operations on the recorded memory, and its results are
lost when another graph is replayed, because they may share memory.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from tests.learning.problems import Timeline, make_training
from tests.learning.timelines import execute

CPU, CUDA = torch.device("cpu"), torch.device("cuda", 0)
aten = torch.ops.aten
# These take tensors from anywhere: copies, and numbers of rows.
_BETWEEN = (
    aten.copy_.default,
    aten._to_copy.default,
    aten.index.Tensor,
    aten._index_put_impl_.default,
)
_TO_HOST = (
    aten._local_scalar_dense.default,
    aten.equal.default,
    aten.is_nonzero.default,
    aten.nonzero.default,
)


class There(Tensor):
    """A tensor of the CPU that claims to lie on the device."""

    inner: Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, inner: Tensor) -> "There":
        return torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined,no-any-return]
            cls,
            inner.size(),
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
        )

    def __init__(self, inner: Tensor) -> None:
        self.inner = inner

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        """What Python sees. Torch itself would look for the device's driver."""
        return CUDA

    @property
    def data(self) -> "There":  # type: ignore[override]
        """Itself, as modules are laid onto rows of a matrix by it."""
        return There(self.inner.detach())

    @data.setter
    def data(self, value: "There") -> None:
        torch.Tensor.data.__set__(self, value)  # type: ignore[attr-defined]
        self.inner = value.inner

    def data_ptr(self) -> int:
        """Where its numbers lie."""
        return self.inner.data_ptr()

    def __repr__(self) -> str:  # type: ignore[override]
        return f"There{tuple(self.shape)}"

    @classmethod
    def __torch_dispatch__(
        cls, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        return _dispatch(func, args, kwargs or {})


_recording: list["Graph"] = []
launches = [0]
"""Number of operations and graphs that the device has been given."""


def _on_device(value: Any) -> bool:
    return value is not None and torch.device(value).type == "cuda"


def _tensors(value: Any) -> Iterator[Tensor]:
    """The tensors of an operation's arguments or results. Torch's own walk over trees is slow: it takes any class."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _tensors(item)
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))


def _mapped(function: Callable[[Tensor], Tensor], value: Any) -> Any:
    """The same with another tensor in place of each."""
    if isinstance(value, Tensor):
        return function(value)
    if isinstance(value, (tuple, list)):
        return type(value)([_mapped(function, item) for item in value])
    if isinstance(value, dict):
        return {name: _mapped(function, item) for name, item in value.items()}
    return value


def _dispatch(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    tensors = list(_tensors((args, kwargs)))
    there = [x for x in tensors if isinstance(x, There)]
    if "device" in kwargs and kwargs["device"] is not None:
        wraps = _on_device(kwargs["device"])
        kwargs = kwargs | {"device": CPU}
    else:
        wraps = bool(there)
    if there and func not in _BETWEEN:
        strangers = [x for x in tensors if not isinstance(x, There) and x.ndim]
        assert not strangers, (
            f"{func} mixes the device with {[x.shape for x in strangers]} of the CPU"
        )
    if func is aten.copy_.default:
        wraps = isinstance(args[0], There)
    if _recording:
        waits = there and (func in _TO_HOST or not wraps)
        if waits or (func in _BETWEEN and wraps and len(there) < len(tensors)):
            raise RuntimeError(f"{func} is not permitted when stream is capturing")
    originals: dict[int, There] = {id(x.inner): x for x in there}

    def unwrap(x: Tensor) -> Tensor:
        return x.inner if isinstance(x, There) else x

    def wrap(x: Tensor) -> Tensor:
        same = originals.get(id(x))
        return There(x) if same is None else same

    inner_args, inner_kwargs = _mapped(unwrap, (tuple(args), kwargs))
    if _recording:
        _recording[-1].remember(_written(func, inner_args, inner_kwargs))
    result = func(*inner_args, **inner_kwargs)
    is_view = any(one.alias_info and not one.alias_info.is_write for one in func._schema.returns)
    launches[0] += wraps and not _recording and not is_view
    if _recording and wraps:
        _recording[-1].note(func, inner_args, inner_kwargs, result)
    return _mapped(wrap, result) if wraps else result


def _written(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Iterator[Tensor]:
    """The arguments that an operation changes."""
    for index, name in _written_arguments(func):
        yield from _tensors(args[index] if index < len(args) else kwargs.get(name))


@cache
def _written_arguments(func: Any) -> list[tuple[int, str]]:
    return [
        (index, argument.name)
        for index, argument in enumerate(func._schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    ]


class _Operations(TorchDispatchMode):
    """Makes tensors on the device where it is named, and runs what has none of them."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        return _dispatch(func, args, kwargs or {})


class _Moves(TorchFunctionMode):
    """What torch refuses for such a device before it comes to an operation."""

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if func is torch.Tensor.to:
            return _moved(args[0], args[1:], kwargs)
        if func is torch.Tensor.cpu:
            return _moved(args[0], (CPU,), {})
        if func in (torch.tensor, torch.as_tensor) and _on_device(kwargs.get("device")):
            return _moved(func(*args, **(kwargs | {"device": CPU})), (CUDA,), {})
        if name == "new_tensor" and isinstance(args[0], There):
            made = torch.tensor(args[1], dtype=kwargs.get("dtype", args[0].dtype))
            return _moved(made, (CUDA,), {})
        if name in ("tolist", "numpy", "__array__") and isinstance(args[0], There):
            assert name == "tolist", "numpy cannot read the device's memory"
            if _recording:
                raise RuntimeError("tolist is not permitted when stream is capturing")
            return args[0].inner.tolist()
        if func is torch.Tensor.pin_memory:
            return args[0]
        if name == "_has_compatible_shallow_copy_type":
            # So that modules which move to the device get new parameters.
            return isinstance(args[0], There) == isinstance(args[1], There)
        return func(*args, **kwargs)


def _moved(tensor: Tensor, where: Sequence[Any], options: dict[str, Any]) -> Tensor:
    """``tensor.to(...)``."""
    device, dtype = options.get("device"), options.get("dtype")
    for each in where:
        if isinstance(each, Tensor):
            device, dtype = each.device, each.dtype
        elif isinstance(each, torch.dtype):
            dtype = each
        elif isinstance(each, (str, torch.device)):
            device = each
    target = tensor.device if device is None else torch.device(device)
    dtype = tensor.dtype if dtype is None else dtype
    if target.type == tensor.device.type and dtype == tensor.dtype:
        return tensor
    result: Tensor = aten._to_copy(tensor, dtype=dtype, device=target)
    return result


class Graph:
    """Records operations, and does them again on the same memory."""

    made = 0
    _last: "Graph | None" = None

    def __init__(self) -> None:
        self._steps: list[tuple[Callable[..., Any], Any, Any, Any]] = []
        self._before: list[tuple[Tensor, Tensor]] = []

    def remember(self, tensors: Iterable[Tensor]) -> None:
        """What an operation is about to change, for recording changes nothing."""
        self._before += [(tensor, tensor.clone()) for tensor in tensors]

    def note(self, func: Callable[..., Any], args: Any, kwargs: Any, result: Any) -> None:
        """An operation of the recording."""
        self._steps.append((func, args, kwargs, result))

    def capture_begin(self, pool: Any = None, capture_error_mode: str = "global") -> None:
        assert not _recording
        assert capture_error_mode == "thread_local"
        _recording.append(self)

    def capture_end(self) -> None:
        _recording.pop()
        for tensor, before in reversed(self._before):
            tensor.copy_(before)
        self._before.clear()
        Graph.made += 1

    def pool(self) -> tuple[int, int]:
        return (0, 1)

    def replay(self) -> None:
        launches[0] += 1
        if Graph._last is not None and Graph._last is not self:
            Graph._last.spoil()
        Graph._last = self
        for func, args, kwargs, result in self._steps:
            again = func(*args, **kwargs)
            for old, new in zip(_tensors(result), _tensors(again), strict=True):
                if old.data_ptr() != new.data_ptr():
                    old.copy_(new)

    def spoil(self) -> None:
        """Overwrite what the recorded operations have made."""
        for func, _, _, result in self._steps:
            if all(each.alias_info is None for each in func._schema.returns):
                for tensor in _tensors(result):
                    tensor.fill_(77)


@contextmanager
def imitated_cuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Inside, there is one CUDA device, on which updates are added row by row, as on the CPU."""
    monkeypatch.setattr("fedsim.learning.updates._ROWS_OF_A_PRODUCT", 0)
    stream = SimpleNamespace(wait_stream=lambda other: None)
    for name, value in {
        "is_available": lambda: True,
        "current_device": lambda: 0,
        "device_count": lambda: 1,
        "get_device_name": lambda device=None: "imitation",
        "get_device_properties": lambda device=None: SimpleNamespace(total_memory=8 << 30),
        "synchronize": lambda device=None: None,
        "device": lambda device: nullcontext(),
        "Stream": lambda device=None: stream,
        "stream": lambda stream: nullcontext(),
        "current_stream": lambda device=None: stream,
        "CUDAGraph": Graph,
        "_lazy_init": lambda: None,
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)
    with _Moves(), _Operations():
        yield


Result = tuple[dict[str, Tensor], Any]


def home(result: Result) -> Result:
    """The result as plain tensors; the model was on the device."""
    tensors, rows = result
    assert isinstance(tensors["model"], There)
    return {n: t.inner if isinstance(t, There) else t for n, t in tensors.items()}, rows


def on_cpu(task: Any, timeline: Timeline, **options: Any) -> Result:
    training = options.pop("training", {})
    return execute(task, timeline, training=make_training(threads=1, **training), **options)


def on_device(task: Any, timeline: Timeline, **options: Any) -> Result:
    training = options.pop("training", {})
    return home(
        execute(task, timeline, training=make_training(device="cuda", **training), **options)
    )


def assert_same(actual: Result, expected: Result) -> None:
    assert actual[0].keys() == expected[0].keys()
    for name, value in expected[0].items():
        assert torch.equal(actual[0][name].nan_to_num(7), value.nan_to_num(7)), name
    for (version, metrics), (same, values) in zip(actual[1], expected[1], strict=True):
        # Modules see images that lie otherwise in memory when they are evaluated, which changes the last bit.
        assert version == same
        assert metrics == pytest.approx(values, rel=1e-6)
