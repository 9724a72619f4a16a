"""Models: exact sizes, initial parameters, fit with the data, and agreement with torch's own layers."""

from __future__ import annotations

import copy
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import functional_call
from torch.utils.flop_counter import FlopCounterMode

from fedsim.errors import UserError
from fedsim.randomness import Purpose, Stream
from fedsim.scenario.loading import load_part
from fedsim.tasks import models
from fedsim.tasks.dataset import Dataset
from fedsim.tasks.dropout import has_dropout, seed_dropout
from fedsim.tasks.losses import Loss
from fedsim.tasks.model import initialise
from fedsim.tasks.models.characters import LstmLayer
from fedsim.tasks.models.linear import LinearParameters, SplitLinear
from fedsim.tasks.supervised import SupervisedTask
from tests.learning.problems import Timeline, make_learner, make_training
from tests.tasks.toys import characters, split, task, toy_dataset

START = Stream(0, Purpose.INITIAL_MODEL)
GREY, COLOUR = (1, 28, 28), (3, 32, 32)

SIZES: list[tuple[str, dict[str, Any], tuple[int, ...], int]] = [
    ("logistic_regression", {}, GREY, 7_850),
    ("mlp", {}, GREY, 159_010),
    ("mlp", {"hidden": [400]}, GREY, 318_010),
    ("mlp", {"hidden": [200, 200]}, GREY, 199_210),
    ("mlp", {"hidden": [32]}, (20,), 1_002),
    ("linear", {}, GREY, 784),
    ("linear", {"bias": True, "personal_features": 392}, GREY, 785),
    ("cnn", {}, GREY, 107_786),
    ("fedcompass_cnn", {}, GREY, 582_026),
    ("fedsum_mnist_cnn", {}, GREY, 51_480),
    ("fedsum_svhn_cnn", {}, COLOUR, 273_706),
    ("fedsum_cifar_cnn", {}, COLOUR, 551_786),
    ("wangji_fashion_cnn", {}, GREY, 228_586),
    ("wangji_cifar_cnn", {}, COLOUR, 2_218_314),
    ("resnet18", {}, COLOUR, 11_173_962),
    ("resnet18", {"norm": "batch"}, COLOUR, 11_173_962),
    ("resnet20", {}, COLOUR, 269_722),
    ("resnet20", {"norm": "batch"}, COLOUR, 269_722),
]


def dataset_of(shape: tuple[int, ...]) -> Dataset:
    return characters() if shape == (12,) else toy_dataset(samples=20, shape=shape, tests=10)


@pytest.mark.parametrize(("name", "params", "shape", "size"), SIZES)
def test_models_have_the_published_number_of_parameters(
    name: str, params: dict[str, Any], shape: tuple[int, ...], size: int
) -> None:
    component = models.registry()[name]
    module = component(component.Params(**params)).build(dataset_of(shape))
    assert sum(value.numel() for value in module.parameters()) == size


CHEAP = [
    ("logistic_regression", {}, GREY),
    ("mlp", {}, GREY),
    ("linear", {"personal_features": 3}, GREY),
    ("cnn", {}, (1, 8, 8)),
    ("fedcompass_cnn", {}, GREY),
    ("fedsum_mnist_cnn", {}, GREY),
    ("fedsum_svhn_cnn", {}, COLOUR),
    ("fedsum_cifar_cnn", {}, COLOUR),
    ("wangji_fashion_cnn", {}, GREY),
    ("wangji_cifar_cnn", {}, COLOUR),
    ("resnet18", {}, (3, 8, 8)),
    ("resnet20", {}, COLOUR),
    ("resnet20", {"norm": "batch"}, COLOUR),
    ("char_lstm", {}, (12,)),
    ("char_transformer", {}, (12,)),
]


def test_every_model_is_tested_here() -> None:
    assert {name for name, _, _ in CHEAP} == set(models.registry())


