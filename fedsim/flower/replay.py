"""Runs the beginning of a Flower app twice, and names the first difference.

The runs are made in separate processes with different seeds of string hashes. A run seeds the global random generators
for the ServerApp and for every message, so what differs draws from a generator that the system seeds, depends on the
order of a set, or measures the host's time.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

import pandas as pd

from fedsim.analysis.run import Run, load_run
from fedsim.composition.replay import AGGREGATIONS, DISPATCHES, seeded_process
from fedsim.errors import FedsimError, UserError
from fedsim.flower import internals as fl
from fedsim.flower.clock import RunEnded
from fedsim.flower.running import App, execute, load_devices
from fedsim.runs.progress import Progress
from fedsim.vocabulary.formatting import format_counted

_SEED = (
    "random, numpy.random and torch are seeded by their global generators alone: give the seed of any other one "
    "(numpy.random.default_rng(seed), random.Random(seed), torch.Generator().manual_seed(seed)), for example the "
    "partition-id, and sort sets before you iterate over them"
)


_DIFFERS = {
    "client_id": "the ServerApp sends {} to another node",
    "kind": "the ServerApp gives {} another type",
    "sent_s": "the ServerApp sends {} at another time",
    "sent_hash": "the ServerApp gives {} another content",
    "reply_hash": "the ClientApp gives {} another reply",
}
"""A difference in a column, in the order of causes."""


def replay(
    app: Path, devices: Path | None, overrides: Iterable[str] = (), run_config: str = ""
) -> str:
    """Run the beginning of an app twice: at least 50 dispatches and two versions, unless it ends before.

    Args:
        app: the app's folder.
        devices: the device file; ten nodes that are always online if None.
        overrides: values of the device file by dotted path.
        run_config: values of the app's configuration.

    Returns:
        What is the same in both runs, in words.

    Raises:
        UserError: the runs differ, or one of them fails.
    """
    with tempfile.TemporaryDirectory(prefix="fedsim-replay-") as name:
        runs = [Path(name) / number for number in ("1", "2")]
        processes = [
            seeded_process(run.name, __name__, app, run_config, devices or "", run, *overrides)
            for run in runs
        ]
        for process in processes:
            output = process.communicate()[0]
            if process.returncode:
                raise UserError("a run of its beginning has failed", where=app, hint=output.strip())
        first, other = map(load_run, runs)
        difference = first_difference(first, other)
        if difference is not None:
            raise UserError(f"{difference} in a second run", where=app, hint=_SEED)
        messages = format_counted(len(_messages(first)), "message")
        versions = format_counted(len(first.aggregations), "model version")
        return f"{messages} and {versions} are the same in two runs"


def _messages(run: Run) -> pd.DataFrame:
    """The messages of a run, without the hashes of secure aggregation, whose keys come from the system."""
    assert run.messages is not None
    stages = tuple(f".{stage}" for stage in fl.SecureStage.all())
    secure = run.messages["kind"].str.endswith(stages)
    hashes = run.messages[["sent_hash", "reply_hash"]].mask(secure)
    return run.messages.assign(**hashes)


def first_difference(first: Run, other: Run) -> str | None:
    """The first difference between two runs, in words.

    The first message that differs was preceded by the same ones: its content is due to the ServerApp, and its reply to
    the ClientApp.
    """
    messages, others = _messages(first), _messages(other)
    shared = min(len(messages), len(others))
    differs = messages[:shared].compare(others[:shared])
    if len(differs):
        row = messages.loc[differs.index[0]]
        columns = differs.iloc[0].dropna().index.get_level_values(0)
        which = f"message {row['message_id']} ({row['kind']}, partition {row['client_id']})"
        for column, words in _DIFFERS.items():
            if column in columns:
                return words.format(which)
        return f"{which} has another {columns[0]}"
    if len(messages) != len(others):
        return f"the ServerApp sends {len(others)} messages instead of {len(messages)}"
    if not first.metrics.equals(other.metrics):
        return "the ServerApp reports other metrics"
    same_model = not first.folder.model.exists() or (
        first.folder.model.read_bytes() == other.folder.model.read_bytes()
    )
    return None if same_model else "the ServerApp returns another model"


def _main(app: str, run_config: str, devices: str, run: str, *overrides: str) -> None:
    """Run the beginning of an app in this process."""

    def on_progress(progress: Progress) -> None:
        if progress.dispatched >= DISPATCHES and progress.version >= AGGREGATIONS:
            raise RunEnded

    try:
        loaded = load_devices(Path(devices) if devices else None, "replay", overrides)
        execute(App.read(Path(app), run_config), loaded, Path(run), on_progress=on_progress)
    except FedsimError as error:
        print(error)
        sys.exit(2)


if __name__ == "__main__":
    _main(*sys.argv[1:])
