"""MLflow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedsim.parts.parameters import Parameters
from fedsim.tracking.base import Moment, TrackedRun, Tracker

_LONGEST_VALUE = 6000
_MOST_PARAMETERS = 100
_STATUSES = {"complete": "FINISHED", "interrupted": "KILLED"}


class Mlflow(Tracker):
    """MLflow: metrics live, every value of the scenario as a parameter.

    The step is the server version, and the relative time of a metric is simulated time. A resumed run continues in the
    same MLflow run. For a server, ``mlflow-skinny`` is enough.
    """

    name = "mlflow"
    package = extra = "mlflow"

    class Params(Parameters):
        uri: str | None = None
        """Tracking server, such as ``http://localhost:5000``; if not given, the environment variable
        ``MLFLOW_TRACKING_URI``, or else MLflow's default. A database (``sqlite:///mlflow.db``) needs all of MLflow
        (``pip install mlflow``); a folder needs the environment variable ``MLFLOW_ALLOW_FILE_STORE=true``."""
        experiment: str = "fedsim"
        """Experiment; it is created if it does not exist."""

    def __init__(self, params: Params, run: TrackedRun) -> None:
        super().__init__(params, run)
        from mlflow.entities import Metric, Param
        from mlflow.tracking import MlflowClient

        self._metric = Metric
        self._client = MlflowClient(tracking_uri=params.uri)
        experiment = self._client.get_experiment_by_name(params.experiment)
        identity = (
            self._client.create_experiment(params.experiment)
            if experiment is None
            else experiment.experiment_id
        )
        known = run.folder / "mlflow-id"
        new = not (run.resumed and known.exists())
        if new:
            created = self._client.create_run(
                identity, run_name=run.run_folder.name, tags={"scenario": run.name}
            )
            all_ = [
                Param(path, str(value)[:_LONGEST_VALUE]) for path, value in run.parameters.items()
            ]
            for first in range(0, len(all_), _MOST_PARAMETERS):
                some = all_[first : first + _MOST_PARAMETERS]
                self._client.log_batch(created.info.run_id, params=some)
            self._id = run.keep("mlflow-id", created.info.run_id)
            self._logged = -1
        else:
            self._id = known.read_text(encoding="utf-8")
            self._logged = int(self._run().data.metrics.get("evaluation", -1))
        self._began_ms = int(self._run().info.start_time)

    def _run(self) -> Any:
        return self._client.get_run(self._id)

    def log(self, metrics: Mapping[str, float], moment: Moment) -> None:
        """Log one evaluation, unless the run had logged it before it was resumed."""
        if moment.index <= self._logged:
            return
        values = {**metrics, "simulated_hours": moment.hours, "evaluation": float(moment.index)}
        at_ms = self._began_ms + round(moment.time_s * 1000)
        self._client.log_batch(
            self._id,
            metrics=[
                self._metric(name, value, at_ms, moment.version) for name, value in values.items()
            ],
        )

    def finish(self, status: str, summary: Mapping[str, Any]) -> None:
        self._client.set_terminated(self._id, _STATUSES.get(status, "FAILED"))
