"""Counter-based random numbers: every draw is a pure function of (seed, purpose, keys).

Nothing here keeps state. So no result depends on the order in which clients are processed, on the number of workers or
on the wall clock, and runs that are compared simulate the same world. One hash (splitmix64; Steele, Lea and Flood
2014) is available in three forms: for one value (:meth:`Stream.uniform`), for arrays of clients
(:meth:`Stream.uniforms`), and as the key of a Philox generator (:meth:`Stream.generator`) for libraries that need a
``numpy`` generator.

Users' code that draws from a global generator while a part is built is :func:`isolated`; while it runs, the seeds that
it takes from the system are :func:`watched`.
"""

from __future__ import annotations

import enum
import linecache
import random
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

from fedsim.errors import UserError
from fedsim.vocabulary.arrays import Floats, Ints

_MASK = (1 << 64) - 1
_IN_LIBRARY = re.compile(r"[/\\](site|dist)-packages[/\\]")
GOLDEN = 0x9E3779B97F4A7C15
MIX_1 = 0xBF58476D1CE4E5B9
MIX_2 = 0x94D049BB133111EB
_TO_UNIT = 2.0**-53
_inverse_normal = NormalDist().inv_cdf


class Purpose(enum.IntEnum):
    """The purpose of a random number; each purpose has a separate stream."""

    TRACE = 1
    COMPUTE_PROFILE = 2
    COMPUTE_JITTER = 3
    AVAILABILITY = 4
    NETWORK_PROFILE = 5
    NETWORK_JITTER = 6
    SELECTION = 7
    FAILURE = 8
    PARTITION = 9
    INITIAL_MODEL = 10
    DATA_ORDER = 11
    GRADIENT_NOISE = 12
    DATASET = 13
    DROPOUT = 14
    STRAGGLER = 15
    # 16 and 17 belonged to earlier versions. The numbers seed streams, so none may be changed or reused.
    ANALYSIS = 18
    AUGMENTATION = 19
    LIMITED_WORK = 20
    METHOD = 21
    FLOWER = 22
    COMPRESSION = 23
    SUBMODEL = 24
    EDGES = 25
    REGION = 26


def mix64(value: int) -> int:
    """The splitmix64 finalizer: a bijection of 64-bit integers that scatters neighboring inputs."""
    value = (value ^ (value >> 30)) * MIX_1 & _MASK
    value = (value ^ (value >> 27)) * MIX_2 & _MASK
    return value ^ (value >> 31)


