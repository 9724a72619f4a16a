"""What parts need from each other is checked in one place; tests/pairs has every pair of parts."""

import subprocess
import sys
from typing import Any

import pytest

from fedsim.api import read_scenario
from fedsim.composition.build import check_scenario as check
from fedsim.errors import UserError
from fedsim.parts.catalog import CATALOG
from fedsim.scheduling.base import Schedule, Story
from tests.lines import rows


def test_every_method_declares_schedules_that_exist() -> None:
    for method in CATALOG.parts("method").values():
        (schedule,) = method.paper_schedules
        assert method.companions.get("schedule", {"name": "sync"})["name"] == schedule


DEVICES: dict[str, Any] = {
    "compute": {"name": "values", "step": "1s"},
    "network": {"name": "static", "latency": 0, "down": "8Mbps", "up": "8Mbps"},
}
TIMING = {"task": {"name": "timing", "clients": 3}, "devices": DEVICES, "stop": {"rounds": 2}}
QUADRATIC = {**TIMING, "task": {"name": "quadratic", "centers": [1, 2, 3]}}
UNMET = r"""
server={schedule: compass, selection: {cohort: 2}} | (?s)under the compass schedule all clients participate.*leave it
server={schedule: async, failure_detection: never} | the async schedule waits forever for a .*\n  give a timeout
server={failure_detection: never} | the sync schedule waits .*\n  give a deadl
server.selection=oort | follows training losses or accuracies
server={schedule: {min_cohort: 2}, selection: {cohort: 1}} | min_cohort is 2, so none can begin
server.schedule={min_cohort: 2, min_updates: 0} | lets a round begin
devices.network=traced | there is no network_series table to read
devices.availability=trace | there is no availability table to read
"""


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        *(([setting], message) for setting, message in rows(UNMET)),
        (
            ["stop={dispatches: 2}", "server.schedule.min_updates=3"],
            "a version needs 3 updates, but the run ends after 2 dispatches",
        ),
        (
            ["server.method=streaming_diloco", "devices.availability={on_disconnect: pause}"],
            "work and pauses cannot be told apart\n  use drop, finish or send_partial",
        ),
        (
            ["devices.availability=trace", "devices.network=traced"],
            "(?s)no availability table to read.*no network_series table to read",
        ),
    ],
)
def test_what_cannot_work_is_refused(settings: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        check(read_scenario(TIMING, settings))


class Own(Schedule):
    """A user's."""

    name = "own"

    def run(self) -> Story[None]:
        """Wait."""
        yield self.after(1)


def test_a_schedule_of_the_user_may_declare_that_it_is_synchronous(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = {"server.method": "feddyn", "server.schedule": Own}
    with pytest.raises(UserError, match="or declare synchronous = True in yours"):
        check(read_scenario(QUADRATIC, settings))
    monkeypatch.setattr(Own, "synchronous", True)
    check(read_scenario(QUADRATIC, settings))


TARGETS = r"""
{accuracy: 80} | accuracy never reaches 80; .* lie between 0 and 1\n  write 0.8 for 80%
{accurcy: 0.8} | no metric 'accurcy'\n  did you mean 'accuracy'
{perplexity: 1.5} | not measure 'perplexity'\n  add perplexity to evaluation.metrics
{client_accuracy: 0.5} | not measure 'client_accuracy'\n  set evaluation.per_client: true
{objective_loss: 0.5} | not measure 'objective_loss'\n  set evaluation.objective: true
{top_5_accuracy: 0.9} | add top_k_accuracy to evaluation.metrics
{mse: 0.5} | not measure 'mse'\n  this task measures: accuracy
"""


@pytest.mark.parametrize(("target", "message"), rows(TARGETS))
def test_a_target_that_is_never_reached_is_refused(target: str, message: str) -> None:
    task = {"dataset": "digits", "partition": {"name": "iid", "clients": 2}, "model": "linear"}
    scenario = {"task": task, "devices": DEVICES, "stop": {"rounds": 1}}
    check(read_scenario(scenario, ["stop.target.accuracy=0.8"]))
    with pytest.raises(UserError, match=message):
        check(read_scenario(scenario, [f"stop.target={target}"]))


def test_an_unknown_target_is_refused_before_the_data_are_read() -> None:
    task = {
        "dataset": {"name": "npz", "path": "nowhere.npz"},
        "partition": {"name": "iid", "clients": 2},
        "model": "linear",
    }
    scenario = {"task": task, "devices": DEVICES, "stop": {"rounds": 1, "target": {"accurcy": 0.8}}}
    with pytest.raises(UserError, match="no metric 'accurcy'"):
        check(read_scenario(scenario))


def test_methods_and_metrics_are_read_without_torch() -> None:
    code = (
        "import sys; from fedsim.parts.catalog import CATALOG; "
        "list(CATALOG.parts('method').items()); list(CATALOG.parts('metric').items()); "
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
