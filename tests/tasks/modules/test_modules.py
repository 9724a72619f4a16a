"""Modules: their calls, checks, counted operations, dropout, initial values, and the built-in networks."""

import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils.flop_counter import FlopCounterMode

import fedsim
from fedsim.errors import UserError
from fedsim.parts.catalog import CATALOG
from fedsim.tasks.losses import Loss
from fedsim.tasks.modules.checks import Constants, adapt_calls, count_flops
from fedsim.tasks.modules.dropout import KeyedDropout
from fedsim.tasks.modules.networks import Block, LstmLayer, ResidualNetwork
from tests.composition.worlds import digits
from tests.tasks.toys import GREY, START, characters, dataset_of, task, toy_dataset
from tests.tasks.users import own_task

X = torch.tensor([[[1.0, 2, 0], [3, 4, 5]]])


class Recorder(nn.Module):
    """Keeps its arguments."""

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        self.given = kwargs or args
        return torch.zeros(1, 3)


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ("x", X),
        ("x[1]", X[:, 1]),
        ("x[-1]", X[:, -1]),
        ("x[:1]", X[:, :1]),
        ("x[1:]", X[:, 1:]),
        ("int(x[0])", X[:, 0].long()),
        ("x[0] != 0", torch.tensor([[1, 1, 0]])),
        ("x[0]!=2", torch.tensor([[1, 0, 1]])),
    ],
)
def test_arguments_are_parts_of_the_samples(part: str, expected: Tensor) -> None:
    module = Recorder()
    adapt_calls(module, (2, 3), {"a": part, "b": {"c": part}})
    module(X)
    for value in (module.given["a"], module.given["b"]["c"]):
        assert torch.equal(value, expected)
        assert value.dtype == expected.dtype


@pytest.mark.parametrize("part", ["", "x[]", "int(x", "x + 1", 3, {}])
def test_other_parts_are_refused(part: Any) -> None:
    for inputs in ({"a": part}, "x"):
        with pytest.raises(UserError, match="is not a part of the samples x"):
            adapt_calls(Recorder(), (2, 3), inputs)


@pytest.mark.parametrize("part", ["x[2]", "x[-3]", "x[1:3]", "x[-3:]", "x[2:]", "x[1:1]"])
def test_parts_outside_the_samples_are_refused(part: str) -> None:
    with pytest.raises(UserError, match=r"inputs\.a\.b: .* not within a sample, .* \(2, 3\)"):
        adapt_calls(Recorder(), (2, 3), {"a": {"b": part}})


