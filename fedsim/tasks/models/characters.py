"""Models that predict the next character: a recurrent network and a small transformer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from fedsim.parts.component import Parameters
from fedsim.tasks.dataset import Dataset
from fedsim.tasks.model import MOST_LAYERS, ModelComponent

if TYPE_CHECKING:
    from torch import Generator, nn


class _CharacterModel(ModelComponent):
    """A model that predicts the next character."""

    def _characters(self, dataset: Dataset) -> tuple[int, int]:
        """Number of different characters and characters per sample of the data set, which must be of characters."""
        if dataset.kind != "next_character":
            raise self.misfit(
                "it predicts the next character, but samples are not sequences of characters",
                dataset,
                "use the data set shakespeare, or another model",
            )
        return dataset.classes, dataset.input_shape[0]


class CharLstm(_CharacterModel):
    """Next character by two LSTM layers of 256 units on 8-dimensional embeddings (McMahan et al. 2017; LEAF)."""

    name = "char_lstm"

    class Params(Parameters):
        embedding: int = Field(default=8, ge=1)
        """Dimensions of the embedding of a character."""
        hidden: int = Field(default=256, ge=1)
        """Units of each layer."""
        layers: int = Field(default=2, ge=1, le=MOST_LAYERS)
        """LSTM layers."""

    params: Params

    def build(self, dataset: Dataset) -> nn.Module:
        from fedsim.tasks.modules.networks import CharacterLstm

        characters, _ = self._characters(dataset)
        params = self.params
        return CharacterLstm(characters, params.embedding, params.hidden, params.layers)


class CharTransformer(_CharacterModel):
    """Next character by a small pre-norm transformer with learned positions."""

    name = "char_transformer"

    class Params(Parameters):
        width: int = Field(default=64, ge=1)
        """Dimensions of the embeddings of characters and positions."""
        heads: int = Field(default=4, ge=1)
        """Attention heads; must divide the width."""
        layers: int = Field(default=2, ge=1, le=MOST_LAYERS)
        """Transformer blocks."""

    params: Params

    def build(self, dataset: Dataset) -> nn.Module:
        from fedsim.tasks.modules.networks import CharacterTransformer

        width, heads, layers = self.params.width, self.params.heads, self.params.layers
        if width % heads:
            raise self.misfit(f"{heads} heads do not divide width {width}", dataset)
        return CharacterTransformer(*self._characters(dataset), width, heads, layers)

    def initialize(self, module: nn.Module, generator: Generator) -> None:
        """Torch's standard rules, with embeddings scaled to a standard deviation of 0.02."""
        from torch.nn import Embedding

        super().initialize(module, generator)
        for layer in module.modules():
            if isinstance(layer, Embedding):
                layer.weight.mul_(0.02)