def _mix64_array(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    with np.errstate(over="ignore"):
        values = (values ^ (values >> np.uint64(30))) * np.uint64(MIX_1)
        values = (values ^ (values >> np.uint64(27))) * np.uint64(MIX_2)
    return values ^ (values >> np.uint64(31))


class Stream:
    """The random numbers of one purpose in one run.

    Args:
        seed: the scenario's seed.
        purpose: the purpose of the numbers.
        keys: further integers that distinguish streams of one purpose (a round, a table, ...).
    """

    __slots__ = ("key",)

    def __init__(self, seed: int, purpose: Purpose, *keys: int) -> None:
        key = mix64((seed * GOLDEN + int(purpose)) & _MASK)
        for extra in keys:
            key = mix64((key + (extra + 1) * GOLDEN) & _MASK)
        self.key = key

    def hash(self, client: int, k: int = 0) -> int:
        """64 random bits for the ``k``-th draw of ``client``."""
        return mix64((mix64((self.key + (client + 1) * GOLDEN) & _MASK) + (k + 1) * GOLDEN) & _MASK)

    def uniform(self, client: int, k: int = 0) -> float:
        """A uniform number in the open interval (0, 1) for the ``k``-th draw of ``client``."""
        return ((self.hash(client, k) >> 11) + 0.5) * _TO_UNIT

    def normal(self, client: int, k: int = 0) -> float:
        """A standard normal number for the ``k``-th draw of ``client``."""
        return _inverse_normal(self.uniform(client, k))

    def hashes(self, clients: npt.ArrayLike, k: npt.ArrayLike = 0) -> npt.NDArray[np.uint64]:
        """The same bits as :meth:`hash`, for arrays of clients and draws (broadcast together)."""
        return self.keys(clients, k)

    def keys(self, *keys: npt.ArrayLike) -> npt.NDArray[np.uint64]:
        """The :attr:`key` of the streams with these further keys, for arrays of keys (broadcast together)."""
        result = np.asarray(self.key, dtype=np.uint64)
        golden, one = np.uint64(GOLDEN), np.uint64(1)
        with np.errstate(over="ignore"):
            for extra in keys:
                extra_keys = np.asarray(extra).astype(np.uint64)
                result = _mix64_array(result + (extra_keys + one) * golden)
        return result

    def uniforms(self, clients: npt.ArrayLike, k: npt.ArrayLike = 0) -> Floats:
        """The same bits as :meth:`uniform`, for arrays of clients and draws."""
        bits = (self.hashes(clients, k) >> np.uint64(11)).astype(np.float64)
        return (bits + 0.5) * _TO_UNIT

    def normals(self, clients: npt.ArrayLike, k: npt.ArrayLike = 0) -> Floats:
        """Standard normal numbers for arrays of clients and draws.

        The inverse distribution function is SciPy's, which may differ from that of :meth:`normal` in the last bit, so
        use only one of the two for each quantity.
        """
        from scipy.special import ndtri

        result: Floats = ndtri(self.uniforms(clients, k))
        return result

    def generator(self, client: int = 0, k: int = 0) -> np.random.Generator:
        """A NumPy generator (Philox) keyed by this stream, ``client`` and ``k``."""
        return np.random.Generator(np.random.Philox(key=self.hash(client, k)))


class Draws:
    """The uniform numbers of a stream, one per client and draw, in blocks: the bits of :meth:`Stream.uniform`.

    A block holds one draw of every client, or several in a small population. It is computed once a 32nd of its numbers
    have been computed one by one, which costs as much; so a short run in a large population computes no block. Numbers
    that will probably be needed soon can be prepared instead.
    """

    _SMALL_BITS = 10
    _MOST_KEPT = 1 << 22
    # A client has fewer draws.
    _KEY_BITS = 32

    def __init__(self, stream: Stream, clients: int) -> None:
        self._stream = stream
        self._clients = clients
        self._bits = max(0, self._SMALL_BITS - clients.bit_length())
        self._mask = (1 << self._bits) - 1
        size = clients << self._bits
        self._patience = size >> 5
        self._most = max(2, self._MOST_KEPT // max(size, 1))
        self._blocks: dict[int, Any] = {}
        self._needed: dict[int, int] = {}
        self._prepared: dict[int, float] = {}

    def prepare(self, clients: Ints, k: Ints) -> None:
        """Compute the ``k``-th draws of ``clients``, (n,) each, in place of those prepared before."""
        keys = (clients << self._KEY_BITS) + k
        numbers = self._stream.uniforms(clients, k)
        self._prepared = dict(zip(keys.tolist(), numbers.tolist(), strict=True))

    def uniform(self, client: int, k: int) -> float:
        """A uniform number in the open interval (0, 1) for the ``k``-th draw of ``client``."""
        if self._prepared:
            prepared = self._prepared.get((client << self._KEY_BITS) + k)
            if prepared is not None:
                return prepared
        bits = self._bits
        block = self._blocks.get(k >> bits)
        if block is None:
            return self._from_new_block(client, k)
        number: float = block[client << bits | k & self._mask]
        return number

    def _from_new_block(self, client: int, k: int) -> float:
        number = k >> self._bits
        needed = self._needed.get(number, 0)
        if needed < self._patience:
            self._needed[number] = needed + 1
            return self._stream.uniform(client, k)
        self._needed.pop(number, None)
        if len(self._blocks) >= self._most:
            del self._blocks[next(iter(self._blocks))]
        draws = np.arange(number << self._bits, (number + 1) << self._bits)
        clients = np.arange(self._clients)[:, None]
        block: Any = self._stream.uniforms(clients, draws).reshape(-1).data
        self._blocks[number] = block
        first: float = block[client << self._bits | k & self._mask]
        return first


@contextmanager
def isolated(seed: int) -> Iterator[None]:
    """Context in which the global generators of ``random``, NumPy and torch start from ``seed``.

    Afterward, they have their former states. Whatever draws from them to build something before a run draws the same
    numbers in every run.
    """
    torch = sys.modules.get("torch")
    former, numpy_former = random.getstate(), np.random.get_state()  # noqa: NPY002 - the global one is meant
    on_cuda = torch is not None and torch.cuda.is_initialized()
    torch_former = None if torch is None else torch.default_generator.get_state()
    cuda_former = torch.cuda.get_rng_state_all() if torch is not None and on_cuda else None
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002
    if torch is not None:
        torch.default_generator.manual_seed(seed)
        if on_cuda:
            torch.cuda.manual_seed_all(seed)
    try:
        yield
    finally:
        random.setstate(former)
        np.random.set_state(numpy_former)  # noqa: NPY002
        if torch is not None:
            torch.default_generator.set_state(torch_former)
            if on_cuda:
                torch.cuda.set_rng_state_all(cuda_former)


@contextmanager
def watched(on_seed: Callable[[str], None]) -> Iterator[None]:
    """Context in which the first line of the user's code is reported at which a generator is seeded by the system.

    The generators are those of NumPy and Python without a seed, such as ``numpy.random.default_rng()``: all ask one of
    two functions of the module ``random``. What libraries take, for the name of a file or a key, is not reported,
    nor is ``RandomState()``, which cannot be told from ``RandomState(seed)``.
    """
    urandom, seed = random._urandom, random.Random.seed  # type: ignore[attr-defined]
    is_reported = False

    def note() -> None:
        nonlocal is_reported
        frame = sys._getframe(2)
        while frame.f_back is not None and frame.f_globals.get("__name__") in ("random", "secrets"):
            frame = frame.f_back
        package, file = (
            frame.f_globals.get("__name__", "").partition(".")[0],
            frame.f_code.co_filename,
        )
        is_users = package not in ("fedsim", *sys.stdlib_module_names) and not _IN_LIBRARY.search(
            file
        )
        if is_reported or not is_users:
            return
        # RandomState(seed) takes a seed from the system before it uses its own.
        if "RandomState" not in linecache.getline(file, frame.f_lineno):
            is_reported = True
            on_seed(f"{file}:{frame.f_lineno}")

    def noted_urandom(size: int) -> bytes:
        note()
        return bytes(urandom(size))

    def noted_seed(self: random.Random, a: Any = None, version: int = 2) -> None:
        if a is None:
            note()
        seed(self, a, version)

    random._urandom, random.Random.seed = noted_urandom, noted_seed  # type: ignore
    try:
        yield
    finally:
        random._urandom, random.Random.seed = urandom, seed  # type: ignore


def unseeded(where: str) -> UserError:
    """The warning about a line at which a generator took its seed from the system."""
    return UserError(
        "a generator without a seed draws other numbers in every run, so this run cannot be repeated",
        where=where,
        hint="give it a seed that differs between clients; to test whether the rest can be repeated: fedsim scenario "
        "check --replay",
    )
