"""The guide to adding a method: its examples are complete, short, and do what the page says."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner

import fedsim
from fedsim.cli import cli

PAGE = "docs/adding_a_method.md"


@pytest.fixture(scope="module")
def examples(checkout: Path) -> dict[str, list[str]]:
    """The code blocks of the page by language."""
    blocks: dict[str, list[str]] = {}
    text = (checkout / PAGE).read_text(encoding="utf-8")
    for language, code in re.findall(r"```(\w+)\n(.*?)```", text, flags=re.DOTALL):
        blocks.setdefault(language, []).append(code)
    return blocks


@pytest.fixture
def folder(examples: dict[str, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of a user's own with the files of the page in it."""
    for name, content in (
        ("top_k.py", examples["python"][0]),
        ("pulled.py", examples["python"][1]),
        ("quantized.py", examples["python"][2]),
        ("dp.py", examples["python"][3]),
        ("top-k.yaml", examples["yaml"][0]),
        ("check.yaml", examples["yaml"][1]),
    ):
        (tmp_path / name).write_text(content, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def learned(method: str, *overrides: str) -> torch.Tensor:
    """The model after one round in double precision, as a vector."""
    folder = f"runs/{len(list(Path('runs').glob('*')))}"
    given = [f"server.method={method}", "stop.rounds=1", "training.dtype=float64", *overrides]
    model = fedsim.run("top-k.yaml", folder, overrides=given).model()
    return torch.cat([tensor.reshape(-1) for tensor in model.values()])


def test_the_example_is_under_sixty_lines(examples: dict[str, list[str]]) -> None:
    assert all(code.count("\n") < 60 for code in examples["python"])


def test_the_example_runs_and_its_bytes_are_charged(folder: Path) -> None:
    """It learns; two vectors of a twentieth of the model go up, and less time passes than with FedAvg."""
    run = fedsim.run("top-k.yaml")
    assert run.path == Path("runs/top-k-seed0")
    parameters = sum(tensor.numel() for tensor in run.model().values())
    assert set(run.dispatches["bytes_up"]) == {2 * 4 * round(0.05 * parameters)}
    assert set(run.dispatches["bytes_down"]) == {4 * parameters}
    loss = run.metrics["loss"].to_numpy()
    assert loss[-1] < 0.9 * loss[0]
    fedavg = fedsim.run("top-k.yaml", "fedavg", overrides=["server.method={name: fedavg}"])
    assert run.simulated_s < fedavg.simulated_s


def test_everything_sent_is_fedavg(folder: Path) -> None:
    """share: 1, as the page says."""
    everything = fedsim.run("top-k.yaml", "all", overrides=["server.method.share=1"])
    fedavg = fedsim.run("top-k.yaml", "fedavg", overrides=["server.method={name: fedavg}"])
    for name, tensor in fedavg.model().items():
        torch.testing.assert_close(everything.model()[name], tensor, rtol=1e-4, atol=1e-6)


def test_the_check_by_hand(folder: Path) -> None:
    """The iterates worked out on the page."""
    run = fedsim.run("check.yaml")
    assert run.model()["x"].item() == pytest.approx(1.0165, abs=1e-12)
    x = np.array([2, 1.81, 1.0165])
    expected = (0.5 * (x - 1) ** 2 + 1.5 * (x + 1) ** 2) / 2
    assert run.metrics["loss"].to_numpy() == pytest.approx(expected, rel=1e-12)


def test_the_example_of_a_rule_is_fedprox(folder: Path) -> None:
    """Up to rounding: the trainer knows FedProx's rule, and applies it in another order of operations."""
    pulled = learned("'pulled.py:Pulled'", "stop.rounds=3")
    fedprox = learned("{name: fedprox, mu: 0.1}", "stop.rounds=3")
    torch.testing.assert_close(pulled, fedprox, rtol=1e-12, atol=1e-14)


def test_the_example_of_bits_is_fedavg_to_the_precision_of_eight_bits(
    folder: Path, examples: dict[str, list[str]]
) -> None:
    """P bytes and 4 for the scale; rounding moves an entry by at most half a scale, 1/254 of the largest change."""
    (command,) = examples["console"][1].splitlines()
    assert CliRunner().invoke(cli, command.split()[1:]).exit_code == 0
    assert set(fedsim.load("runs/quantized").dispatches["bytes_up"]) == {
        sum(tensor.numel() for tensor in fedsim.load("runs/quantized").model().values()) + 4
    }
    quantized, fedavg = learned("quantized.py:Quantized"), learned("fedavg")
    start = learned("fedavg", "training.optimizer.lr=1e-300")
    error = (quantized - fedavg).abs().max()
    assert 0 < error < 0.01 * (fedavg - start).abs().max() * 5


def test_the_example_of_random_rounding_is_right_on_average(folder: Path) -> None:
    """One code is a 127th of the largest change; rounding up or down at random errs by at most one, and by none on
    average."""
    fedavg, rounded = learned("fedavg"), learned("quantized.py:Stochastic")
    assert torch.equal(rounded, learned("quantized.py:Stochastic"))
    error = (rounded - fedavg).numpy()
    assert abs(error).max() > 0
    # Entries are independent: their mean is within four standard errors of 0.
    assert abs(error.mean()) < 4 * error.std() / len(error) ** 0.5


def test_the_example_of_random_numbers_is_private_fedavg(folder: Path) -> None:
    """Without noise and with a wide clip it is FedAvg; noise has the stated size and is the same in every run."""
    plain = learned("{name: 'dp.py:DpFedAvg', clip: 1000, noise: 0}")
    torch.testing.assert_close(plain, learned("{name: fedavg, weights: uniform}"))
    noisy, again = (learned("{name: 'dp.py:DpFedAvg', clip: 1000, noise: 0.01}") for _ in range(2))
    assert torch.equal(noisy, again)
    # 5 clients: 0.01 x 1000 / 5.
    noise = (noisy - plain).numpy()
    assert noise.std() == pytest.approx(2, rel=0.1)
    assert abs(noise.mean()) < 4 * 2 / len(noise) ** 0.5


def test_the_commands_of_the_page(folder: Path, examples: dict[str, list[str]]) -> None:
    """Every command line of the page ends well; the description names parameter, vectors and memory."""
    lines = [line.partition("#")[0].split() for line in examples["console"][0].splitlines()]
    outputs = []
    for line in lines:
        assert line[0] == "fedsim"
        result = CliRunner().invoke(cli, line[1:])
        assert result.exit_code == 0, result.output
        outputs.append(result.output)
    for word in ("share", "values", "places", "unsent", "Sparsified SGD"):
        assert word in outputs[0]
