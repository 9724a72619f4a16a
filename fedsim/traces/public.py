"""Public traces that fedsim can download but does not ship: repositories at a commit, with the hash of every file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fedsim.files.downloads import Remote, cache_folder, retrieve
from fedsim.parts.catalog import CATALOG
from fedsim.traces.bundle import TraceBundle
from fedsim.traces.importers import import_bundle
from fedsim.vocabulary.formatting import format_names

HOST = "https://raw.githubusercontent.com"


@dataclass(frozen=True)
class PublicTrace:
    """Files of a folder of a repository of GitHub that one importer turns into a bundle."""

    description: str
    repository: str
    commit: str
    folder: str
    files: Mapping[str, str]
    """SHA-256 of each file by its name."""
    importer: str
    license: str
    """License of the files, as their repository gives it."""
    citation: str

    def fetch(self, name: str, bundle_name: str) -> TraceBundle:
        """The bundle, from files that are downloaded to the cache unless they are there."""
        cache = cache_folder("traces", name)
        origin = f"github.com/{self.repository}, commit {self.commit}, {self.folder}: {format_names(list(self.files))}"
        hint = f"download these files elsewhere, put them into {cache}, and run the command again: {origin}"
        paths = []
        for file, digest in self.files.items():
            url = f"{HOST}/{self.repository}/{self.commit}/{self.folder}/{file}"
            remote = Remote((url,), f"sha256:{digest}")
            paths.append(retrieve(remote, cache, where=f"trace {name}", hint=hint))
        importer = CATALOG.parts("importer")[self.importer]
        facts = {"source": origin, "license": self.license, "citation": self.citation}
        params = importer.Params(name=bundle_name, **facts)
        return import_bundle(importer, paths, params)


_FLASH = (
    "Yang, Wang, Xu, Wang, Bian, Liu: Characterizing Impacts of Heterogeneity in Federated Learning upon Large-Scale "
    "Smartphone Data, WWW 2021"
)
_FLASH_COMMIT = "55cbede0131877b583ed55333e980985a1925afd"

TRACES: Mapping[str, PublicTrace] = {
    "flash": PublicTrace(
        "1,000 phones of FLASH, 1 to 10 days: when they were locked, on Wi-Fi and charging",
        "Carkham/FLHetBench",
        "633c07138b0cfb1dc2e65c5c8462993a5a7bfb14",
        "data",
        {"cached_timers.json": "a4b0f08431e07174abfc86ce01d07904877880fa069a7deae52ae9b13141ef98"},
        "flash",
        "BSD-2-Clause (FLASH); FLHetBench, which publishes this reduction of FLASH's file, states none",
        f"{_FLASH}; Zhang et al.: FLHetBench, CVPR 2024",
    ),
    "flash_links": PublicTrace(
        "19 phones of FLASH: mean and variation of their rates; not those of flash",
        "PKU-Chengxu/FLASH",
        _FLASH_COMMIT,
        "models",
        {"speed_distri.json": "63f9e869b34ceb3fb845f755b48018f55941a1b002c02abb21255d9bf5bedea4"},
        "flash",
        "BSD-2-Clause",
        _FLASH,
    ),
    "ai_benchmark": PublicTrace(
        "307 models of phones: scores of AI Benchmark, memory",
        "PKU-Chengxu/FLASH",
        _FLASH_COMMIT,
        "models/utils/device_util",
        {
            "raw_ai_benchmark_list.json": "267a0e7b69d25906055bfc0916037686457d32de55c8a9ece8f9e295ec7a09b2"
        },
        "ai_benchmark",
        "BSD-2-Clause",
        f"Ignatov et al.: AI Benchmark: All About Deep Learning on Smartphones in 2019, ICCVW 2019; {_FLASH}",
    ),
    "mahimahi": PublicTrace(
        "6 cellular links in the US, up and down, by the millisecond",
        "ravinet/mahimahi",
        "ae477d437615b972217498ba52be07db17a15618",
        "traces",
        {
            "ATT-LTE-driving-2016.down": "24a40538340de991e0a6595aefc381b11a3da0446176e69b51750707a57b0344",
            "ATT-LTE-driving-2016.up": "ebb3d53674b77be4ed920ad91c4513a496e04e30da839e2ca8a627cb7269071e",
            "ATT-LTE-driving.down": "73c58f41bf7a3f0fac82810ca61307521be1cf6b77a0e98093fd340bddfd161f",
            "ATT-LTE-driving.up": "d58a640b9bccd131a421bff6eaf727aba324d9258b35009655bbf68e087b9b29",
            "TMobile-LTE-short.down": "4f33dce8dd811b5702272af64aaf64d3913719919abd776edf1e0f7c0965da43",
            "TMobile-LTE-short.up": "1c0d1bf5417b07597724fd64afe676af3c1f337a4ccdde90106bf96b1bcf18b2",
            "TMobile-UMTS-driving.down": "c97a74e7e6cf593d93b59f73db614bc6186bef510531636ad9961a3b9fc18024",
            "TMobile-UMTS-driving.up": "f2dc7c8e57f4cf525fefaff2d68c18a9118fd1382ce9c240b1d324a2a60f8a65",
            "Verizon-EVDO-driving.down": "60c9cd7b5d8be7d89d3807052a043f54787958f04cfd4c6c16fcdac6e2c3b9da",
            "Verizon-EVDO-driving.up": "6055d60d234030035f59475dc1d39d99e7c2817b9fa5d485f1f0710b1aae2075",
            "Verizon-LTE-short.down": "c918436fbd6246af134c76585d9395881fdd27203c59a8902b9a7c675b8a8e3e",
            "Verizon-LTE-short.up": "f6cd9049f58d70f12545772a3482ded085b6d50f06a2f4ff4afcfb6fe7976dcc",
        },
        "mahimahi",
        "GPL-3.0",
        "Winstein, Sivaraman, Balakrishnan: Stochastic Forecasts Achieve High Throughput and Low Delay over Cellular "
        "Networks, NSDI 2013; Netravali et al.: Mahimahi, ATC 2015",
    ),
    "nyu_mets": PublicTrace(
        "7 rides through New York: LTE downlink, by the second",
        "NYU-METS/Main",
        "886c73b1398457ba5f87faefe7a9ea3755e713f7",
        "Sample_Traces",
        {
            "7Train1.csv": "0530c6e75b33a19084faee2694dfa376588f2f48affddb0ad0ffcdba4622b487",
            "7Train2.csv": "1bb722fa788da32bbb03e4a55b8c470c9dada74dd76635123c9283967c9ec204",
            "Long_Island_Rail_Road.csv": "f720507e45dbf128c62c009214498344045ab4f3d999a6ade2ce8c316f68ca30",
            "QTrain.csv": "c5f279758890b91e8e9a8cee6784addc9d885a58547d0448c75e2550b1c3a463",
            "bus57.csv": "9f2b6b06214888b5ab5e038332315eb3847b479d84eefa8cf96604d89f799aea",
            "bus62.csv": "6decb11afcde38cacabafe72c1ddf9371cabcbdcb53dc79c521afe4dff25d1ee",
            "bus62_2.csv": "e490a6bc6f3ce34d1bca16f22c898b169ccd487003c49481f699a46b8d024c0f",
        },
        "nyu_mets",
        "ODbL-1.0",
        "Mei et al.: Realtime Mobile Bandwidth Prediction Using LSTM Neural Network, PAM 2019",
    ),
}
