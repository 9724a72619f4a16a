"""Choice of hardware, and that torch is left as it was found."""

import platform
import subprocess
import sys

import pytest
import torch

from fedsim.errors import UserError
from fedsim.learning.device import (
    Execution,
    multiplies_bfloat16,
    reproducible,
)
from fedsim.scenario.training import DeviceWorkers
from tests.learning.problems import make_learner, make_training, supervised_task
from tests.learning.timelines import buffered, execute


def test_cuda_without_a_device_is_the_users_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UserError, match="no CUDA device"):
        Execution.of(make_training(device="cuda"))
    assert Execution.of(make_training(device="auto")).device.type == "cpu"


def test_devices_are_those_that_can_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)

    def devices(**workers: int) -> list[str]:
        training = make_training(device="cuda", workers=DeviceWorkers(name="devices", **workers))
        execution = Execution.of(training)
        return [str(device) for device in (execution.device, *execution.others)]

    assert devices() == ["cuda:1", "cuda:0", "cuda:2"]
    assert devices(count=2) == ["cuda:1", "cuda:0"]
    assert Execution.of(make_training(device="cuda")).others == ()
    with pytest.raises(UserError, match=r"workers\.count: 4 CUDA devices .* only 3 are visible"):
        devices(count=4)


def test_precisions_are_refused_where_they_would_be_emulated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fedsim.learning.device.multiplies_bfloat16", lambda: False)
    words = {"bfloat16": "no instructions for bfloat16", "tf32": "a precision of CUDA devices"}
    for precision, message in words.items():
        with pytest.raises(UserError, match=f"autocast: .*{message}"):
            Execution.of(make_training(device="cpu", autocast=precision))


@pytest.mark.skipif(not multiplies_bfloat16(), reason="the CPU has no bfloat16 products")
@pytest.mark.parametrize("model", ["conv", "mlp"])
def test_bfloat16_on_a_cpu_is_float32_up_to_rounding(model: str) -> None:
    """Each product is rounded to 8 bits; models stay in float32, and groups and threads change nothing."""
    task, timeline = supervised_task(model), buffered(20)
    rounded, exact, split = (
        execute(task, timeline, training=make_training(device="cpu", **options))[0]["model"]
        for options in (
            {"autocast": "bfloat16", "threads": 1},
            {},
            {"autocast": "bfloat16", "threads": 3},
        )
    )
    assert rounded.dtype == torch.float32
    assert torch.equal(rounded, split)
    start = make_learner(task).server["model"]
    assert 0 < (rounded - exact).norm() < 0.05 * (exact - start).norm()


def test_description_names_what_bits_depend_on() -> None:
    described = make_learner(supervised_task("mlp")).describe()
    expected = {"kernel": "linear_stack/5", "device": "cpu", "dtype": "float32", "workers": 1}
    assert described == described | expected | {"torch": torch.__version__}
    assert described["cpu_capability"]


def test_settings_of_torch_come_back_after_an_error() -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)

        def fail() -> None:
            with reproducible():
                assert torch.get_num_threads() == 1
                assert torch.get_deterministic_debug_mode() == 1
                raise KeyError

        with pytest.raises(KeyError):
            fail()
        assert torch.get_num_threads() == 2
        assert torch.get_deterministic_debug_mode() == 0
    finally:
        torch.set_num_threads(before)


FAULTS = """
import resource
import torch
from fedsim.learning.device import keep_freed_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    blocks = [torch.zeros(2 << 20) for _ in range(6)]
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

keep_freed_memory()
print([faults() for _ in range(10)][-1])
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc returns pages one by one")
def test_freed_memory_is_used_again_without_page_faults() -> None:
    """Six blocks of 8 MB: glibc would return them, and fault in 12,288 pages, at every round.

    It keeps all of them after two to five rounds.
    """
    done = subprocess.run(
        [sys.executable, "-c", FAULTS], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < 100


KEPT = """
import torch
from fedsim.learning.device import keep_freed_memory, return_freed_memory

def resident_mb():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 / 1e6

keep_freed_memory()
blocks = [torch.zeros(size) for _ in range(100) for size in (500_000, 100)]
del blocks[::2]
before = resident_mb()
return_freed_memory()
print(before - resident_mb())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc keeps it")
def test_freed_memory_between_blocks_in_use_is_returned() -> None:
    """A hundred freed blocks of 2 MB, each before a small one that is in use."""
    done = subprocess.run([sys.executable, "-c", KEPT], capture_output=True, text=True, check=True)
    assert float(done.stdout) > 150
