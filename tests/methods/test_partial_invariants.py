"""What must hold of split models in every round, whoever takes part: invariants of the card, reductions, rounding."""

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsim.errors import UserError
from fedsim.learning.learner import Learner
from fedsim.learning.local_training import LocalTrainer
from fedsim.methods.personal import Split
from fedsim.parts.catalog import CATALOG
from fedsim.tasks.layout import Layout
from tests.learning.problems import (
    Timeline,
    make_cohort,
    make_learner,
    make_training,
    supervised_task,
)
from tests.methods.driver import Part, quadratic
from tests.methods.personal_worlds import CASE_B, Reference, Story, coupled

# -- random participation ----------------------------------------------------------------------------------------------

FATES = ("absent", "used", "lost", "kept")
LOGS = st.lists(
    st.lists(st.tuples(st.sampled_from(FATES), st.integers(1, 3)), min_size=3, max_size=3),
    min_size=1,
    max_size=4,
)
VARIANTS: list[tuple[str, dict[str, Any], str | None]] = [
    ("fedavg_p", {}, None),
    ("scaffold_p", {"uplink": 1}, "paper"),
    ("scaffold_p", {"uplink": 2}, "paper"),
    ("scaffold_p", {"uplink": 2, "c0": "zero"}, "zero"),
]


@pytest.mark.parametrize("steps", ["outer 1", "outer 2"])
@pytest.mark.parametrize(("method", "options", "controls"), VARIANTS)
@settings(max_examples=8)
@given(log=LOGS)
def test_any_participation_gives_what_the_algorithm_gives(
    method: str, options: dict[str, Any], controls: str | None, steps: str, log: Any
) -> None:
    """Absent, lost and partial work in any mixture: iterates of the exact reference, and the card's I1 and I2."""
    gammas, etas = (Fraction(1, 8), Fraction(1, 8)), (Fraction(1), Fraction(1))
    if steps == "outer 2":
        gammas, etas = (Fraction(1, 16), Fraction(1, 8)), (Fraction(2), Fraction(3, 2))
        options = options | {"gamma_u": 1 / 16, "eta_u": 2, "eta_v": 1.5}
    story = Story(method, coupled(CASE_B), K=3, keep_v_on_drop=True, **options)
    reference = Reference(CASE_B, gammas=gammas, etas=etas, controls=controls)
    for fates in log:
        by_fate = {
            fate: [Part(i, done) for i, (mine, done) in enumerate(fates) if mine == fate]
            for fate in FATES
        }
        story.round(by_fate["used"], lost=by_fate["lost"], kept=by_fate["kept"])
        reference.round(
            {part.client: part.steps or 0 for part in by_fate["used"]},
            {part.client: part.steps or 0 for part in by_fate["kept"]},
        )
        np.testing.assert_allclose(story.u[-1], float(reference.u), rtol=1e-11, atol=1e-13)
        np.testing.assert_allclose(
            story.v[-1][:, 0], np.array(reference.v, dtype=float), rtol=1e-11, atol=1e-13
        )
        unchanged = [part.client for fate in ("absent", "lost") for part in by_fate[fate]]
        np.testing.assert_array_equal(story.v[-1][unchanged], story.v[-2][unchanged])
        if controls is not None:
            np.testing.assert_allclose(
                story.ci[-1][:, 0], np.array(reference.ci, dtype=float), rtol=1e-11, atol=1e-12
            )
            np.testing.assert_allclose(story.c[-1], story.ci[-1].mean(0), rtol=1e-11, atol=1e-12)
            unchanged += [part.client for part in by_fate["kept"]]
            np.testing.assert_array_equal(story.ci[-1][unchanged], story.ci[-2][unchanged])


# -- reductions, bit for bit -------------------------------------------------------------------------------------------


def learnt(method: str, model: str = "mlp", **params: Any) -> Learner:
    """Five partial rounds of a small network on images."""
    task = supervised_task(model)
    kind = CATALOG.parts("method")[method]
    timeline = Timeline()
    if kind.Params.model_validate(params).model_dump().get("c0") == "gradients":
        timeline.aggregate(*[timeline.dispatch(client) for client in range(8)])
    for clients in ([0, 3, 5], [1, 2, 3, 7], [4], [0, 1, 6], [5, 2]):
        timeline.aggregate(*[timeline.dispatch(client, 2 + client % 3) for client in clients])
    learner = make_learner(task, method=kind, params=kind.Params.model_validate(params))
    timeline.play(learner)
    learner.close()
    return learner


