"""Make the bundled traces of real devices from their published files: ``python tools/real_traces.py DATA``.

``DATA`` has one folder per source, such as ``fedscale_100``, with the files that its authors published. Every bundle is
written by an importer; if the files are too large to ship, it gets only some of their lines, as the bundle's caveats
say. ``traces/NOTICE`` contains the licenses.
"""

from __future__ import annotations

import csv
import gzip
import io
import shutil
import sys
import tempfile
import tomllib
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any
from zipfile import ZipFile

from fedsim.parts.catalog import CATALOG
from fedsim.traces.bundle import TraceBundle
from fedsim.traces.importers import import_bundle
from fedsim.traces.tables import make_table

TRACES = Path(__file__).resolve().parent.parent / "traces"
PUFFER_S = 900.0
"""Length of the beginning of each Puffer session that is kept."""
PLANETLAB_STRIDE = 2
"""Every second PlanetLab node is kept."""
AZURE_VMS = 1000
"""Number of virtual machines of each type that are kept."""

Selection = Callable[[Path, Path], None]
Tables = Callable[[Path], Mapping[str, Any]]


@dataclass(frozen=True)
class Recipe:
    """How one bundle is made.

    Args:
        folder: folder of the source under ``DATA``.
        select: writes the files for the importer to its second argument, from those in the first.
        importer: name of the importer.
        source: repository, commit and path of the files.
        license: SPDX identifier of their license.
        citation: what to cite.
        caveats: limits of the data, besides those that the importer knows.
        options: the importer's options.
        more: further tables of the bundle, from the files in the folder.
    """

    folder: str
    select: Selection
    importer: str
    source: str
    license: str
    citation: str
    caveats: tuple[str, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    more: Tables = lambda _: {}


def _files(pattern: str) -> Selection:
    """All files with names of this pattern."""

    def select(source: Path, target: Path) -> None:
        for file in source.glob(pattern):
            shutil.copyfile(file, target / file.name)

    return select


def _beginnings(source: Path, target: Path) -> None:
    """The first minutes of each session of Puffer."""
    with ZipFile(source / "puffer_300.zip") as archive:
        for name in archive.namelist():
            lines = archive.read(name).decode().splitlines()
            times = [float(line.split()[0]) for line in lines]
            kept = [
                line for time, line in zip(times, lines, strict=True) if time - times[0] <= PUFFER_S
            ]
            (target / Path(name).name).write_text("\n".join(kept) + "\n")


def _every_second_node(source: Path, target: Path) -> None:
    """The rows and columns 0, 2, 4, ... of the matrices of PlanetLab."""
    for file in source.glob("PlanetLabData_*.gz"):
        rows = gzip.decompress(file.read_bytes()).decode().splitlines()[::PLANETLAB_STRIDE]
        cells = ("\t".join(row.rstrip("\t").split("\t")[::PLANETLAB_STRIDE]) for row in rows)
        (target / file.stem).write_text("\n".join(cells) + "\n")


def _relative_speeds(source: Path, target: Path) -> None:
    """The speed of the first short-lived machines of each type over the median of their type."""
    rows = []
    for kind in ("B8ms", "D8s_v5"):
        file = source / f"Stress-NG_Matrix_Math_short_westus2_{kind}.csv.gz"
        measurements = csv.DictReader(io.StringIO(gzip.decompress(file.read_bytes()).decode()))
        values = defaultdict(list)
        for row in sorted(measurements, key=lambda row: row["starttime"]):
            values[row["VM_id"]].append(float(row["value"]))
        speeds = {vm: median(of_vm) for vm, of_vm in list(values.items())[:AZURE_VMS]}
        typical = median(speeds.values())
        rows += [
            (f"{kind}-{vm}", f"{speed / typical:.6g}", kind, "vm") for vm, speed in speeds.items()
        ]
    with (target / "speeds.csv").open("w", newline="") as output:
        writer = csv.writer(output)
        writer.writerow(("device", "relative_speed", "group", "kind"))
        writer.writerows(rows)


def _links_of_countries(source: Path, target: Path) -> None:
    """One row per country."""
    locations = tomllib.loads((source / "bouquetfl_locations.toml").read_text())["locations"]
    with (target / "links.csv").open("w", newline="") as output:
        writer = csv.writer(output)
        writer.writerow(("device", "down", "up", "group"))
        writer.writerows(
            (each["name"], each["download_mbps"], each["upload_mbps"], each["name"])
            for each in locations
        )


def _pings_of_countries(source: Path) -> Mapping[str, Any]:
    """One row per pair of countries, which the mean over directions needs in one of them only."""
    edges = tomllib.loads((source / "bouquetfl_ping_graph.toml").read_text())["edges"]
    rows = {
        "src": [each["from"] for each in edges],
        "dst": [each["to"] for each in edges],
        "rtt_s": [each["ping_ms"] / 1e3 for each in edges],
    }
    return {"rtt_matrix": make_table("rtt_matrix", rows)}


RECIPES: Mapping[str, Recipe] = {
    "fedscale_phones": Recipe(
        folder="fedscale_100",
        select=_files("*.json"),
        importer="fedscale",
        source="github.com/AFKD98/FLOAT, commit 0557c89ddf0453b3dceb8ad0c166475a5353323f, "
        "benchmark/dataset/data/device_info/filtered_dict.pkl and filtered_dict_availabilities.pkl",
        license="Apache-2.0",
        citation="Lai et al., FedScale: Benchmarking Model and System Performance of Federated Learning at Scale, "
        "ICML 2022; Khan et al., FLOAT: Federated Learning Optimizations with Automated Tuning, EuroSys 2024",
        caveats=(
            "FLOAT selected these 100 of FedScale's clients; they are not a random sample, and online 73% of the time",
            "compute is inference; FedScale counts three times as much for training (train_factor: 3)",
            "one rate for both directions",
        ),
    ),
    "propius_phones": Recipe(
        folder="ai_benchmark",
        select=_files("client_spec_speed.json"),
        importer="ai_benchmark",
        source="github.com/EricDinging/Propius, commit 73807cc357989087b7c32f56b06ab77363920837, "
        "datasets/device_info/client_spec_speed",
        license="MIT",
        citation="Ding et al., Propius, github.com/EricDinging/Propius; Ignatov et al., AI Benchmark: All About Deep "
        "Learning on Smartphones in 2019, ICCVW 2019",
        caveats=(
            "compute is inference, in ms per sample",
            "a list of models, not a sample of users",
        ),
    ),
    "puffer_homes": Recipe(
        folder="puffer_broadband",
        select=_beginnings,
        importer="pensieve",
        source="github.com/confiwent/Real-world-bandwidth-traces, commit d28c4fd48d0e358db024cc0217b111c070815fa7, "
        "puffer_211017/cooked_traces and puffer_220218/cooked_traces",
        license="MIT",
        citation="Yan et al., Learning in situ: a randomized experiment in video streaming, NSDI 2020; Kan et al., "
        "Improving Generalization for Neural Adaptive Video Streaming via Meta Reinforcement Learning, MM 2022",
        caveats=(
            f"the first {PUFFER_S / 60:.0f} minutes of each session; 300 of 1,935 sessions, drawn at random",
            "slow sessions, chosen by the authors of MERINA: not a sample of broadband links",
        ),
        options={"app_limited": True},
    ),
    "norway_3g": Recipe(
        folder="hsdpa_norway",
        select=_files("norway_*"),
        importer="pensieve",
        source="github.com/confiwent/Real-world-bandwidth-traces, commit d28c4fd48d0e358db024cc0217b111c070815fa7, "
        "cooked_3gp",
        license="MIT",
        citation="Riiser, Vigmostad, Griwodz, Halvorsen, Commute path bandwidth traces from 3G networks: analysis and "
        "applications, MMSys 2013",
        caveats=("one phone in vehicles around Oslo, 2010 to 2011; about five minutes per trip",),
    ),
    "mobiperf_phones": Recipe(
        folder="mobiperf_tcp_down_2018",
        select=_files("*.json"),
        importer="mobiperf",
        source="MobiPerf (M-Lab), 2018, by way of github.com/Carkham/FLHetBench, commit "
        "633c07138b0cfb1dc2e65c5c8462993a5a7bfb14, bench/cached_sample_data/device and data",
        license="CC0-1.0",
        citation="M-Lab, The M-Lab MobiPerf Data Set, measurementlab.net; Zhang et al., FLHetBench, CVPR 2024",
        caveats=(
            "the authors of FLHetBench drew these tests to reach a mean near 42 Mbit/s: good for the variation within "
            "a test, not for the spread over phones",
        ),
    ),
    "planetlab_rtt": Recipe(
        folder="netlatency",
        select=_every_second_node,
        importer="rtt_matrix",
        source="github.com/uofa-rzhu3/NetLatency-Data, commit a5845579654bf3b7f191d2697c0de24ec485b8e9, PlanetLabData "
        "1, 7 and 13",
        license="MIT",
        citation="Zhu, Liu, Niu, Li, Zhao, Network Latency Estimation for Personal Devices: A Matrix Completion "
        "Approach, IEEE/ACM Transactions on Networking 2017",
        caveats=(
            f"every second of 490 nodes (node k here is node {PLANETLAB_STRIDE}k there); the median of 3 of 18 slices "
            "of time",
            "the source does not state its unit; ms follows from the magnitudes",
        ),
        options={"unit": "ms"},
    ),
    "azure_vms": Recipe(
        folder="azure_vm_noise",
        select=_relative_speeds,
        importer="table",
        source="github.com/Azure/AzurePublicDataset, commit b469a113cedca53ddc3bdea71a143dc4b7d8700c, vm-noise-data, "
        "Stress-NG Matrix Math, short-lived, westus2",
        license="CC-BY-4.0",
        citation="Freischuetz et al., TUNA: Tuning Unstable and Noisy Cloud Applications, EuroSys 2025",
        caveats=(
            f"the first {AZURE_VMS:,} short-lived machines of each of two types; one benchmark of 30 s on each",
            "a speed is relative to the median of its own type, so the two types are not compared",
        ),
    ),
    "countries": Recipe(
        folder="../measured",
        select=_links_of_countries,
        importer="table",
        source="github.com/arnogeimer/bouquetfl, commit 629513dccc5773ac810a4cd648d4726f6cc4997c, "
        "datasets/locations.toml and datasets/ping_graph.toml",
        license="Apache-2.0",
        citation="Geimer, BouquetFL, github.com/arnogeimer/bouquetfl; rates by way of the Speedtest Global Index, "
        "speedtest.net/global-index; pings by way of WonderNetwork, wondernetwork.com/pings",
        caveats=(
            "one rounded rate per country and direction: nothing of the spread within a country",
            "a ping is between two countries' servers; there is none within a country",
        ),
        options={"rate_unit": "Mbit/s"},
        more=_pings_of_countries,
    ),
}


def make(name: str, data: Path) -> TraceBundle:
    """The bundle ``name`` from the published files under ``data``."""
    recipe = RECIPES[name]
    importer = CATALOG.parts("importer")[recipe.importer]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        recipe.select(data / recipe.folder, folder)
        params = importer.Params(
            name=name,
            source=recipe.source,
            license=recipe.license,
            citation=recipe.citation,
            **recipe.options,
        )
        bundle = import_bundle(importer, sorted(folder.iterdir()), params)
    bundle.tables |= recipe.more(data / recipe.folder)
    bundle.manifest.caveats += recipe.caveats
    bundle.manifest.command = "python tools/real_traces.py DATA"
    return bundle


def main() -> None:
    """Write every bundle to ``traces``."""
    for name in RECIPES:
        make(name, Path(sys.argv[1])).write(TRACES / name, overwrite=True)


if __name__ == "__main__":
    main()
