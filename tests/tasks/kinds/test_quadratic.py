"""The worked cases of the reproduced papers that concern gradients, by hand."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedsim.errors import UserError
from fedsim.randomness import Purpose, Stream
from fedsim.scenario.training import Training
from fedsim.tasks.kinds.quadratic import QuadraticTask

STREAM = Stream(0, Purpose.GRADIENT_NOISE)


def quadratic(**params: Any) -> QuadraticTask:
    return QuadraticTask(QuadraticTask.Params(**params))


def gradient(task: QuadraticTask, client: int, point: list[float]) -> list[float]:
    points = torch.tensor([point], dtype=torch.float64)
    return task.gradients(np.array([client]), points)[0].tolist()


def test_two_scalar_clients_have_the_gradients_of_the_card() -> None:
    # FedSUM card, oracle Q2: f_1 = (x - 1)^2 / 2, f_2 = 3 (x + 1)^2 / 2, minimum of the mean at -0.5.
    task = quadratic(centers=[1, -1], curvatures=[1, 3], initial=2)
    assert task.initial(STREAM).tolist() == [2.0]
    assert gradient(task, 0, [2.0]) == [1.0]
    assert gradient(task, 1, [2.0]) == [9.0]
    assert task.optimum().tolist() == [-0.5]
    both = torch.tensor([[2.0], [2.0]], dtype=torch.float64)
    assert task.losses(np.array([0, 1]), both).tolist() == [0.5, 13.5]
    assert task.layout.names == ("x",)
    assert task.clients == 2


def test_coupled_personal_objectives_are_a_quadratic_with_full_matrices() -> None:
    # Partial personalization card 7.1, case A: f_i = a_i (u - p_i)^2 / 2 + (u + v - z_i)^2 / 2.
    cases = [(1, 1, 2), (3, -1, 0)]
    task = quadratic(
        centers=[[p, z - p] for _, p, z in cases],
        curvatures=[[[a + 1, 1], [1, 1]] for a, _, _ in cases],
        names={"u": 1, "v": 1},
    )
    assert task.layout.names == ("u", "v")
    assert [gradient(task, client, [0.0, 0.0]) for client in (0, 1)] == [[-3, -2], [3, 0]]
    for client, (a, p, z) in enumerate(cases):
        u, v = 0.375, -1.25
        assert gradient(task, client, [u, v]) == [a * (u - p) + (u + v - z), u + v - z]
        point = torch.tensor([[u, v]], dtype=torch.float64)
        value = a * (u - p) ** 2 / 2 + (u + v - z) ** 2 / 2
        assert task.losses(np.array([client]), point).tolist() == [value]


def test_three_steps_with_a_full_matrix_give_the_exact_update() -> None:
    # FedLGA card C6: eta = 1/4, client 3 after two steps from (1/4, 1/2): (-.40625, -.296875).
    task = quadratic(
        centers=[[0.25, 0], [0, 0.25], [-0.25, 0.25]],
        curvatures=[[[1, 0], [0, 2]], [[2, 0], [0, 1]], [[2, 1], [1, 2]]],
        initial=[0.25, 0.5],
    )
    for client, steps, delta in (
        (0, 4, [0, -0.46875]),
        (1, 4, [-0.234375, -0.1708984375]),
        (2, 2, [-0.40625, -0.296875]),
        (2, 4, [-0.458984375, -0.2880859375]),
    ):
        point = [0.25, 0.5]
        for _ in range(steps):
            point = [x - g / 4 for x, g in zip(point, gradient(task, client, point), strict=True)]
        assert [x - start for x, start in zip(point, [0.25, 0.5], strict=True)] == delta


def test_slopes_alone_are_linear_objectives() -> None:
    # Generalized FedAvg card O7: F_n = c_n x.
    task = quadratic(slopes=[3, 0, -3], samples=[1, 3, 5])
    assert task.steps_per_epoch(Training(batch_size=2)).tolist() == [1, 2, 3]
    assert not task.noisy
    for x in (-5.0, 0.0, 8.0):
        assert [gradient(task, client, [x])[0] for client in range(3)] == [3.0, 0.0, -3.0]
    point = torch.full((3, 1), 2.0, dtype=torch.float64)
    assert task.losses(np.arange(3), point).tolist() == [6.0, 0.0, -6.0]
    linear = quadratic(slopes=[[1, 2], [3, 4]])
    metrics = linear.measure(torch.tensor([1.0, 1.0], dtype=torch.float64))
    assert metrics == {"loss": 5.0, "gradient_norm": pytest.approx(13**0.5)}
    with pytest.raises(UserError, match="no minimum"):
        linear.optimum()


rows = st.integers(1, 4).flatmap(
    lambda size: st.tuples(
        arrays(np.float64, (3, size), elements=st.integers(-8, 8).map(float)),
        arrays(np.float64, (3, size), elements=st.integers(0, 8).map(float)),
        arrays(np.float64, (3, size), elements=st.integers(-8, 8).map(float)),
    )
)


@given(rows)
def test_gradients_are_exact_and_do_not_depend_on_the_group(
    values: tuple[np.ndarray, np.ndarray, np.ndarray],
) -> None:
    centers, curvatures, points = values
    task = quadratic(centers=centers.tolist(), curvatures=curvatures.tolist())
    together = task.gradients(np.arange(3), torch.from_numpy(points))
    assert np.array_equal(together.numpy(), curvatures * (points - centers))
    for client in range(3):
        alone = task.gradients(np.array([client]), torch.from_numpy(points[client : client + 1]))
        assert torch.equal(alone[0], together[client])


def test_the_rows_of_the_latest_clients_are_not_those_of_others() -> None:
    centers = [[1.0, 2.0], [3.0, -1.0], [0.5, 4.0]]
    task = quadratic(centers=centers)
    for clients in ([0, 1], [1, 0], [2], [0, 1], [0]):
        for precision in (torch.float64, torch.float32):
            points = torch.ones((len(clients), 2), dtype=precision)
            expected = 1 - torch.tensor([centers[client] for client in clients], dtype=precision)
            assert torch.equal(task.gradients(np.array(clients), points), expected)


def test_matrices_and_diagonals_agree() -> None:
    diagonals = [[1.0, 0.5], [2.0, 4.0]]
    flat = quadratic(centers=[[1, 2], [3, 4]], curvatures=diagonals)
    full = quadratic(
        centers=[[1, 2], [3, 4]], curvatures=[np.diag(row).tolist() for row in diagonals]
    )
    points = torch.tensor([[0.3, -0.7], [1.1, 9.0]], dtype=torch.float64)
    assert torch.equal(
        flat.gradients(np.array([0, 1]), points), full.gradients(np.array([0, 1]), points)
    )
    assert torch.allclose(flat.optimum(), full.optimum(), rtol=0, atol=1e-15)


def test_noise_is_a_function_of_client_sequence_and_step_alone() -> None:
    task = quadratic(centers=[[0, 0]] * 5, noise_std=[0.5, 0.0])
    clients, sequences = np.array([0, 3, 3]), np.array([0, 1, 2])
    together = task.noise(STREAM, clients, sequences, 4)
    assert task.noisy
    for row in range(3):
        alone = task.noise(STREAM, clients[row : row + 1], sequences[row : row + 1], 4)
        assert torch.equal(alone[0], together[row])
    assert (
        len({*together[:, 0].tolist(), *task.noise(STREAM, clients, sequences, 5)[:, 0].tolist()})
        == 6
    )
    assert (together[:, 1] == 0).all(), "no noise in the second dimension"


def test_noise_has_the_given_spread() -> None:
    task = quadratic(centers=[[0, 0]] * 4000, noise_std=[2.0, 0.5])
    drawn = task.noise(STREAM, np.arange(4000), np.zeros(4000, dtype=np.int64), 0)
    assert drawn.std(0).tolist() == pytest.approx([2.0, 0.5], rel=0.05)
    assert drawn.mean(0).abs().max() < 0.1
    assert abs(float(torch.corrcoef(drawn.T)[0, 1])) < 0.05


def test_a_noise_tape_adds_to_exactly_its_steps() -> None:
    # Partial personalization card, noise tape C, round 0, client 1, and A1's first local step.
    tape = [
        {"client": 0, "sequence": 0, "step": 0, "noise": [0.5, -0.25]},
        {"client": 0, "sequence": 0, "step": 1, "noise": [-0.25, 0.5]},
        {"client": 1, "sequence": 1, "step": 0, "noise": [0.0, -0.25]},
    ]
    task = quadratic(
        centers=[[1, 1], [-1, 1]],
        curvatures=[[[2, 1], [1, 1]], [[4, 1], [1, 1]]],
        noise_tape=tape,
    )
    clients, first = np.array([0, 1]), np.zeros(2, dtype=np.int64)
    assert task.noisy
    assert task.noise(STREAM, clients, first, 0).tolist() == [[0.5, -0.25], [0, 0]]
    assert task.noise(STREAM, clients, first, 1).tolist() == [[-0.25, 0.5], [0, 0]]
    assert task.noise(STREAM, clients, first, 2).tolist() == [[0, 0], [0, 0]]
    assert task.noise(STREAM, clients, first + 1, 0).tolist() == [[0, 0], [0, -0.25]]
    # The personal part of client 1 after round 0 is 101/256 in the card.
    point = torch.zeros(1, 2, dtype=torch.float64)
    for step in range(2):
        noisy = task.gradients(np.array([0]), point) + task.noise(
            STREAM, np.array([0]), np.array([0]), step
        )
        point = point - noisy / 8
    assert Fraction(float(point[0, 1])) == Fraction(101, 256)


ENTRY = {"client": 0, "sequence": 0, "step": 0, "noise": [0]}


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({}, "needs centers or slopes"),
        ({"centers": [[1, 2], [3]]}, "different lengths"),
        ({"centers": [[1], [2]], "slopes": [1, 2, 3]}, "but slopes"),
        ({"centers": [1, 2], "curvatures": [1, 2, 3]}, "curvatures have shape"),
        ({"centers": [[1, 2]], "curvatures": [[[1, 2], [0, 1]]]}, "not symmetric"),
        ({"centers": [1, 2], "curvatures": [1, -2]}, r"curvature of client 1 is negative \(-2\)"),
        ({"centers": [[1, 2]], "initial": [1, 2, 3]}, "initial has 3 values"),
        ({"centers": [[1, 2]], "noise_std": [1]}, "noise_std has 1 values"),
        ({"centers": [1], "noise_std": -1}, "negative"),
        ({"centers": [[1, 2]], "names": {"u": 1}}, "add up to 2"),
        ({"centers": [1, 2], "samples": [1]}, "samples must be 2 numbers"),
        ({"centers": [1], "noise_tape": [ENTRY | {"client": 1}]}, "client below 1"),
        ({"centers": [1], "noise_tape": [ENTRY] * 2}, "same client, sequence and step"),
    ],
)
def test_lists_that_do_not_fit_are_refused(params: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        quadratic(**params)
