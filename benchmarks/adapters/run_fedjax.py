"""FedJAX: its federated averaging, jit-compiled, one client after the other; with several cores, as JAX uses them.

Its models begin as torch's do, which matters to their accuracy, not to their speed.
"""

from __future__ import annotations

import os
from functools import partial

from work import BATCH, COHORT, CORES, RATE, read_work

if CORES == 1:
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"

import jax

# FedJAX 0.0.17 was written when jax still had this name.
jax.tree_map = jax.tree_util.tree_map

import fedjax
import haiku as hk
import jax.numpy as jnp
import numpy as np
from fedjax.algorithms import fed_avg

# Uniform within 1 / sqrt(fan_in); biases are zero.
LIKE_TORCH = {"w_init": hk.initializers.VarianceScaling(1 / 3, "fan_in", "uniform")}
dense, conv = partial(hk.Linear, **LIKE_TORCH), partial(hk.Conv2D, padding="VALID", **LIKE_TORCH)
LAYERS = {
    "linear": lambda: [hk.Flatten(), dense(10)],
    "mlp": lambda: [
        hk.Flatten(),
        dense(200),
        jax.nn.relu,
        dense(200),
        jax.nn.relu,
        dense(10),
    ],
    "cnn": lambda: [
        conv(32, 5),
        jax.nn.relu,
        hk.MaxPool(2, 2, "VALID"),
        conv(64, 5),
        jax.nn.relu,
        hk.MaxPool(2, 2, "VALID"),
        hk.Flatten(),
        dense(512),
        jax.nn.relu,
        dense(10),
    ],
}

work = read_work()
# Haiku's convolutions take the channels last.
clients = fedjax.InMemoryFederatedData(
    {
        number: {"x": np.moveaxis(x, 1, -1), "y": y.astype(np.int32)}
        for number, (x, y) in enumerate(zip(work.x, work.y, strict=True))
    }
)
network = hk.transform(lambda batch: hk.Sequential(LAYERS[work.model]())(batch["x"]))
model = fedjax.create_model_from_haiku(
    network,
    {"x": jnp.zeros((1, 28, 28, 1)), "y": jnp.zeros(1, jnp.int32)},
    lambda batch, outputs: fedjax.metrics.unreduced_cross_entropy_loss(batch["y"], outputs),
    {"accuracy": fedjax.metrics.Accuracy()},
)
algorithm = fed_avg.federated_averaging(
    fedjax.model_grad(model),
    fedjax.optimizers.sgd(RATE),
    fedjax.optimizers.sgd(1.0),
    fedjax.ShuffleRepeatBatchHParams(batch_size=BATCH, num_epochs=1),
)
sampler = fedjax.client_samplers.UniformGetClientSampler(clients, COHORT, seed=0)
state = algorithm.init(model.init(jax.random.PRNGKey(0)))
for _ in range(work.rounds):
    state, _ = algorithm.apply(state, sampler.sample())
    jax.block_until_ready(state.params)
test = fedjax.ClientDataset({"x": np.moveaxis(work.test_x, 1, -1), "y": work.test_y})
metrics = fedjax.evaluate_model(model, state.params, test.padded_batch(batch_size=1000))
work.hand_in(
    steps=work.rounds * COHORT * -(-work.y.shape[1] // BATCH),
    parameters=sum(leaf.size for leaf in jax.tree_util.tree_leaves(state.params)),
    accuracy=float(metrics["accuracy"]),
    packages=["fedjax", "jax"],
)
