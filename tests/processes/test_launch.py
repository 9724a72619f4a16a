"""The variables of torchrun and of a step of Slurm."""

import pytest

from fedsim.processes.launch import Launch, alone, follows, launch

NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID")  # fmt: skip


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, Launch(0, 1, 0)),
        ({"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1"}, Launch(5, 8, 1)),
        (
            {"SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "4", "SLURM_LOCALID": "0"},
            Launch(3, 4, 0),
        ),
        # A batch script, which starts one process itself.
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "4", "SLURM_LOCALID": "0"}, Launch(0, 1, 0)),
    ],
    ids=["none", "torchrun", "srun", "sbatch"],
)
def test_a_process_knows_how_it_was_started(
    variables: dict[str, str], expected: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert launch() == expected
    assert follows("distributed") == (expected.rank > 0)
    # With other workers, each process has a run of its own.
    assert not follows("threads")
    assert not alone(variables).keys() & set(NAMES)
