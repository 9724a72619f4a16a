"""Small Flower apps of the kinds that users write; none of them knows fedsim."""

import time
from collections.abc import Callable, Iterable
from datetime import datetime
from time import sleep
from typing import Any

import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.client import NumPyClient
from flwr.client.mod import secaggplus_mod
from flwr.clientapp import ClientApp
from flwr.common import ndarrays_to_parameters
from flwr.server import LegacyContext, ServerAppComponents, ServerConfig
from flwr.server.strategy import FedAvg as OldFedAvg
from flwr.server.workflow import DefaultWorkflow, SecAggPlusWorkflow
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import (
    FedAdam,
    FedAvg,
    FedAvgM,
    FedMedian,
    FedProx,
    Krum,
)

FEATURES, CLASSES, EXAMPLES, STEPS = 6, 3, 24, 5


def data(partition: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Examples of a partition, separable and different from those of the others."""
    generator = torch.Generator().manual_seed(partition)
    x = torch.randn(EXAMPLES, FEATURES, generator=generator)
    centers = torch.randn(CLASSES, FEATURES, generator=torch.Generator().manual_seed(10_000))
    return x, (x @ centers.T).argmax(1)


def model() -> torch.nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        return torch.nn.Sequential(
            torch.nn.Linear(FEATURES, 8), torch.nn.ReLU(), torch.nn.Linear(8, CLASSES)
        )


def client_of(**handlers: Any) -> ClientApp:
    """A ClientApp with functions by the category of their messages, such as ``train``."""
    app = ClientApp()
    for category, handler in handlers.items():
        name, _, kind = category.partition("_")
        getattr(app, name)(*filter(None, [kind]))(handler)
    return app


def own_loop(main: Callable[[Grid, Context], None]) -> ServerApp:
    app = ServerApp()
    app.main()(main)
    return app


def answer(message: Message, arrays: ArrayRecord | None = None, **metrics: Any) -> Message:
    """A reply with metrics, whose names may have dashes, and arrays."""
    record = MetricRecord({name.replace("num_", "num-"): value for name, value in metrics.items()})
    content = {"metrics": record} | ({} if arrays is None else {"arrays": arrays})
    return Message(RecordDict(content), reply_to=message)


def received(message: Message) -> torch.nn.Module:
    net = model()
    net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    return net


def torch_client(*, seeded: bool = True, sleeper: int | None = None) -> ClientApp:
    """Five steps of SGD on a batch; evaluation counts hits. One node sleeps for 3 s before its reply."""

    def train(message: Message, context: Context) -> Message:
        net = received(message)
        x, y = data(context.node_config["partition-id"])
        if seeded:
            torch.manual_seed(context.node_config["partition-id"])
        config = message.content["config"]
        optimizer = torch.optim.SGD(net.parameters(), lr=config.get("lr", 0.1))
        start = [p.detach().clone() for p in net.parameters()]
        for _ in range(config.get("steps", STEPS)):
            rows = torch.randperm(EXAMPLES)[:8]
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(net(x[rows]), y[rows])
            near = sum((p - q).square().sum() for p, q in zip(net.parameters(), start, strict=True))
            (loss + config.get("proximal-mu", 0.0) / 2 * near).backward()
            optimizer.step()
        time.sleep(3 if context.node_config["partition-id"] == sleeper else 0)
        arrays = ArrayRecord(net.state_dict())
        return answer(message, arrays, train_loss=loss.item(), num_examples=EXAMPLES)

    def evaluate(message: Message, context: Context) -> Message:
        x, y = data(context.node_config["partition-id"])
        with torch.no_grad():
            hits = (received(message)(x).argmax(1) == y).float().mean().item()
        return answer(message, accuracy=hits, num_examples=EXAMPLES)

    return client_of(train=train, evaluate=evaluate)


class SortedGrid:
    """Sorts replies by node, so that sums do not depend on the order of arrival."""

    def __init__(self, grid: Grid) -> None:
        self.grid = grid

    def __getattr__(self, name: str) -> Any:
        return getattr(self.grid, name)

    def get_node_ids(self) -> Iterable[int]:
        return sorted(self.grid.get_node_ids())

    def send_and_receive(self, messages: Iterable[Message], **settings: Any) -> Iterable[Message]:
        replies = self.grid.send_and_receive(messages, **settings)
        return sorted(replies, key=lambda reply: reply.metadata.src_node_id)


def server_evaluation(server_round: int, arrays: ArrayRecord) -> MetricRecord:
    net = model()
    net.load_state_dict(arrays.to_torch_state_dict())
    x, y = data(99)
    with torch.no_grad():
        accuracy = (net(x).argmax(1) == y).float().mean().item()
    return MetricRecord({"accuracy": accuracy})


STRATEGIES: dict[str, Callable[..., Any]] = {
    "FedAvg": FedAvg,
    "FedAvgM": lambda **kw: FedAvgM(server_momentum=0.5, **kw),
    "FedAdam": FedAdam,
    "FedProx": lambda **kw: FedProx(proximal_mu=0.1, **kw),
    "FedMedian": FedMedian,
    "Krum": lambda **kw: Krum(num_malicious_nodes=1, **kw),
}


def strategy_server(
    make: Callable[..., Any] = FedAvg,
    *,
    rounds: int = 2,
    sort: bool = False,
    results: list[Any] | None = None,
    timeout: float = 3600.0,
    evaluate_fn: Any = None,
    **settings: Any,
) -> ServerApp:
    """A strategy's own loop; the result is appended to ``results``."""

    def main(grid: Grid, context: Context) -> None:
        result = make(**settings).start(
            grid=SortedGrid(grid) if sort else grid,
            initial_arrays=ArrayRecord(model().state_dict()),
            num_rounds=context.run_config.get("num-server-rounds", rounds),
            timeout=timeout,
            evaluate_fn=evaluate_fn,
        )
        if results is not None:
            results.append(result)

    return own_loop(main)


def numpy_client() -> ClientApp:
    """The older interface: a NumPyClient with a model of two numbers and scikit-learn-like work."""

    class Client(NumPyClient):  # type: ignore[misc]
        def __init__(self, partition: int) -> None:
            self.partition = partition

        def get_parameters(self, config: Any) -> Any:
            return [np.zeros(4)]

        def fit(self, parameters: Any, config: Any) -> Any:
            return [parameters[0] + self.partition], 10, {"shift": float(self.partition)}

        def evaluate(self, parameters: Any, config: Any) -> Any:
            return (
                float(np.square(parameters[0] - 1).sum()),
                10,
                {"mean": float(parameters[0].mean())},
            )

    return ClientApp(
        client_fn=lambda context: Client(context.node_config["partition-id"]).to_client()
    )


def legacy_server(rounds: int = 2) -> ServerApp:
    """The older interface: ``server_fn`` with a strategy of ``flwr.server``."""

    def server_fn(context: Context) -> Any:
        strategy = OldFedAvg(
            fit_metrics_aggregation_fn=lambda results: {"shift": results[0][1]["shift"]},
            evaluate_metrics_aggregation_fn=lambda results: {
                "mean": sum(metrics["mean"] for _, metrics in results) / len(results)
            },
        )
        return ServerAppComponents(strategy=strategy, config=ServerConfig(num_rounds=rounds))

    return ServerApp(server_fn=server_fn)


def fedbuff_server(updates: int, buffer: int, log: list[tuple[float, int]]) -> ServerApp:
    """An asynchronous loop by hand: each reply is noted, and every ``buffer`` of them make a new model."""

    def main(grid: Grid, context: Context) -> None:
        arrays = ArrayRecord(model().state_dict())
        began, states, pending = time.time(), [], set()

        def message(node: int) -> Message:
            content = RecordDict({"arrays": arrays, "config": ConfigRecord({"lr": 0.1})})
            return Message(content, node, "train")

        pending.update(grid.push_messages([message(node) for node in grid.get_node_ids()]))
        seen = 0
        while seen < updates:
            replies = list(grid.pull_messages(pending))
            for reply in replies:
                pending.discard(reply.metadata.reply_to_message_id)
                log.append((time.time() - began, reply.metadata.src_node_id))
                seen += 1
                states.append(reply.content["arrays"].to_torch_state_dict())
                if len(states) == buffer:
                    mean = {k: sum(s[k] for s in states) / buffer for k in states[0]}
                    arrays, states = ArrayRecord(mean), []
                pending.update(grid.push_messages([message(reply.metadata.src_node_id)]))
            if not replies:
                sleep(0.01)

    return own_loop(main)


def stateful_client() -> ClientApp:
    """Counts the messages that the node has handled."""

    def train(message: Message, context: Context) -> Message:
        handled = context.state.get("counter", {"handled": 0})["handled"] + 1
        context.state["counter"] = MetricRecord({"handled": handled})
        return answer(message, message.content["arrays"], handled=handled, num_examples=10)

    return client_of(train=train)


def sklearn_client() -> ClientApp:
    """Logistic regression without PyTorch."""
    # Here, because every process that runs ClientApps imports this module, and few need scikit-learn.
    from sklearn.linear_model import LogisticRegression

    def train(message: Message, context: Context) -> Message:
        x, y = (part.numpy() for part in data(context.node_config["partition-id"]))
        weights = message.content["arrays"].to_numpy_ndarrays()
        fitted = LogisticRegression(max_iter=20, warm_start=True)
        fitted.classes_, fitted.coef_, fitted.intercept_ = np.arange(CLASSES), *weights
        fitted.fit(x, y)
        arrays = ArrayRecord([fitted.coef_, fitted.intercept_])
        return answer(message, arrays, num_examples=len(x), score=fitted.score(x, y))

    return client_of(train=train)


def array_server(make: Any, *arrays: Any) -> ServerApp:
    """Two rounds of a strategy without evaluation that begins with these arrays."""

    def main(grid: Grid, context: Context) -> None:
        start = ArrayRecord(list(arrays))
        make(fraction_evaluate=0.0).start(grid=grid, initial_arrays=start, num_rounds=2)

    return own_loop(main)


def sklearn_server() -> ServerApp:
    return array_server(FedAvg, np.zeros((CLASSES, FEATURES)), np.zeros(CLASSES))


def query_client() -> ClientApp:
    return client_of(
        query=lambda m, context: answer(m, count=context.node_config["partition-id"] + 1)
    )


def query_server(seen: dict[str, Any]) -> ServerApp:
    """A main loop of its own, which waits for nodes and asks them for numbers."""

    def main(grid: Grid, context: Context) -> None:
        seen["began"] = time.time(), time.monotonic(), datetime.now()
        while len(nodes := list(grid.get_node_ids())) < context.run_config["nodes"]:
            sleep(1)
        seen["waited"] = time.monotonic()
        replies = grid.send_and_receive([Message(RecordDict(), node, "query") for node in nodes])
        seen["sum"] = sum(reply.content["metrics"]["count"] for reply in replies)
        seen["ended"] = time.time(), time.monotonic(), datetime.now()

    return own_loop(main)


def secure_client() -> ClientApp:
    """Five steps in the stage of secure aggregation that trains; Flower's mod answers the other stages."""

    class Client(NumPyClient):  # type: ignore[misc]
        def fit(self, parameters: Any, config: Any) -> Any:
            take_steps(STEPS)
            return parameters, EXAMPLES, {}

    return ClientApp(client_fn=lambda context: Client().to_client(), mods=[secaggplus_mod])


def secure_server(rounds: int, nodes: int) -> ServerApp:
    """Secure aggregation, in four exchanges per round."""

    def main(grid: Grid, context: Context) -> None:
        strategy = OldFedAvg(
            fraction_evaluate=0.0,
            min_fit_clients=nodes,
            min_available_clients=nodes,
            initial_parameters=ndarrays_to_parameters([np.zeros(4)]),
        )
        config = ServerConfig(num_rounds=rounds)
        legacy = LegacyContext(context=context, config=config, strategy=strategy)
        workflow = SecAggPlusWorkflow(num_shares=3, reconstruction_threshold=2, max_weight=100)
        DefaultWorkflow(fit_workflow=workflow)(grid, legacy)

    return own_loop(main)


def stepping(steps: int, then: Callable[[int], Any] = lambda partition: None) -> Any:
    """Handles a message by some steps, and then by something that depends on the partition."""

    def train(message: Message, context: Context) -> Message:
        take_steps(steps)
        then(context.node_config["partition-id"])
        return answer(message, num_examples=EXAMPLES)

    return train


def preparing_client() -> ClientApp:
    """Answers ``train.prepare`` without a step, and ``train.fit`` after five."""
    return client_of(
        train_prepare=lambda message, context: Message(RecordDict(), reply_to=message),
        train_fit=stepping(STEPS),
    )


def take_steps(count: int) -> None:
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(count):
        optimizer.zero_grad()
        net(data(0)[0]).sum().backward()
        optimizer.step()


def failing_client(*partitions: int) -> ClientApp:
    """Fails at the nodes of these partitions, and replies with the model at the others."""

    def train(message: Message, context: Context) -> Message:
        if context.node_config["partition-id"] in partitions:
            raise ValueError("the data of this node is broken")
        return answer(message, ArrayRecord(model().state_dict()), num_examples=EXAMPLES)

    return client_of(train=train)


app = torch_client(seeded=False, sleeper=2)
"""A ClientApp that other processes can import."""
