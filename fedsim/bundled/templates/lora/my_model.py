"""A small GPT of transformers, and the same model with LoRA adapters of peft."""

import warnings

from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file
from transformers import GPT2Config, GPT2LMHeadModel


def full(classes, input_shape, weights=None, width=64, layers=2):
    """A GPT that predicts the next character; ``weights`` is a file of parameters, random if None."""
    config = GPT2Config(
        vocab_size=classes,
        n_positions=input_shape[0],
        n_embd=width,
        n_layer=layers,
        n_head=4,
        bos_token_id=None,
        eos_token_id=None,
        attn_pdrop=0.0,
        embd_pdrop=0.0,
        resid_pdrop=0.0,
    )
    model = GPT2LMHeadModel(config)
    if weights is not None:
        # The file has no second copy of the embeddings, which are also the last layer.
        model.load_state_dict(load_file(weights), strict=False)
    return model


def lora(classes, input_shape, weights=None, rank=8, model_rate=1.0):
    """The same model, but only adapters of its linear layers are trained; all else is frozen."""
    rank = round(rank * model_rate)  # lower on some devices (server.submodels)
    layers = ["c_attn", "c_proj", "c_fc"]
    config = LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=layers, fan_in_fan_out=True)
    with warnings.catch_warnings():
        # peft reads a property for which transformers has a new name.
        warnings.filterwarnings("ignore", "`is_gradient_checkpointing`", FutureWarning)
        return get_peft_model(full(classes, input_shape, weights), config)
