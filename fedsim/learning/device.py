"""The hardware and precision of the learning plane."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from fedsim.errors import UserError
from fedsim.processes.cluster import usable_cores
from fedsim.scenario.training import DeviceWorkers, DistributedWorkers, Training
from fedsim.vocabulary.arrays import Array

# Just below glibc's limit for a block whose size it adapts to (32 MiB).
_ADAPTING_BYTES = 31 << 20


@dataclass(frozen=True, slots=True)
class Execution:
    """The devices and data types of tensors and local steps.

    Attributes:
        device: device of models, data and memories.
        dtype: floating-point type of models and gradients.
        autocast: reduced precision inside forward and backward passes, or None.
        tf32: whether CUDA rounds the factors of products and convolutions to TF32.
        threads: worker threads of local training (1 on CUDA); never changes a result.
        others: further devices for local training.
        cuda_graphs: whether local steps are recorded; see :class:`fedsim.learning.kernels.replay.Replay`.
    """

    device: torch.device
    dtype: torch.dtype
    autocast: torch.dtype | None
    threads: int
    others: tuple[torch.device, ...] = ()
    cuda_graphs: Literal["auto"] | bool = False
    tf32: bool = False

    @classmethod
    def of(cls, training: Training) -> Execution:
        """The execution that a scenario's training section requests, on this machine."""
        cuda = torch.cuda.is_available()
        if training.device == "cuda" and not cuda:
            raise UserError(
                "no CUDA device was found",
                where="training.device",
                hint="use 'auto' or 'cpu', or install a build of torch with CUDA",
            )
        on_cuda = cuda and training.device != "cpu"
        if training.autocast == "tf32" and not on_cuda:
            raise UserError(
                "tf32 is a precision of CUDA devices, and this run uses the CPU",
                where="training.autocast",
                hint="leave it at 'none' on this machine",
            )
        if training.autocast == "bfloat16" and not on_cuda and not multiplies_bfloat16():
            raise UserError(
                "this CPU has no instructions for bfloat16 products (AVX512_BF16 or AMX), and float32 is faster than "
                "their emulation",
                where="training.autocast",
                hint="leave it at 'none' on this machine",
            )
        if on_cuda:
            # cuBLAS is deterministic only with a workspace of fixed size; the variable is read when CUDA starts.
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        devices = _cuda_devices(training) if on_cuda else [torch.device("cpu")]
        # With distributed workers, this machine may have several processes.
        threads = 1 if isinstance(training.workers, DistributedWorkers) else usable_cores()
        return cls(
            device=devices[0],
            dtype=getattr(torch, training.dtype),
            autocast=torch.bfloat16 if training.autocast == "bfloat16" else None,
            threads=1 if on_cuda else training.threads or threads,
            others=tuple(devices[1:]),
            cuda_graphs=training.cuda_graphs if on_cuda else False,
            tf32=training.autocast == "tf32",
        )

    def describe(self) -> Mapping[str, str | int]:
        """Everything that the bits of a result may depend on, for ``run.json``."""
        described: dict[str, str | int] = {
            "device": self.device.type,
            "dtype": str(self.dtype).removeprefix("torch."),
            "threads": self.threads,
            "torch": torch.__version__,
            "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        }
        if self.tf32 or self.autocast is not None:
            described["autocast"] = "tf32" if self.tf32 else "bfloat16"
        if self.device.type == "cuda":
            described["gpu"] = torch.cuda.get_device_name(self.device)
            described["cuda"] = str(torch.version.cuda)
        return described


def _cuda_devices(training: Training) -> list[torch.device]:
    """The CUDA devices to use; the current one comes first."""
    first, visible = torch.cuda.current_device(), torch.cuda.device_count()
    count = 1
    if isinstance(training.workers, DeviceWorkers):
        count = training.workers.count or visible
        if count > visible:
            raise UserError(
                f"{count} CUDA devices are requested, but only {visible} are visible",
                where="training.workers.count",
                hint="leave it out to use all visible devices; CUDA_VISIBLE_DEVICES defines which are visible",
            )
    numbers = [first, *(number for number in range(visible) if number != first)]
    return [torch.device("cuda", number) for number in numbers[:count]]


def multiplies_bfloat16() -> bool:
    """Whether this machine's CPU has instructions for bfloat16 products."""
    return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()


@cache
def multiplies_by_onednn(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether oneDNN multiplies large matrices in float32 faster than MKL: on AMD's processors with AVX-512."""
    has_it = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    if device.type != "cpu" or dtype != torch.float32 or not has_it:
        return False
    with suppress(OSError):
        is_amd = "AuthenticAMD" in Path("/proc/cpuinfo").read_text(errors="replace")
        return is_amd and torch.backends.cpu.get_cpu_capability() == "AVX512"
    return False


@cache
def keep_freed_memory() -> None:
    """Make glibc keep the memory that training frees, instead of returning it to the system page by page.

    It keeps twice as much free memory at the end of its heap as the largest block that was mapped and freed. This block
    is never touched. What it keeps between blocks in use grows, until :func:`return_freed_memory`.
    """
    torch.empty(_ADAPTING_BYTES, dtype=torch.uint8)


def return_freed_memory() -> None:
    """Return to the system what glibc keeps, which in a run of hours becomes gigabytes; another library keeps less."""
    with suppress(OSError, TypeError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def uploaded(array: Array, device: torch.device) -> Tensor:
    """The array as a tensor on the device; the calling thread does not wait for the copy."""
    tensor = torch.from_numpy(array)
    if device.type != "cuda":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


@contextmanager
def reproducible(*, tf32: bool = False) -> Iterator[None]:
    """Let torch use deterministic algorithms, one intra-op thread and full precision (or TF32 on CUDA) inside.

    If torch has no deterministic algorithm (a few backward passes on CUDA), it warns. More intra-op threads would split
    sums differently and change the last bit; parallelism comes from worker threads.
    """
    before = (
        torch.get_num_threads(),
        torch.get_deterministic_debug_mode(),
        torch._C._get_deterministic_fill_uninitialized_memory(),
        torch.backends.cudnn.benchmark,
        torch.backends.cudnn.allow_tf32,
        torch.get_float32_matmul_precision(),
    )
    # Without the fill of every empty tensor with NaN, which costs more than some steps.
    _configure(1, "warn", False, False, tf32, "high" if tf32 else "highest")
    try:
        yield
    finally:
        _configure(*before)


def _configure(
    threads: int, deterministic: int | str, fill: bool, benchmark: bool, tf32: bool, precision: str
) -> None:
    torch.set_num_threads(threads)
    # Not use_deterministic_algorithms, which imports the compiler and takes seconds.
    torch.set_deterministic_debug_mode(deterministic)
    torch._C._set_deterministic_fill_uninitialized_memory(fill)
    torch.backends.cudnn.benchmark = benchmark
    torch.backends.cudnn.allow_tf32 = tf32
    torch.set_float32_matmul_precision(precision)
