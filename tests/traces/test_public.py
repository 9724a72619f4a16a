"""Public traces: downloaded from a server on this machine, checked, imported with license and citation."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from fedsim.errors import UserError
from fedsim.parts.catalog import CATALOG
from fedsim.traces import public
from fedsim.traces.bundle import TraceBundle
from tests.cli.invoking import invoke
from tests.traces.helpers import intervals

TIMERS = '{"p": {"isSuccess": true, "trace_start": 0, "trace_end": 90, "ready_time": [[10, 20]]}}'


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of downloads."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "fedsim" / "traces"


@pytest.fixture
def serve(
    server: tuple[str, Path], monkeypatch: pytest.MonkeyPatch
) -> Callable[[str, dict[str, bytes]], public.PublicTrace]:
    """Serves the files of a trace from this machine; its hashes stay as they are."""
    address, folder = server

    def serve(name: str, files: dict[str, bytes]) -> public.PublicTrace:
        trace = public.TRACES[name]
        for file, content in files.items():
            path = folder / trace.repository / trace.commit / trace.folder / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        monkeypatch.setattr(public, "HOST", address.rstrip("/"))
        return trace

    return serve


def test_fetch(
    serve: Callable[[str, dict[str, bytes]], public.PublicTrace],
    server: tuple[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    cache: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    file, content = "cached_timers.json", TIMERS.encode()
    trace = serve("flash", {file: content})
    # The hash is that of another file.
    refused = invoke("traces", "fetch", "flash")
    assert refused.exit_code == 2
    assert "trace flash: cannot download" in refused.stderr
    assert f"put them into {cache / 'flash'}, and run" in refused.stderr
    assert not (tmp_path / "flash").exists()

    trace = replace(trace, files={file: sha256(content).hexdigest()})
    monkeypatch.setattr(public, "TRACES", {"flash": trace})
    made = invoke("traces", "fetch", "flash")
    assert made.exit_code == 0, made.stderr
    assert f"license: {trace.license}\ncite: {trace.citation}\n" in made.stderr
    bundle = TraceBundle.read(tmp_path / "flash")
    assert intervals(bundle) == {"p": [(10_000_000, 20_000_000)]}
    manifest = bundle.manifest
    assert (manifest.license, manifest.citation) == (trace.license, trace.citation)
    assert manifest.source == f"github.com/{trace.repository}, commit {trace.commit}, data: {file}"
    assert manifest.command == "fedsim traces fetch flash"
    # The second time, nothing is downloaded.
    (server[1] / trace.repository / trace.commit / "data" / file).unlink()
    assert invoke("traces", "fetch", "flash", "-o", tmp_path / "again").exit_code == 0


def test_a_file_put_there_by_hand_needs_no_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    trace = replace(
        public.TRACES["flash"],
        files={"t.json": sha256(TIMERS.encode()).hexdigest()},
    )
    monkeypatch.setattr(public, "HOST", "http://127.0.0.1:9")
    with pytest.raises(UserError, match="cannot download http://127"):
        trace.fetch("flash", "x")
    (cache / "flash").mkdir(parents=True, exist_ok=True)
    (cache / "flash" / "t.json").write_text(TIMERS)
    assert trace.fetch("flash", "x").manifest.name == "x"


def test_names() -> None:
    listed = invoke("traces", "fetch").stdout
    assert all(name in listed for name in public.TRACES)
    assert "did you mean 'flash'" in invoke("traces", "fetch", "flahs").stderr
    importers = CATALOG.parts("importer")
    for trace in public.TRACES.values():
        assert trace.importer in importers
        assert {len(digest) for digest in trace.files.values()} == {64}


PUBLISHED = {
    "flash": ("flash_state_1k", 1000),
    "flash_links": ("flash_links", 19),
    "ai_benchmark": ("ai_benchmark", 307),
    "mahimahi": ("mahimahi_cellular", 6),
    "nyu_mets": ("nyu_mets_lte", 7),
}


@pytest.mark.real_data
@pytest.mark.parametrize("name", public.TRACES)
def test_hashes_are_those_of_the_published_files(
    name: str,
    serve: Callable[[str, dict[str, bytes]], public.PublicTrace],
    real_traces: Path,
) -> None:
    folder, devices = PUBLISHED[name]
    files = {}
    for file in public.TRACES[name].files:
        path = real_traces / folder / file
        packed = path.with_name(f"{file}.gz")
        files[file] = gzip.decompress(packed.read_bytes()) if packed.exists() else path.read_bytes()
    bundle = serve(name, files).fetch(name, name)
    assert bundle.device_count == devices
    assert public.TRACES[name].description.startswith(f"{devices:,} ")