SAME: list[tuple[tuple[str, dict[str, Any]], tuple[str, dict[str, Any]]]] = [
    (("fedavg_p", {"personal": "none"}), ("fedavg", {"weights": "uniform"})),
    (("fedavg_p", {"personal": "none"}), ("fedprox", {"mu": 0.0, "weights": "uniform"})),
    (("fedsim", {"personal": "none", "weights": "samples"}), ("fedavg", {})),
    (("fedalt", {"personal": "none", "weights": "samples"}), ("fedavg", {})),
    (("fedprox", {"mu": 0.0, "server_lr": 0.7}), ("fedavg", {"server_lr": 0.7})),
    (("ditto", {}), ("fedavg", {"weights": "uniform"})),
    (("fedavg_p", {"personal": ["*"]}), ("fedsim", {"personal": "all"})),
    (("fedavg_p", {}), ("fedsim", {})),
    (("fedper", {}), ("fedsim", {"weights": "samples"})),
    (("lg_fedavg", {}), ("fedsim", {"weights": "samples", "personal": "body"})),
    (("fedrep", {"personal_steps": 2.0}), ("fedalt", {"personal_steps": 2.0})),
    (("fedalt", {"personal": "all"}), ("fedsim", {"personal": "all"})),
]


@pytest.mark.parametrize(
    ("one", "other", "model"),
    [*((*pair, "mlp") for pair in SAME), *((*pair, "batch_norm") for pair in SAME[:3])],
)
def test_special_parameters_give_the_same_bits(one: Any, other: Any, model: str) -> None:
    """The reductions of the cards, on networks in float32."""
    first, second = learnt(one[0], model, **one[1]), learnt(other[0], model, **other[1])
    assert torch.equal(first.server["model"], second.server["model"])
    if "personal" in first.store.of_clients and "personal" in second.store.of_clients:
        clients = np.arange(8)
        mine, theirs = (it.store["personal"].get(clients) for it in (first, second))
        assert torch.equal(mine, theirs)


