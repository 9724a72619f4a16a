"""Modules of transformers and adapters of peft, which are trained unchanged."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from ruamel.yaml import YAML

import fedsim
from fedsim.errors import UserError
from tests.composition.killing import run_killed
from tests.composition.worlds import digests, digits

pytest.importorskip("transformers", reason="needs the extra transformers")
pytest.importorskip("peft", reason="needs the extra transformers")

USERS = """
from peft import LoraConfig, get_peft_model
from transformers import BertConfig, BertForSequenceClassification, GPT2Config, GPT2LMHeadModel

def bert(classes, vocabulary, input_shape, dropout=0.0, attention="sdpa"):
    return BertForSequenceClassification(BertConfig(
        vocab_size=vocabulary, num_labels=classes, max_position_embeddings=input_shape[-1], hidden_size=8,
        num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout, attn_implementation=attention))

def lora(**arguments):
    return get_peft_model(bert(**arguments), LoraConfig(task_type="SEQ_CLS", r=2, lora_dropout=arguments["dropout"]))

def lora_of(classes, vocabulary, input_shape, dropout=0.0):
    return lora(classes=classes, vocabulary=vocabulary, input_shape=input_shape, dropout=dropout)

def gpt(classes, vocabulary, input_shape, dropout=0.0):
    return GPT2LMHeadModel(GPT2Config(
        vocab_size=classes, n_positions=input_shape[-1], n_embd=8, n_layer=1, n_head=2,
        attn_pdrop=dropout, embd_pdrop=dropout, resid_pdrop=dropout))
"""
VOCABULARY, LENGTH, CLASSES = 11, 6, 3


@pytest.fixture
def users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "own.py").write_text(USERS)
    rng = np.random.default_rng(0)
    ids = rng.integers(1, VOCABULARY, (90, LENGTH))
    ids[:, -2:] = 0
    ids[0] = VOCABULARY - 1
    mask = (ids != 0).astype(np.int64)
    y = rng.integers(0, CLASSES, 90)
    np.savez(tmp_path / "ids.npz", x=ids, y=y)
    np.savez(tmp_path / "both.npz", x=np.stack([ids, mask], 1), y=y)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def scenario(model: str, file: str = "ids.npz", **arguments: Any) -> dict[str, Any]:
    task = {
        "dataset": {"name": "npz", "path": file, "tokens": True},
        "partition": {"name": "iid", "clients": 3},
        "model": {"name": f"own.py:{model}", **arguments},
    }
    training = {"optimizer": {"name": "sgd", "lr": 0.1}, "local_steps": 2, "batch_size": 8}
    server = {"selection": {"name": "uniform", "cohort": 2}}
    return digits(task=task, training=training, server=server, stop={"rounds": 2})


def same(one: Any, other: Any, atol: float = 0.0) -> bool:
    models = one.model(), other.model()
    return all(torch.allclose(models[1][k], v, rtol=0, atol=atol) for k, v in models[0].items())


@pytest.mark.parametrize("model", ["bert", "lora_of", "gpt"])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_deferral_and_executors_give_the_same_bits(users: Path, model: str, dropout: float) -> None:
    world = scenario(model, dropout=dropout)
    if model == "gpt":
        world["task"]["dataset"] |= {"path": "gpt.npz"}
        ids = np.load("ids.npz")["x"]
        np.savez("gpt.npz", x=ids, y=ids[:, 0])
    run = fedsim.run(world, users / "run")
    changes = ["training.verify=eager", "training.executor=plain", "training.executor=parallel"]
    for number, change in enumerate(changes):
        assert same(run, fedsim.run(world, users / str(number), overrides=[change])), change
    stacked = fedsim.run(world, users / "stacked", overrides=["training.executor=stacked"])
    assert same(run, stacked, atol=1e-6)
    changed = run.model()[max(run.model())]
    assert torch.isfinite(changed).all()


@pytest.mark.parametrize("executor", ["auto", "stacked"])
def test_a_killed_run_resumes_to_the_same_bits(users: Path, executor: str) -> None:
    world = scenario("lora_of", dropout=0.3)
    world |= {"stop": {"rounds": 3}, "evaluation": {"every_rounds": 1}}
    world["training"]["executor"] = executor
    path = users / "own.yaml"
    YAML(typ="safe", pure=True).dump(world, path)
    run_killed(path, users / "killed", 2)
    resumed, run = fedsim.resume(users / "killed"), fedsim.run(path, users / "undisturbed")
    assert digests(resumed.path) == digests(run.path)


def test_adapters_alone_are_sent(users: Path) -> None:
    """Rank 2 on query and value (8 x 8), and the classifier: 4 x (2 x 2 x (2 x 8) + 3 x 8 + 3) bytes."""
    run = fedsim.run(scenario("lora_of"), users / "run")
    sent = 4 * (2 * 2 * 2 * 8 + CLASSES * 8 + CLASSES)
    assert set(run.dispatches["bytes_up"]) == {sent}
    model = sum(value.numel() for value in run.model().values()) * 4
    assert set(run.dispatches["bytes_down"]) == {sent, model}


def test_named_inputs_are_parts_of_the_samples(users: Path) -> None:
    """A mask that is stored, one that is computed, and one that is left out; dictionaries too."""
    stored = {"input_ids": "x[0]", "attention_mask": "x[1]"}
    computed = {"input_ids": "x", "attention_mask": "x != 0"}
    one = fedsim.run(scenario("bert", "both.npz", inputs=stored), users / "stored")
    two = fedsim.run(scenario("bert", inputs=computed), users / "computed")
    none = fedsim.run(scenario("bert"), users / "none")
    assert same(one, two)
    assert not same(one, none, atol=1e-7)
    with pytest.raises(UserError, match=r"'y\[0\]' is not a part of the samples x"):
        fedsim.run(scenario("bert", inputs={"input_ids": "y[0]"}), users / "wrong")


def test_attention_of_either_kind_drops_the_same_weights(users: Path) -> None:
    """Fused attention is replaced by its definition, so that it equals the one written in plain operations."""
    fused = fedsim.run(scenario("bert", dropout=0.3), users / "fused")
    eager = fedsim.run(scenario("bert", dropout=0.3, attention="eager"), users / "eager")
    assert same(fused, eager, atol=1e-6)
