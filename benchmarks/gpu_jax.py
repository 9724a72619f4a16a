"""The models of :mod:`benchmarks.gpu` in JAX; as in FedJAX, ``vmap`` over clients and ``scan`` over steps."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from torch import Tensor

Tree = Any
HEADS, GROUPS = 6, 8


def arrays(*tensors: Tensor) -> list[Any]:
    return [jnp.from_dlpack(tensor.contiguous()) for tensor in tensors]


def wait(tree: Tree) -> None:
    jax.block_until_ready(tree)


def round_of(model: str, rate: float, *, half: bool) -> Any:
    """A function of server, inputs, labels and batches (clients, steps, batch)."""
    forward = {"mlp": mlp, "cnn": cnn, "resnet": resnet, "transformer": transformer}[model]

    def loss(parameters: Tree, x: Any, y: Any) -> Any:
        if half:
            parameters = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), parameters)
            x = x.astype(jnp.bfloat16) if jnp.issubdtype(x.dtype, jnp.floating) else x
        log_shares = jax.nn.log_softmax(forward(parameters, x).astype(jnp.float32))
        return -jnp.take_along_axis(log_shares, y[:, None], 1).mean()

    def one_round(server: Tree, x: Any, y: Any, batches: Any) -> Tree:
        def client(rows: Any) -> Tree:
            def step(parameters: Tree, at: Any) -> Any:
                gradients = jax.grad(loss)(parameters, x[at], y[at])
                return jax.tree.map(lambda p, g: p - rate * g, parameters, gradients), None

            return lax.scan(step, server, rows)[0]

        return jax.tree.map(lambda leaf: leaf.mean(0), jax.vmap(client)(batches))

    return jax.jit(one_round)


def initial(model: str, classes: int, length: int, characters: int) -> Tree:
    """Weights of the same shapes as fedsim's."""
    rng = np.random.default_rng(0)

    def weight(*shape: int) -> Any:
        scale = 1 / np.sqrt(np.prod(shape[:-1]))
        return jnp.asarray(rng.standard_normal(shape) * scale, jnp.float32)

    def dense(inputs: int, outputs: int) -> Tree:
        return {"w": weight(inputs, outputs), "b": jnp.zeros(outputs)}

    def norm(width: int) -> Tree:
        return {"scale": jnp.ones(width), "shift": jnp.zeros(width)}

    if model == "mlp":
        return [dense(784, 200), dense(200, 200), dense(200, classes)]
    if model == "cnn":
        convolutions = [
            {"w": weight(5, 5, 1, 32), "b": jnp.zeros(32)},
            {"w": weight(5, 5, 32, 64), "b": jnp.zeros(64)},
        ]
        return convolutions, [dense(1024, 512), dense(512, classes)]
    if model == "resnet":
        blocks, inputs = [], 64
        for width, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
            for first in (True, False):
                block = {
                    "w1": weight(3, 3, inputs, width),
                    "n1": norm(width),
                    "w2": weight(3, 3, width, width),
                    "n2": norm(width),
                }
                if first and stride > 1:
                    block |= {"w": weight(1, 1, inputs, width), "n": norm(width)}
                blocks.append(block)
                inputs = width
        return weight(3, 3, 3, 64), norm(64), blocks, dense(512, classes)
    width = 192
    blocks = [
        {
            "n1": norm(width),
            "project": dense(width, 3 * width),
            "merge": dense(width, width),
            "n2": norm(width),
            "widen": dense(width, 4 * width),
            "narrow": dense(4 * width, width),
        }
        for _ in range(4)
    ]
    embeddings = weight(characters, width), weight(length, width)
    return embeddings, blocks, norm(width), dense(width, characters)


def _dense(layer: Tree, x: Any) -> Any:
    return x @ layer["w"] + layer["b"]


def mlp(layers: Tree, x: Any) -> Any:
    x = x.reshape(len(x), -1)
    for layer in layers[:-1]:
        x = jax.nn.relu(_dense(layer, x))
    return _dense(layers[-1], x)


def _conv(x: Any, w: Any, stride: int = 1, padding: str = "SAME") -> Any:
    return lax.conv_general_dilated(
        x, w, (stride, stride), padding, dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def cnn(parameters: Tree, x: Any) -> Any:
    convolutions, layers = parameters
    x = x.transpose(0, 2, 3, 1)
    for layer in convolutions:
        x = _conv(x, layer["w"], padding="VALID") + layer["b"]
        low = np.array(-np.inf, x.dtype)
        x = jax.nn.relu(lax.reduce_window(x, low, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID"))
    return mlp(layers, x)


def _group_norm(layer: Tree, x: Any) -> Any:
    n, h, w, c = x.shape
    groups = x.reshape(n, h, w, GROUPS, c // GROUPS).astype(jnp.float32)
    mean = groups.mean((1, 2, 4), keepdims=True)
    variance = groups.var((1, 2, 4), keepdims=True)
    normal = ((groups - mean) * lax.rsqrt(variance + 1e-5)).reshape(x.shape).astype(x.dtype)
    return normal * layer["scale"] + layer["shift"]


def resnet(parameters: Tree, x: Any) -> Any:
    stem, stem_norm, blocks, last = parameters
    x = jax.nn.relu(_group_norm(stem_norm, _conv(x.transpose(0, 2, 3, 1), stem)))
    for block in blocks:
        stride = 2 if "w" in block else 1
        y = jax.nn.relu(_group_norm(block["n1"], _conv(x, block["w1"], stride)))
        y = _group_norm(block["n2"], _conv(y, block["w2"]))
        x = jax.nn.relu(
            y + (_group_norm(block["n"], _conv(x, block["w"], stride)) if "w" in block else x)
        )
    return _dense(last, x.mean((1, 2)))


def _layer_norm(layer: Tree, x: Any) -> Any:
    wide = x.astype(jnp.float32)
    normal = (wide - wide.mean(-1, keepdims=True)) * lax.rsqrt(wide.var(-1, keepdims=True) + 1e-5)
    return normal.astype(x.dtype) * layer["scale"] + layer["shift"]


def transformer(parameters: Tree, x: Any) -> Any:
    (embedding, positions), blocks, norm, last = parameters
    x = embedding[x] + positions
    n, length, width = x.shape
    for block in blocks:
        parts = _dense(block["project"], _layer_norm(block["n1"], x))
        q, k, v = parts.reshape(n, length, 3, HEADS, width // HEADS).transpose(2, 0, 3, 1, 4)
        scores = q @ k.swapaxes(-1, -2) / np.sqrt(width // HEADS).astype(np.float32)
        mixed = (jax.nn.softmax(scores.astype(jnp.float32)).astype(v.dtype) @ v).transpose(
            0, 2, 1, 3
        )
        x = x + _dense(block["merge"], mixed.reshape(n, length, width))
        hidden = jax.nn.gelu(_dense(block["widen"], _layer_norm(block["n2"], x)), approximate=False)
        x = x + _dense(block["narrow"], hidden)
    return _dense(last, _layer_norm(norm, x[:, -1]))