def test_logits_are_the_scores() -> None:
    class Output(nn.Module):
        def forward(self, x: Tensor) -> Any:
            return SimpleNamespace(logits=x)

    module = Output()
    adapt_calls(module, (2, 3))
    assert torch.equal(module(X[:, 0]), X[:, 0])
    assert torch.equal(module(X), X[:, -1]), "of a language model, those of the last position"


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("Net", {"depth": 3}, "depth: unknown key"),
        ("Wrong", {}, r"returns .* shape \(2, 3\) .* for 2 samples, .* logits \(2, 10\)"),
        ("Tuple", {}, r"returns .* for 2 samples, .*\n  return these alone"),
        ("Array", {}, r"returns .*ndarray.* for 2 samples|returns .*array"),
        ("Complex", {}, "parameters of model .* have complex values"),
        ("LazyBuffer", {}, "shape of norm.running_mean, .* is unknown before its first use"),
        ("Broken", {}, "ZeroDivisionError: no idea"),
        ("Unrepeatable", {}, "LSTM.*not reproducible"),
        ("Faulty", {}, r"'Faulty' object has no attribute 'nothing' \(.*own.py:\d+"),
        ("scripted", {}, "RecursiveScriptModule, not an ordinary torch.nn.Module"),
        ("Whole", {}, "type int64 for 2 samples"),
        ("Detached", {}, "(?s)cannot be trained.*detach"),
        ("AllFrozen", {}, "(?s)cannot be trained.*requires_grad=True"),
        ("Masked", {}, r"(?s)cannot process .*'mask'.*inputs: \{input_ids: "),
        ("Lazy", {}, "shape of last.weight, last.bias .* is unknown before its first use"),
        ("Restless", {}, "dropout is active in evaluation: forward must not call train"),
        ("OnlyEvaluated", {}, r"cannot be trained: KeyError: 'mode' \(.*own.py:\d+"),
        ("Neither", {}, "own.py:\\d+: Neither does not derive from torch.nn.Module"),
        ("Missing", {}, "has no class or function named 'Missing'"),
    ],
)
def test_a_users_model_that_cannot_be_used_says_why(
    users: Path, name: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        own_task(users, name, **options)


def test_batch_norm_refuses_one_sample_alone(users: Path) -> None:
    reason = own_task(users, "Normed").refusal_of_one_sample()
    assert reason is not None
    assert "more than 1 value per channel" in reason
    assert own_task(users, "Small").refusal_of_one_sample() is None


REMEMBERING = """\
import torch
from torch import nn


class Own(nn.Module):
    def __init__(self, input_shape, classes):
        super().__init__()
        self.a, self.b = nn.Linear(64, 6), nn.Linear(6, classes)

    def forward(self, x):
        h = torch.relu(self.a(x.flatten(1)))
        {kept}
        return self.b(h)
"""


@pytest.mark.parametrize("kept", ["self.h = [h, (h,)]", "if not self.training: self.h = h"])
@pytest.mark.parametrize("executor", ["plain", "stacked"])
def test_a_module_may_keep_activations_of_its_last_call(
    tmp_path: Path, kept: str, executor: str
) -> None:
    (tmp_path / "own.py").write_text(REMEMBERING.format(kept=kept))
    world = digits(stop={"rounds": 2}, evaluation={"every_rounds": 1})
    world["task"]["model"] = {"name": f"{tmp_path}/own.py:Own"}
    world["devices"]["compute"] = "flops"
    world["training"]["executor"] = executor
    assert len(fedsim.run(world, tmp_path / "run").metrics) == 3


class Model(nn.Module):
    """A sent weight, a frozen one, a mask, and the running statistics of a normalization."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2))
        self.frozen = nn.Parameter(torch.ones(2), requires_grad=False)
        self.register_buffer("mask", torch.tensor([True, False]), persistent=False)
        self.norm = nn.BatchNorm1d(2)


SENT = ("weight", "norm.weight", "norm.bias", "norm.running_mean", "norm.running_var")


def guarded(module: nn.Module) -> Constants:
    return Constants(module, SENT, "mine")


def test_what_is_sent_may_change_and_nothing_else() -> None:
    for name, changes in (("", False), ("frozen", True), ("mask", True)):
        model = Model()
        constants = guarded(model)
        model.norm(torch.randn(4, 2))
        with torch.no_grad():
            model.weight.add_(1)
            if changes:
                getattr(model, name)[0] = 0
        with pytest.raises(UserError, match=f"'{name}'") if changes else nullcontext():
            constants.check()


def test_a_tensor_in_its_place_counts_by_its_values_and_a_table_that_grows_is_a_cache() -> None:
    model = Model()
    constants = guarded(model)
    for mask in (model.mask.clone(), torch.ones(3, dtype=torch.bool)):
        model.mask = mask
        constants.check()
    model.mask = torch.tensor([False, True])
    with pytest.raises(UserError, match="'mask'"):
        constants.check()


def test_without_a_momentum_the_number_of_batches_matters() -> None:
    model = Model()
    model.norm = nn.BatchNorm1d(2, momentum=None)
    constants = guarded(model)
    model.norm(torch.randn(4, 2))
    with pytest.raises(UserError, match=r"'norm\.num_batches_tracked'"):
        constants.check()


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


def test_fused_attention_is_counted() -> None:
    """softmax(q k') v with q = x w, k = v = x: 4 L^2 d forward, 4 L^2 d backward to q, and 2 L d^2 each for q and w."""

    class Attention(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = torch.nn.Parameter(torch.eye(8))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.scaled_dot_product_attention(x @ self.w, x, x)[:, 0]

    length, width = 6, 8
    flops = count_flops(Attention(), Loss(), torch.rand(2, length, width), torch.tensor([0, 1]))
    assert flops == 8 * length**2 * width + 4 * length * width**2


def keyed(seed: int) -> KeyedDropout:
    return KeyedDropout(torch.Generator().manual_seed(seed))


def test_dropout_masks_are_a_function_of_the_seed() -> None:
    problem = task(dataset_of(GREY), "fedsum_mnist_cnn")
    assert problem.drops
    assert not task(dataset_of(GREY), "mlp").drops
    views = problem.layout.views(problem.initial(START))
    inputs = problem.inputs(problem.train_x[:4])

    def outputs(seed: int) -> torch.Tensor:
        with keyed(seed):
            return functional_call(problem.module, views, (inputs,))

    problem.module.train()
    first = outputs(5)
    torch.manual_seed(99)
    assert torch.equal(outputs(5), first)
    assert not torch.equal(outputs(6), first)
    problem.module.eval()
    assert torch.equal(outputs(5), outputs(6))


def test_dropout_keeps_the_mean_and_drops_its_share() -> None:
    with keyed(0):
        values = nn.Dropout(0.2)(torch.ones(100_000))
        dropped = nn.Dropout2d(0.5)(torch.ones(50, 8, 3, 3))
    assert set(values.unique().tolist()) == {0.0, 1.25}
    assert float((values == 0).float().mean()) == pytest.approx(0.2, abs=0.01)
    assert (dropped.flatten(2).std(dim=2) == 0).all(), "a channel is dropped as a whole or kept"


@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_functions_that_drop_channels_have_the_masks_of_the_layers(dimensions: int) -> None:
    inputs = torch.ones(6, 8, *[3] * dimensions)
    with keyed(3):
        expected = getattr(nn, f"Dropout{dimensions}d")(0.5)(inputs)
    function = getattr(nn.functional, f"dropout{dimensions}d")
    with keyed(3):
        assert torch.equal(function(inputs, 0.5), expected)
        assert torch.equal(function(inputs, 0.5, training=False), inputs)
    assert not torch.equal(expected, inputs)


@pytest.mark.parametrize(
    "name", ["logistic_regression", "mlp", "fedcompass_cnn", "fedsum_svhn_cnn"]
)
def test_initial_parameters_have_the_distribution_that_torch_gives_them(name: str) -> None:
    problem = task(dataset_of(GREY), name)
    ours = problem.layout.views(problem.initial(START))
    torch.manual_seed(0)
    component = CATALOG.parts("model")[name]
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


def plain(channels: int) -> nn.Module:
    return nn.Identity()


def shortcut_of(block: Block, inputs: Tensor) -> Tensor:
    """The output of a block whose convolutions add nothing."""
    nn.init.zeros_(block.conv2.weight)
    with torch.no_grad():
        outputs: Tensor = block(inputs)
    return outputs


IMAGE = torch.arange(-8.0, 24.0).reshape(1, 2, 4, 4)


def test_a_block_of_the_same_shape_adds_its_input() -> None:
    block = Block(2, 2, 1, True, plain)
    assert block.projection is None
    assert torch.equal(shortcut_of(block, IMAGE), IMAGE.relu())


def test_a_shortcut_without_parameters_skips_pixels_and_adds_channels_of_zeros() -> None:
    outputs = shortcut_of(Block(2, 6, 2, False, plain, before=2), IMAGE)
    assert outputs.shape == (1, 6, 2, 2)
    assert torch.equal(outputs[:, 2:4], IMAGE[:, :, ::2, ::2].relu())
    assert not outputs[:, [0, 1, 4, 5]].any()


def test_a_projection_is_a_convolution_of_single_pixels() -> None:
    block = Block(2, 3, 2, True, plain)
    assert isinstance(block.projection, nn.Sequential)
    weight = block.projection[0].weight[:, :, 0, 0]
    expected = torch.einsum("oi,nihw->nohw", weight, IMAGE[:, :, ::2, ::2]).relu()
    assert torch.allclose(shortcut_of(block, IMAGE), expected, atol=1e-5)


@pytest.mark.parametrize("groups", [None, 2])
def test_a_network_halves_the_image_in_every_stage_but_the_first(groups: int | None) -> None:
    network = ResidualNetwork(1, (4, 8, 16), 2, True, 10, groups)
    shapes = []
    for block in network.stages:
        block.register_forward_hook(lambda *call: shapes.append(tuple(call[2].shape[1:])))
    assert network(torch.zeros(3, 1, 8, 8)).shape == (3, 10)
    assert shapes == [(4, 8, 8)] * 2 + [(8, 4, 4)] * 2 + [(16, 2, 2)] * 2
    norms = {type(module) for module in network.modules() if "Norm" in type(module).__name__}
    assert norms == {nn.BatchNorm2d if groups is None else nn.GroupNorm}
    assert all(value.is_floating_point() for value in network.state_dict().values())


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
