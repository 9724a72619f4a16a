"""The bare loop in torch over the clients of a round: no framework at all."""

from __future__ import annotations

import torch
from torch_work import accuracy_of, build, client_batches, parameters_of, steps_drawn, train
from work import COHORT, read_work

work = read_work()
clients = client_batches(work.x, work.y)
server, client = build(work.model), build(work.model)
models: list[torch.Tensor] = list(server.parameters())
locals_: list[torch.Tensor] = list(client.parameters())
for _ in range(work.rounds):
    with torch.no_grad():
        sums = [torch.zeros_like(each) for each in models]
    for number in torch.randperm(len(clients))[:COHORT].tolist():
        with torch.no_grad():
            torch._foreach_copy_(locals_, models)
        train(client, clients[number])
        with torch.no_grad():
            torch._foreach_add_(sums, locals_, alpha=1 / COHORT)
    with torch.no_grad():
        torch._foreach_copy_(models, sums)
work.hand_in(
    steps=steps_drawn(clients),
    parameters=parameters_of(server),
    accuracy=accuracy_of(server, work),
    packages=["torch"],
)