def test_scaffold_p_that_shares_everything_is_scaffold() -> None:
    """Zero start, plain SGD; the same arithmetic up to the order of two sums."""
    one, other = learnt("scaffold_p", personal="none", c0="zero"), learnt("scaffold")
    torch.testing.assert_close(one.server["model"], other.server["model"], rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(one.server["control"], other.server["control"], rtol=1e-5, atol=1e-7)


def test_clients_that_share_nothing_train_alone() -> None:
    """personal: all is FedAvg of each client by itself, and the server's model never moves."""
    together = learnt("fedsim", personal="all")
    assert (
        together.station.method.download()[0].elements
        == together.station.method.upload()[0].elements
        == 0
    )
    initial = learnt("fedsim", personal="all").store["personal"].get(np.array([99]))[0]
    assert torch.equal(together.server["model"], initial)
    for client, sequences in ((3, 2), (4, 1)):
        timeline = Timeline()
        for _ in range(sequences):
            timeline.aggregate(timeline.dispatch(client, 2 + client % 3))
        alone = timeline.play(make_learner(supervised_task("mlp")))
        alone.close()
        personal = together.store["personal"].get(np.array([client]))[0]
        torch.testing.assert_close(personal, alone.server["model"], rtol=1e-6, atol=1e-7)


# -- rounding (card N1, N2) --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("method", "options"), [("fedavg_p", {}), ("scaffold_p", {"uplink": 1})])
def test_steps_below_the_rounding_of_the_model_count(method: str, options: Any) -> None:
    """float32, gradient 0.05 at u = 1, 25 steps of 1e-6: -1.25e-6, where summing into u gives -1.49e-6."""
    task = quadratic(None, 0.0, slopes=[0.05], initial=1.0)
    settings_ = {"training": {"dtype": "float32"}, "personal": "none", "K": 25, "lr": 1e-6}
    story = Story(method, task, eta_u=1e5, **settings_, **options).round([0])
    np.testing.assert_allclose(story.u[1] - story.u[0], -0.125, rtol=1e-6)
    if options:
        np.testing.assert_allclose(story.ci[1], 0.05, rtol=1e-6)
    naive = np.float32(1)
    for _ in range(25):
        naive -= np.float32(1e-6) * np.float32(0.05)
    assert abs((naive - 1) * 1e5 / -0.125 - 1) > 0.1


@pytest.mark.parametrize(
    "optimizer",
    [
        {"name": "sgd", "lr": 0.1, "weight_decay": 0.1},
        {"name": "sgd", "lr": 0.1, "momentum": 0.9, "nesterov": True},
        {"name": "adam", "lr": 0.1, "weight_decay": 0.1},
        {"name": "adamw", "lr": 0.1, "weight_decay": 0.1},
    ],
)
def test_changes_summed_apart_are_the_changes(optimizer: Any) -> None:
    """``change`` equals model - start, and asking for it changes the model by no more than rounding."""
    task = quadratic([[1.0, -2.0], [0.5, 3.0]], [[1.0, 2.0], [0.5, 1.0]], [4.0, -4.0])
    training = make_training(optimizer=optimizer, dtype="float64")
    learner = make_learner(task, training)
    start = learner.server["model"]
    cohort = make_cohort(learner.station.execution, start, [0, 1], [5, 3])
    trainer = LocalTrainer(learner.station.kernel, task.layout, training)
    plain = trainer.run(cohort, cohort.down["model"])
    apart = trainer.run(cohort, cohort.down["model"], collect=("change",))
    assert apart.change is not None
    torch.testing.assert_close(apart.model, plain.model, rtol=1e-13, atol=1e-14)
    torch.testing.assert_close(apart.change, plain.model - start, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("personal", ["none", "all"])
def test_running_statistics_are_not_magnified(personal: str) -> None:
    """N5: outer step sizes move parameters; buffers of either part go where they were measured."""
    models = []
    for eta in (1.0, 1.5):
        kind = CATALOG.parts("method")["fedavg_p"]
        params = kind.Params.model_validate(
            {"personal": personal, "gamma_u": 0.1, "gamma_v": 0.1, "eta_u": eta, "eta_v": eta}
        )
        timeline = Timeline()
        timeline.aggregate(timeline.dispatch(4))
        learner = make_learner(supervised_task("batch_norm"), method=kind, params=params)
        initial = learner.server["model"]
        timeline.play(learner)
        learner.close()
        rows = learner.store.rows(np.array([4]))
        models.append(
            learner.station.method.personal_models(learner.server, np.array([4]), rows)[0]
        )
    (one, two), trainable = models, learner.station.task.layout.trainable
    assert trainable < len(one)
    torch.testing.assert_close(one[trainable:], two[trainable:], rtol=1e-6, atol=1e-7)
    moved, further = (model[:trainable] - initial[:trainable] for model in models)
    torch.testing.assert_close(further, 1.5 * moved, rtol=1e-4, atol=1e-6)
    assert not torch.equal(one[trainable:], initial[trainable:])


# -- the split ---------------------------------------------------------------------------------------------------------

LAYOUT = Layout.of(
    [("conv.weight", (3, 2)), ("norm.weight", (3,)), ("head.weight", (4, 3)), ("head.bias", (4,))],
    [("norm.running_mean", (3,))],
)


@pytest.mark.parametrize(
    ("personal", "names"),
    [
        ("head", ["head.weight", "head.bias"]),
        ("body", ["conv.weight", "norm.weight", "norm.running_mean"]),
        ("none", []),
        ("all", list(LAYOUT.names)),
        (["norm"], ["norm.weight", "norm.running_mean"]),
        (["*.bias", "conv"], ["conv.weight", "head.bias"]),
    ],
)
def test_the_personal_part_is_found(personal: Any, names: Sequence[str]) -> None:
    """By preset, module, or pattern; both parts together are the whole model."""
    split = Split(LAYOUT, personal, torch.device("cpu"))
    assert list(split.personal_names) == names
    models = torch.arange(2.0 * LAYOUT.size).reshape(2, -1)
    shared, personal_values = split.shared(models), split.personal(models)
    assert (split.shared_size, split.personal_size) == (shared.shape[1], personal_values.shape[1])
    assert shared.shape[1] + personal_values.shape[1] == LAYOUT.size
    assert torch.equal(split.join(shared, personal_values), models)
    moved = models.clone()
    split.add_to_shared(moved, torch.ones_like(shared))
    assert torch.equal(split.shared(moved), shared + 1)
    assert torch.equal(split.personal(moved), personal_values)
    trainable = models[:, : LAYOUT.trainable]
    assert split.shared_trainable + split.personal_trainable == trainable.shape[1]


def test_a_split_that_cannot_be_made_is_refused() -> None:
    with pytest.raises(UserError, match=r"personal: 'tail' matches no part.*\n.*conv\.weight"):
        Split(LAYOUT, ["tail"], torch.device("cpu"))
    one_layer = Layout.of([("layers.0.weight", (2, 2)), ("layers.0.bias", (2,))])
    for personal in ("head", "body"):
        with pytest.raises(UserError, match="only one layer"):
            Split(one_layer, personal, torch.device("cpu"))
