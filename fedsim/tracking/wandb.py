"""Weights & Biases."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any, Literal

from fedsim.parts.parameters import Parameters
from fedsim.tracking.base import Moment, TrackedRun, Tracker


class Wandb(Tracker):
    """Weights & Biases: metrics over simulated hours, live, with the scenario as the configuration of the run.

    Log in once with ``wandb login``. A resumed run continues in the same W&B run.
    """

    name = "wandb"
    package = extra = "wandb"

    class Params(Parameters):
        project: str = "fedsim"
        """Project."""
        entity: str | None = None
        """User or team; by default that of your account."""
        group: str | None = None
        """Group of the run; by default the scenario's name, so that the seeds of a scenario are grouped."""
        tags: list[str] = []
        """Tags."""
        mode: Literal["online", "offline", "disabled"] | None = None
        """As in ``wandb.init``; if not given, the environment variable ``WANDB_MODE``, or else online. Upload what was
        logged offline with ``wandb sync``."""

    def __init__(self, params: Params, run: TrackedRun) -> None:
        super().__init__(params, run)
        import wandb

        identity = run.keep("wandb-id", uuid.uuid4().hex[:12])
        self._run = wandb.init(
            project=params.project,
            entity=params.entity,
            group=params.group or run.name,
            tags=params.tags or None,
            mode=params.mode,
            id=identity,
            name=run.run_folder.name,
            dir=str(run.folder),
            config=dict(run.scenario),
            resume="allow" if run.resumed else None,
            reinit="create_new",
            settings=wandb.Settings(console="off", silent=True),
        )
        self._run.define_metric("simulated_hours", hidden=True)
        self._run.define_metric("*", step_metric="simulated_hours")

    def log(self, metrics: Mapping[str, float], moment: Moment) -> None:
        """Log one evaluation; steps that a resumed run has logged before are skipped by the client."""
        if moment.index < self._run.step:
            return
        axes = {"simulated_hours": moment.hours, "version": moment.version, "round": moment.round}
        self._run.log({**metrics, **axes}, step=moment.index)

    def finish(self, status: str, summary: Mapping[str, Any]) -> None:
        self._run.summary.update({key: summary[key] for key in sorted(summary)})
        self._run.finish(exit_code=0 if status == "complete" else 1)
