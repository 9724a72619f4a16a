"""As much of Ray as local training uses, in this process: whatever crosses to another process goes through pickle."""

import importlib.machinery
import pickle
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fedsim.learning.device import reproducible


class RayError(Exception):
    """Something has happened to a process."""


class RayTaskError(RayError):
    """Something was raised in a process."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__(f"in a process: {cause!r}")
        self.cause = cause


class Imitation(types.ModuleType):
    """The module.

    Attributes:
        cpus: free in the cluster.
        calls: of methods of processes: number of the process and name.
        sent_bytes: of all objects that were put into the store.
        up: whether a cluster is connected.
    """

    def __init__(self) -> None:
        super().__init__("ray")
        self.__spec__ = importlib.machinery.ModuleSpec("ray", None)
        self.exceptions = types.SimpleNamespace(RayError=RayError, RayTaskError=RayTaskError)
        self.cpus = 4
        self.calls: list[tuple[int, str]] = []
        self.sent_bytes = 0
        self.up = False
        self.processes: list[Any] = []
        self.dies_at: int | None = None
        self._objects: dict[int, bytes | BaseException] = {}
        self._fetched: list[int] = []

    def init(self, address: str, num_cpus: int | None = None, **options: Any) -> None:
        self.cpus = self.cpus if num_cpus is None else num_cpus
        self.up = True

    def is_initialized(self) -> bool:
        return self.up

    def shutdown(self) -> None:
        self.up = False

    def available_resources(self) -> dict[str, float]:
        return {"CPU": float(self.cpus)}

    def remote(self, kind: type) -> Any:
        def create(*arguments: Any) -> _Handle:
            self.processes.append(kind(*pickle.loads(pickle.dumps(arguments))))
            return _Handle(self, len(self.processes) - 1)

        remote = types.SimpleNamespace(remote=create)
        return types.SimpleNamespace(options=lambda **options: remote)

    def put(self, value: Any) -> int:
        data = pickle.dumps(value)
        self.sent_bytes += len(data)
        return self.keep(data)

    def keep(self, value: bytes | BaseException) -> int:
        self._objects[len(self._objects)] = value
        return len(self._objects) - 1

    def get(self, reference: int) -> Any:
        value = self._objects[reference]
        self._fetched.append(reference)
        if isinstance(value, BaseException):
            raise value
        return pickle.loads(value)

    def wait(self, references: list[int], num_returns: int, timeout: float) -> Any:
        """As if all took equally long: what was fetched is done."""
        done = [reference for reference in references if reference in self._fetched]
        return done, [reference for reference in references if reference not in done]

    def kill(self, handle: "_Handle") -> None:
        """Nothing: there is no process."""


class _Handle:
    def __init__(self, ray: Imitation, number: int) -> None:
        self._ray = ray
        self._number = number

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> int:
            ray = self._ray
            ray.calls.append((self._number, name))
            if ray.dies_at is not None and len(ray.calls) >= ray.dies_at:
                return ray.keep(RayError("The actor died unexpectedly\nbefore finishing."))
            # The store's objects are handed over by value, as arguments of a task are.
            count = len(arguments) - 3 if name == "train" else 0
            values = [ray.get(reference) for reference in arguments[3 : 3 + count]]
            plain = pickle.loads(pickle.dumps(arguments[: len(arguments) - count]))
            try:
                result = getattr(ray.processes[self._number], name)(*plain, *values)
            except Exception as error:
                return ray.keep(RayTaskError(pickle.loads(pickle.dumps(error))))
            return ray.keep(pickle.dumps(result))

        return types.SimpleNamespace(remote=call)


@contextmanager
def imitated() -> Iterator[Imitation]:
    """Inside, ``import ray`` gives the imitation; its processes keep torch's settings until the end."""
    before = sys.modules.get("ray")
    imitation = Imitation()
    sys.modules["ray"] = imitation
    try:
        with reproducible():
            yield imitation
    finally:
        if before is None:
            del sys.modules["ray"]
        else:
            sys.modules["ray"] = before