@pytest.mark.parametrize(("name", "params", "shape"), CHEAP)
def test_initial_models_are_a_function_of_the_stream_alone(
    name: str, params: dict[str, Any], shape: tuple[int, ...]
) -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    problem = task(dataset_of(shape), name, **params)
    first = problem.initial(START)
    assert torch.equal(torch.get_rng_state(), before), "the global generator is left alone"
    torch.manual_seed(2)
    assert torch.equal(problem.initial(START), first)
    assert torch.equal(problem.initial(START, torch.float64), first.double())
    other = problem.initial(Stream(1, Purpose.INITIAL_MODEL))
    assert torch.equal(other, first) == (name == "linear"), "only the convex study starts at zero"
    assert first.shape == (problem.layout.size,)
    assert torch.isfinite(first).all()
    inputs = problem.inputs(problem.train_x[:5])
    problem.module.eval()
    outputs = functional_call(problem.module, problem.layout.views(first), (inputs,))
    assert outputs.shape == (5, 1 if name == "linear" else problem.dataset.classes)


@pytest.mark.parametrize(
    "name", ["logistic_regression", "mlp", "fedcompass_cnn", "fedsum_svhn_cnn"]
)
def test_initial_parameters_have_the_distribution_that_torch_gives_them(name: str) -> None:
    problem = task(dataset_of(GREY), name)
    ours = problem.layout.views(problem.initial(START))
    torch.manual_seed(0)
    component = models.registry()[name]
    theirs = component(component.Params()).build(problem.dataset).state_dict()
    for key, value in ours.items():
        if value.numel() >= 80:
            assert value.std() == pytest.approx(float(theirs[key].std()), rel=0.25)
            assert value.abs().max() == pytest.approx(float(theirs[key].abs().max()), rel=0.1)


@pytest.mark.parametrize("name", ["wangji_fashion_cnn", "cnn"])
def test_some_networks_start_with_kaiming_normal_and_zero_biases(name: str) -> None:
    problem = task(dataset_of(GREY), name)
    views = list(problem.layout.views(problem.initial(START)).values())
    weights, biases = views[::2], views[1::2]
    for weight, bias in zip(weights[:-1], biases[:-1], strict=True):
        assert float(weight.std()) == pytest.approx((2 / weight[0].numel()) ** 0.5, rel=0.15)
        assert not bias.any()
    assert biases[-1].any()


def test_logistic_regression_can_start_at_zero() -> None:
    problem = task(dataset_of(GREY), "logistic_regression", start="zero")
    assert not problem.initial(START).any()


def test_linear_stacks_promise_weight_and_bias_in_order() -> None:
    problem = task(toy_dataset(), "mlp", hidden=[7, 5])
    assert problem.model_family == "mlp"
    assert [
        (name, shape)
        for name, shape in zip(problem.layout.names, problem.layout.shapes, strict=True)
    ] == [
        ("layers.0.weight", (7, 64)),
        ("layers.0.bias", (7,)),
        ("layers.1.weight", (5, 7)),
        ("layers.1.bias", (5,)),
        ("layers.2.weight", (10, 5)),
        ("layers.2.bias", (10,)),
    ]
    values = problem.layout.views(problem.initial(START))
    inputs = problem.inputs(problem.train_x[:3])
    hidden = inputs.flatten(1)
    for layer in range(2):
        hidden = torch.relu(
            hidden @ values[f"layers.{layer}.weight"].T + values[f"layers.{layer}.bias"]
        )
    expected = hidden @ values["layers.2.weight"].T + values["layers.2.bias"]
    assert torch.allclose(functional_call(problem.module, values, (inputs,)), expected)
    assert task(toy_dataset(), "logistic_regression").model_family == "linear"


def test_flops_are_those_counted_by_hand() -> None:
    # Linear layers: 2 m n forward, 2 m n for the weights' gradient, 2 m n for the inputs' (not in the first layer).
    assert task(toy_dataset(), "logistic_regression").flops_per_sample() == 4 * 64 * 10
    assert task(toy_dataset(), "mlp", hidden=[20]).flops_per_sample() == 4 * 64 * 20 + 6 * 20 * 10
    # One 3 x 3 convolution, 1 to 2 channels, 8 x 8 positions: forward and weights' gradient.
    convolution = 2 * (2 * 9 * 2 * 64)
    second = 3 * (2 * 2 * 9 * 2 * 16)
    problem = task(toy_dataset(), "cnn", channels=(2, 2), kernel=3, hidden=[])
    assert problem.flops_per_sample() == convolution + second + 6 * 8 * 10


