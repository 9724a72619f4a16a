"""Public traces: downloaded from a server on this machine, checked, imported with license and citation."""

import gzip
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

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


def test_names() -> None:
    listed = invoke("traces", "fetch").stdout
    assert all(name in listed for name in public.TRACES)
    assert "did you mean 'flash'" in invoke("traces", "fetch", "flahs").stderr
    assert {trace.importer for trace in public.TRACES.values()} <= set(CATALOG.parts("importer"))


@pytest.mark.real_data
def test_hashes_are_those_of_the_published_files(real_traces: Path) -> None:
    published = {
        path.name.removesuffix(".gz"): path for path in real_traces.rglob("*") if path.is_file()
    }
    for trace in public.TRACES.values():
        for name, digest in trace.files.items():
            data = published[name].read_bytes()
            content = gzip.decompress(data) if published[name].suffix == ".gz" else data
            assert sha256(content).hexdigest() == digest
