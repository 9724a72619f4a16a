"""Forecasts: the interval, the words, and the devices of the runs."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import fedsim
from fedsim.cli import cli
from fedsim.decisions.forecast import Forecast, _page, band, devices_of
from fedsim.errors import UserError
from fedsim.runs.records import FORECAST
from fedsim.runs.verification import verify
from fedsim.traces.bundle import TraceBundle
from tests.analysis.documents import columns, embedded
from tests.composition.worlds import digits
from tests.traces.cases import bundle_of

H = 3600.0
NINETEEN = np.arange(1.0, 20.0)


@pytest.mark.parametrize(
    ("times", "confidence", "expected"),
    [
        (NINETEEN, 0.9, (10, 1, 19)),
        (np.arange(1.0, 40.0), 0.9, (20, 2, 38)),
        (np.arange(1.0, 30.0), 0.9, (15, 1.5, 28.5)),
        (np.arange(1.0, 19.0), 0.9, (9.5, math.nan, math.inf)),
        (np.append(NINETEEN[:-1], math.inf), 0.9, (10, 1, math.inf)),
        (NINETEEN, 0.5, (10, 5, 15)),
        (np.zeros(0), 0.9, (math.nan, math.nan, math.inf)),
    ],
)
def test_a_band_is_of_order_statistics(
    times: Any, confidence: float, expected: tuple[float, float, float]
) -> None:
    shuffled = np.random.default_rng(0).permutation(times)
    assert band(shuffled, confidence) == pytest.approx(expected, nan_ok=True)


def test_one_more_time_lies_in_the_band_with_its_probability() -> None:
    draws = np.random.default_rng(1).lognormal(size=(4000, 20))
    inside = [low <= row[0] <= high for row in draws for _, low, high in [band(row[1:])]]
    assert np.mean(inside) == pytest.approx(0.9, abs=0.015)


def made(times: Any, flat: int = 0) -> Forecast:
    times = np.asarray(times, dtype=float)
    is_flat = np.zeros(len(times), bool)
    is_flat[len(times) - flat :] = True
    return Forecast(Path("f"), "80% accuracy", times, is_flat, np.full(len(times), 48 * H))


@pytest.mark.parametrize(
    ("forecast", "sentence"),
    [
        (made(H * (30 + NINETEEN)), "80% accuracy after 1 d 7 h to 2 d 1 h (90%), median 1 d 16 h"),
        (
            made([*(H * NINETEEN), math.inf, math.inf], flat=1),
            "80% accuracy within 2 d in 19 of 21 runs; probability 0.89; late 1, probably never 1; if reached, "
            "after 1 h to 19 h (90%), median 10 h",
        ),
        (
            made([H, 3 * H, math.inf]),
            "80% accuracy within 2 d in 2 of 3 runs; probability 0.63; late 1, probably never 0; if reached, "
            "after about 2 h (2 runs are too few for an interval of 90%)",
        ),
        (
            made([math.inf] * 3, flat=2),
            "80% accuracy is not reached within 2 d by any of 3 runs, 2 of them flat",
        ),
    ],
)
def test_a_forecast_in_words(forecast: Forecast, sentence: str) -> None:
    assert forecast.sentence == sentence


@pytest.mark.parametrize(
    ("times", "median", "dots", "drawn"),
    [
        # Fewer than half of the runs have no median; the steps lie at the end of the runs.
        ([48 * H, 48 * H, *[math.inf] * 4], "not reached by half", [None, 2 / 6], 2),
        ([H, 2 * H, 3 * H], "2 h", [None, 1 / 3, 2 / 3, 1, None], 3),
    ],
)
def test_the_page_shows_every_step_and_the_median(
    times: list[float], median: str, dots: list[float | None], drawn: int
) -> None:
    page = _page(made(times), "made")
    assert f"<strong>{median}</strong>" in page.replace("\N{NO-BREAK SPACE}", " ")
    document = embedded(page)
    shown = columns(document, "reached")
    assert shown["time_s"][0] == shown["share"][0] == 0
    assert shown["ends"] == pytest.approx(dots)
    assert len(document["reached"]["series"]) == drawn


def trace(importer: str = "table", error: float = 0.1) -> TraceBundle:
    """Twenty devices whose steps take 1 s to 20 s."""
    bundle = bundle_of({f"d{n:02}": [(0, 7 * 86_400 * 10**6)] for n in range(20)})
    from fedsim.traces.tables import make_table

    ids = [f"d{n:02}" for n in range(20)]
    compute = {"device_id": ids, "task": ["*"] * 20, "phase": ["training"] * 20}
    compute |= {"step_fixed_s": np.arange(1.0, 21.0), "sample_s": np.zeros(20)}  # type: ignore[dict-item]
    compute |= {"step_fixed_error": np.full(20, error)}  # type: ignore[dict-item]
    manifest = bundle.manifest.model_copy(update={"importer": importer})
    return TraceBundle(manifest, bundle.tables | {"compute": make_table("compute", compute)})


@pytest.mark.parametrize(
    ("importer", "more", "kept", "count"),
    [
        ("table", {}, False, 8),
        ("table", {"every": True}, False, 20),
        ("table", {"same": True}, True, 20),
        ("calibrate", {}, True, 20),
    ],
)
def test_devices_are_drawn_anew_or_estimates_are(
    importer: str, more: Any, kept: bool, count: int
) -> None:
    source = trace(importer)
    drawn = devices_of(source, 8, 1, **more)
    assert drawn.device_count == count
    same_names = drawn.device_ids.to_pylist() == source.device_ids.to_pylist()
    assert same_names == kept
    steps = drawn.numpy("compute", "step_fixed_s")
    assert not np.isin(steps, np.arange(1.0, 21.0)).any()
    assert not kept or np.abs(np.log(steps / np.arange(1.0, 21.0))).max() < 0.5


def test_devices_without_errors_are_kept_as_they_are() -> None:
    source = trace("calibrate")
    plain = source.tables["compute"].drop_columns(["step_fixed_error"])
    bundle = TraceBundle(source.manifest, source.tables | {"compute": plain})
    assert devices_of(bundle, 8, 1) is bundle


def test_a_forecast_of_training_is_made_and_extended(tmp_path: Path) -> None:
    scenario = digits(stop={"rounds": 12}, evaluation={"every_rounds": 1})
    call = {"output": tmp_path / "f", "jobs": 1}
    found = fedsim.forecast(scenario, "accuracy=0.3", runs=3, **call)
    assert np.isfinite(found.times_s).any()
    assert len(set(found.times_s)) == 3  # Seeds differ.
    more = fedsim.forecast(scenario, "accuracy=0.3", runs=4, **call)
    assert more.times_s[:3].tolist() == found.times_s.tolist()
    assert len(list((tmp_path / "f" / "runs").glob("*/run.json"))) == 4
    before = (tmp_path / "f" / FORECAST.file).read_bytes()
    assert len(FORECAST.read(tmp_path / "f")["complete"]) == 4
    [lost, *_] = (tmp_path / "f" / "runs").glob("*/dispatches.parquet")
    lost.write_bytes(b"")
    with pytest.raises(UserError, match=r"dispatches\.parquet: it has changed"):
        fedsim.forecast(scenario, "accuracy=0.3", runs=4, **call)
    assert (tmp_path / "f" / FORECAST.file).read_bytes() == before
    (lost.parent / "run.json").unlink()
    shown = CliRunner().invoke(cli, ["watch", "--once", str(tmp_path / "f")])
    assert f"runs/{lost.parent.name}: damaged" in shown.stdout


def test_a_forecast_of_counts_replays_other_devices(tmp_path: Path) -> None:
    trace().write(tmp_path / "trace")
    scenario = {
        "task": {"name": "timing", "clients": 6, "parameters": 1000},
        "devices": {"trace": str(tmp_path / "trace"), "network": {"name": "static", "up": "1Mbps", "down": "1Mbps"}},
        "training": {"local_steps": 2},
        "stop": {"simulated_time": "1h"},
    }  # fmt: skip
    found = fedsim.forecast(scenario, "rounds=2", tmp_path / "f", runs=5, jobs=1)
    # Two rounds of all clients take four steps of the slowest, and little else.
    folders = sorted((tmp_path / "f" / "devices").iterdir(), key=lambda path: path.name[-1])
    steps = [TraceBundle.read(folder).numpy("compute", "step_fixed_s") for folder in folders]
    assert found.times_s == pytest.approx([4 * step_s.max() for step_s in steps], abs=0.5)
    assert len(set(found.times_s)) == 5
    assert found.table["time_s"].tolist() == found.times_s.tolist()
    folders[0].rename(tmp_path / "first")
    folders[1].rename(folders[0])
    (tmp_path / "first").rename(folders[1])
    moved = (tmp_path / "f").rename(tmp_path / "moved")
    assert [each.state for each in verify(moved)].count("damaged") == 1
    for folder in sorted(folders[:2]):
        manifest = moved / "devices" / folder.name / "manifest.json"
        with pytest.raises(UserError, match="has changed") as refusal:
            fedsim.forecast(scenario, "rounds=2", moved, runs=5, jobs=1)
        assert str(manifest) in str(refusal.value.hint)
        manifest.unlink()
    again = fedsim.forecast(scenario, "rounds=2", moved, runs=5, jobs=1)
    assert again.times_s.tolist() == found.times_s.tolist()