def test_counting_does_not_import_the_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch._dynamo", None)  # importing it fails
    assert task(toy_dataset(), "mlp", hidden=[20]).flops_per_sample() > 0


@pytest.mark.parametrize("model", ["cnn", "char_lstm", "char_transformer", "resnet20"])
def test_flops_are_those_that_torch_counts(model: str) -> None:
    problem = task(characters() if model.startswith("char") else toy_dataset(), model)
    inputs, labels = problem.inputs(problem.train_x[:2]), problem.train_y[:2]
    with FlopCounterMode(display=False) as counter:
        loss = problem.loss.per_sample(problem.module.eval()(inputs), labels).sum()
        torch.autograd.grad(loss, list(problem.module.parameters()), allow_unused=True)
    assert problem.flops_per_sample() == counter.get_total_flops() // 2


def test_our_lstm_is_torchs() -> None:
    ours, theirs = LstmLayer(3, 5), nn.LSTM(3, 5, batch_first=True)
    state = theirs.state_dict()
    with torch.no_grad():
        ours.input_weight.copy_(state["weight_ih_l0"])
        ours.hidden_weight.copy_(state["weight_hh_l0"])
        ours.bias.copy_(state["bias_ih_l0"] + state["bias_hh_l0"])
    inputs = torch.randn(4, 7, 3, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(ours(inputs), theirs(inputs)[0], atol=1e-6)


def test_the_transformer_attends_to_every_position() -> None:
    problem = task(characters(), "char_transformer")
    views = problem.layout.views(problem.initial(START))
    codes = problem.inputs(problem.train_x[:1])
    reference = functional_call(problem.module, views, (codes,))
    for position in range(codes.shape[1]):
        changed = codes.clone()
        changed[0, position] = (changed[0, position] + 1) % 65
        assert not torch.equal(functional_call(problem.module, views, (changed,)), reference)


def test_batch_norm_keeps_its_statistics_in_the_vector() -> None:
    problem = task(dataset_of(COLOUR), "resnet20", norm="batch")
    assert len(problem.layout.buffers) == 2 * 19
    assert problem.parameters == 269_722
    assert problem.layout.size == 269_722 + 2 * 688
    flat = problem.initial(START)
    views = problem.layout.views(flat)
    assert (views["stem_norm.running_var"] == 1).all()
    assert not views["stem_norm.running_mean"].any()
    before = flat.clone()
    problem.module.train()
    functional_call(problem.module, views, (problem.inputs(problem.train_x[:8]),))
    assert torch.equal(flat[: problem.parameters], before[: problem.parameters])
    assert not torch.equal(flat[problem.parameters :], before[problem.parameters :])


# -- the linear model of the personalisation study ----------


def test_the_split_linear_model_is_the_papers_objective() -> None:
    dataset = toy_dataset(samples=30, shape=(6,))
    problem = task(dataset, "linear", positive=[1, 3, 5, 7, 9], personal_features=2, penalty=0.1)
    assert problem.layout.names == ("shared", "personal")
    flat = torch.linspace(-1, 1, 6)
    u, v = flat[:4], flat[4:]
    x = problem.inputs(problem.train_x)
    outputs = functional_call(problem.module, problem.layout.views(flat), (x,))
    sign = torch.where(problem.train_y % 2 == 1, 1.0, -1.0)
    by_hand = torch.log1p(torch.exp(-sign * (x[:, :4] @ u + x[:, 4:] @ v)))
    assert torch.allclose(problem.loss.per_sample(outputs, problem.train_y), by_hand, atol=1e-6)
    penalty = problem.loss.penalties(problem.layout.views(flat).values())
    expected = 0.1 * (u @ u / (1 + u @ u) + v @ v / (1 + v @ v))
    assert float(penalty) == pytest.approx(float(expected))
    assert (
        problem.loss.predictions(outputs) == problem.loss.targets(problem.train_y)
    ).float().mean() == (torch.sign(outputs.squeeze(1)) == sign).float().mean()


def test_features_can_be_dealt_at_random_and_scaled_to_unit_norm() -> None:
    def module(**params: Any) -> SplitLinear:
        return SplitLinear(50, LinearParameters(**params))

    shuffled = module(shuffle_features=True, personal_features=20)
    assert sorted(shuffled.order.tolist()) == list(range(50))
    assert shuffled.order.tolist() != list(range(50))
    assert torch.equal(module(shuffle_features=True).order, shuffled.order)
    scaled = module(unit_norm=True)
    torch.nn.init.ones_(scaled.shared)
    inputs = torch.rand(3, 50, generator=torch.Generator().manual_seed(0))
    expected = inputs.sum(1) / inputs.norm(dim=1)
    assert torch.allclose(scaled(inputs).squeeze(1), expected)


def test_cross_entropy_is_torchs() -> None:
    outputs = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([0, 1, 2, 3, 0, 1])
    loss = Loss()
    assert torch.equal(
        loss.per_sample(outputs, labels).mean(), nn.functional.cross_entropy(outputs, labels)
    ) or torch.allclose(
        loss.per_sample(outputs, labels).mean(), nn.functional.cross_entropy(outputs, labels)
    )
    assert torch.equal(loss.predictions(outputs), outputs.argmax(1))
    assert torch.equal(loss.targets(labels), labels)


# -- dropout ----------


def test_dropout_masks_are_a_function_of_the_seed() -> None:
    problem = task(dataset_of(GREY), "fedsum_mnist_cnn")
    assert has_dropout(problem.module)
    assert not has_dropout(task(dataset_of(GREY), "mlp").module)
    views = problem.layout.views(problem.initial(START))
    inputs = problem.inputs(problem.train_x[:4])

    def outputs(seed: int) -> torch.Tensor:
        seed_dropout(problem.module, seed)
        return functional_call(problem.module, views, (inputs,))

    problem.module.train()
    first = outputs(5)
    torch.manual_seed(99)
    assert torch.equal(outputs(5), first)
    assert not torch.equal(outputs(6), first)
    problem.module.eval()
    assert torch.equal(outputs(5), outputs(6))


def test_dropout_keeps_the_mean_and_drops_its_share() -> None:
    from fedsim.tasks.dropout import KeyedDropout

    layer = KeyedDropout(0.2)
    with pytest.raises(RuntimeError, match="seed_dropout"):
        layer(torch.ones(2))
    seed_dropout(layer, 0)
    values = layer(torch.ones(100_000))
    assert set(values.unique().tolist()) == {0.0, 1.25}
    assert float((values == 0).float().mean()) == pytest.approx(0.2, abs=0.01)
    channels = KeyedDropout(0.5, whole_channels=True)
    seed_dropout(channels, 0)
    dropped = channels(torch.ones(50, 8, 3, 3))
    assert (dropped.flatten(2).std(dim=2) == 0).all(), "a channel is dropped as a whole or kept"


# -- models that do not fit ----------


@pytest.mark.parametrize(
    ("name", "params", "dataset", "message"),
    [
        ("cnn", {}, toy_dataset(shape=(20,)), "needs images"),
        ("cnn", {}, toy_dataset(shape=(1, 3, 8)), "too small; 4 x 4 is least"),
        ("fedcompass_cnn", {}, toy_dataset(shape=(1, 8, 8)), "16 x 16 is least"),
        ("resnet18", {}, toy_dataset(shape=(3, 4, 4)), "8 x 8 is least"),
        ("resnet20", {"groups": 5}, toy_dataset(), "5 groups do not divide 16 channels"),
        ("mlp", {}, characters(), "samples are sequences of characters"),
        ("char_lstm", {}, toy_dataset(), "guesses the next character"),
        ("char_transformer", {"heads": 5}, characters(), "5 heads do not divide width 64"),
        ("linear", {"positive": [10]}, toy_dataset(), "do not split its 10 classes"),
        ("linear", {"positive": list(range(10))}, toy_dataset(), "do not split its 10 classes"),
        ("linear", {"personal_features": 64}, toy_dataset(), "leave none of 64"),
    ],
)
def test_a_model_that_does_not_fit_says_why(
    name: str, params: dict[str, Any], dataset: Dataset, message: str
) -> None:
    with pytest.raises(UserError, match=message):
        task(dataset, name, **params)


@pytest.mark.parametrize(
    ("name", "params"),
    [("mlp", {"hidden": [0]}), ("cnn", {"hidden": [-3]}), ("cnn", {"channels": (0, 4)})],
)
def test_layers_have_a_width(name: str, params: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="greater than 0"):
        task(toy_dataset(), name, **params)


def test_an_unknown_layer_has_no_rule() -> None:
    with pytest.raises(TypeError, match="no rule to initialise Bilinear"):
        initialise(nn.Bilinear(2, 2, 2), torch.Generator())


# -- the user's own ----------

USERS = """
import torch
from torch import nn
from fedsim.components import Parameters
from fedsim.tasks.model import ModelComponent

class Net(nn.Module):
    def __init__(self, input_shape, classes, width=16):
        super().__init__()
        self.hidden = nn.Linear(input_shape[0] * input_shape[1] * input_shape[2], width)
        self.drop = nn.Dropout(0.5)
        self.last = nn.Linear(width, classes)
        nn.init.constant_(self.last.bias, 3.0)

    def forward(self, x):
        return self.last(self.drop(torch.relu(self.hidden(x.flatten(1)))))

class Wrong(nn.Module):
    def forward(self, x):
        return x.flatten(1)[:, :3]

class Broken(nn.Module):
    def __init__(self):
        super().__init__()
        raise ZeroDivisionError("no idea")

class Unrepeatable(nn.Module):
    def __init__(self):
        super().__init__()
        self.cells = nn.LSTM(8, 10, dropout=0.5, num_layers=2)

class Component(ModelComponent):
    name = "mine"
    def build(self, dataset):
        return nn.Sequential(nn.Flatten(), nn.Linear(64, dataset.classes))

class Small(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.first = nn.Linear(64, 8)
        self.last = nn.Linear(8, classes)

    def forward(self, x):
        return self.last(torch.relu(self.first(x.flatten(1))))

class Faulty(Small):
    def forward(self, x):
        return self.nothing(x)

class Whole(Small):
    def forward(self, x):
        return super().forward(x).long()

class Detached(Small):
    def forward(self, x):
        return self.last(self.first(x.flatten(1))).detach()

class Spare(Small):
    def __init__(self, classes):
        super().__init__(classes)
        self.spare = nn.Linear(3, 3)

class Frozen(Small):
    def __init__(self, classes):
        super().__init__(classes)
        self.first.requires_grad_(False)

class AllFrozen(Small):
    def __init__(self, classes):
        super().__init__(classes)
        self.requires_grad_(False)

class Nothing(nn.Module):
    def forward(self, x):
        return x.flatten(1)[:, :10]

class Lazy(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.last = nn.LazyLinear(classes)

    def forward(self, x):
        return self.last(x.flatten(1))

class OnlyEvaluated(Small):
    def forward(self, x):
        if self.training:
            raise KeyError("mode")
        return super().forward(x)

class Normed(Small):
    def __init__(self, classes):
        super().__init__(classes)
        self.norm = nn.BatchNorm1d(8)

    def forward(self, x):
        return self.last(torch.relu(self.norm(self.first(x.flatten(1)))))

class FrozenStack(ModelComponent):
    name = "frozen_stack"
    family = "mlp"
    def build(self, dataset):
        stack = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, dataset.classes))
        stack[1].requires_grad_(False)
        return stack

class Neither:
    pass
"""


@pytest.fixture
def users(tmp_path: Path) -> Path:
    (tmp_path / "own.py").write_text(USERS)
    return tmp_path


def own_task(folder: Path, name: str, **options: Any) -> SupervisedTask:
    model = load_part("model", {"name": f"own.py:{name}", **options}, folder).create()
    dataset = toy_dataset()
    return SupervisedTask(dataset, split(dataset, "iid", clients=4), model)


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


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("Net", {"depth": 3}, "Net cannot be built.*depth"),
        ("Wrong", {}, r"gives \(2, 3\) for 2 samples, expected \(2, 10\)"),
        ("Broken", {}, "ZeroDivisionError: no idea"),
        ("Unrepeatable", {}, "LSTM.*could not be repeated"),
        (
            "Faulty",
            {},
            r"AttributeError: 'Faulty' object has no attribute 'nothing' \(.*own.py:\d+",
        ),
        ("Whole", {}, "numbers of type torch.int64"),
        ("Detached", {}, "have no gradient by any of its parameters"),
        ("AllFrozen", {}, "no trainable parameters"),
        ("Nothing", {}, "no trainable parameters"),
        ("Lazy", {}, "shape of last.weight, last.bias .* is not known before its first use"),
        ("OnlyEvaluated", {}, r"cannot be trained: KeyError: 'mode' \(.*own.py:\d+"),
        ("Neither", {}, "has no Module named 'Neither'"),
        ("Missing", {}, "has no Module named 'Missing'"),
    ],
)
def test_a_users_model_that_cannot_be_used_says_why(
    users: Path, name: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        own_task(users, name, **options)


def test_frozen_parameters_stay_as_they_are(users: Path) -> None:
    """What remains to be trained is trained as torch trains it, with momentum and weight decay."""
    problem = own_task(users, "Frozen")
    assert problem.parameters == 9 * 10
    assert problem.layout.buffers == ("first.weight", "first.bias")
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
    rows = torch.from_numpy(problem.partition.train(0))
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


def test_batch_norm_refuses_one_sample_alone(users: Path) -> None:
    reason = own_task(users, "Normed").refusal_of_one_sample()
    assert reason is not None
    assert "more than 1 value per channel" in reason
    assert own_task(users, "Small").refusal_of_one_sample() is None


def test_a_user_file_that_is_missing_or_broken_says_so(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such file"):
        own_task(tmp_path, "Net")
    (tmp_path / "own.py").write_text("import nothing_of_this_name\n")
    with pytest.raises(UserError, match="cannot be imported: ModuleNotFoundError"):
        own_task(tmp_path, "Net")


# -- the task ----------


def test_a_task_knows_its_clients() -> None:
    dataset = toy_dataset(samples=103)
    problem = task(dataset, "mlp", clients=10)
    assert problem.clients == 10
    assert problem.samples.sum() == 103
    assert problem.steps_per_epoch(4).tolist() == [-(-size // 4) for size in problem.samples]
    assert problem.steps_per_epoch(1000).tolist() == [1] * 10
    assert problem.train_x.data_ptr() == torch.from_numpy(dataset.train_x).data_ptr(), "no copy"


def test_inputs_are_scaled_in_the_asked_precision() -> None:
    problem = task(toy_dataset(), "mlp")
    raw = problem.train_x[:3]
    assert raw.dtype == torch.uint8
    assert torch.equal(problem.inputs(raw), raw.float() * np.float32(1 / 255))
    assert problem.inputs(raw, torch.float64).dtype == torch.float64
    codes = task(characters(), "char_lstm", hidden=4)
    assert codes.inputs(codes.train_x[:2]).dtype == torch.int64


def test_clients_may_have_test_samples_of_their_own() -> None:
    dataset = toy_dataset()
    component = models.registry()["logistic_regression"]
    for test, source in (("split", "train_x"), ("same_distribution", "test_x")):
        partition = split(dataset, "iid", clients=5, test=test)
        problem = SupervisedTask(dataset, partition, component(component.Params()))
        assert problem.client_test_x is getattr(problem, source)
        assert problem.client_test_offsets is not None
        assert problem.client_test_offsets[-1] == len(problem.client_test_rows) > 0
    plain = task(dataset, "mlp")
    assert plain.client_test_rows is None
