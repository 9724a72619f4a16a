"""Models of the user's own."""

import copy
from pathlib import Path

import torch
from torch import nn

from fedsim.randomness import Purpose, Stream
from fedsim.tasks.modules.dropout import has_dropout
from tests.learning.problems import Timeline, make_learner, make_training
from tests.tasks.toys import START, train_rows
from tests.tasks.users import own_task


def test_a_torch_module_of_the_users_can_be_trained(users: Path) -> None:
    torch.manual_seed(3)
    before = torch.get_rng_state()
    problem = own_task(users, "Net", width=20)
    assert problem.parameters == 65 * 20 + 21 * 10
    first = problem.initial(START)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(first, problem.initial(START))
    assert not torch.equal(first, problem.initial(Stream(1, Purpose.INITIAL_MODEL)))
    assert (problem.layout.views(first)["last.bias"] == 3).all(), "the constructor's choice stays"
    assert has_dropout(problem.module)
    assert problem.layout.names == ("hidden.weight", "hidden.bias", "last.weight", "last.bias")


def test_a_component_of_the_users_can_be_trained(users: Path) -> None:
    problem = own_task(users, "Component")
    assert problem.parameters == 650
    assert problem.initial(START).std() > 0


def test_a_module_that_ends_with_a_softmax_is_doubted(users: Path) -> None:
    (doubt,) = own_task(users, "Softmax").doubts()
    assert doubt.message.endswith("returns probabilities, but the loss expects logits")
    assert own_task(users, "Small").doubts() == []


def test_frozen_parameters_stay_as_they_are(users: Path) -> None:
    """What remains to be trained is trained as torch trains it, with momentum and weight decay."""
    problem = own_task(users, "Frozen")
    assert problem.parameters == 9 * 10
    assert problem.layout.names == ("last.weight", "last.bias"), "frozen tensors are not sent"
    assert problem.fixed_elements == 65 * 8
    assert problem.model_family == "module"
    optimizer = {"name": "sgd", "lr": 0.1, "momentum": 0.5, "weight_decay": 0.1}
    training = make_training(optimizer=optimizer, batch_size=1000, threads=1)
    learner = make_learner(problem, training)
    timeline = Timeline()
    timeline.aggregate(timeline.dispatch(0, steps=3))
    start = learner.named_model()
    timeline.play(learner)
    learner.close()
    result = learner.named_model()

    module = copy.deepcopy(problem.module)
    module.load_state_dict(start)
    sgd = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.5, weight_decay=0.1)
    rows = torch.from_numpy(train_rows(problem.partition, 0))
    for _ in range(3):
        sgd.zero_grad()
        outputs = module(problem.inputs(problem.train_x[rows]))
        nn.functional.cross_entropy(outputs, problem.train_y[rows]).backward()
        sgd.step()
    for name, expected in module.state_dict().items():
        if name.startswith("first"):
            assert torch.equal(result[name], start[name]), name
        assert torch.allclose(result[name], expected, rtol=1e-4, atol=1e-6), name
    assert not torch.equal(result["last.weight"], start["last.weight"])


def test_parameters_that_nothing_uses_stay_as_they_are(users: Path) -> None:
    learner = make_learner(own_task(users, "Spare"), make_training(threads=1))
    timeline = Timeline()
    timeline.aggregate(timeline.dispatch(0, steps=3))
    start = learner.named_model()
    timeline.play(learner).close()
    for name, value in learner.named_model().items():
        assert torch.equal(value, start[name]) == name.startswith("spare"), name


def test_a_stack_with_frozen_layers_is_no_stack_for_the_kernels(users: Path) -> None:
    assert own_task(users, "FrozenStack").model_family == "module"
