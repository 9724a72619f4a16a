"""Synthesized bundles, and their intervals."""

from fedsim.traces.synthesis import Synthesis, synthesize


def make(population, devices=50, **more):
    return synthesize(Synthesis(population=population, devices=devices, **more))


def sessions(bundle):
    lengths = bundle.numpy("availability", "end_us") - bundle.numpy("availability", "start_us")
    return lengths / 1e6


def intervals(bundle, device):
    rows = bundle.device_rows("availability") == device
    start = bundle.numpy("availability", "start_us")[rows] / 1e6
    end = bundle.numpy("availability", "end_us")[rows] / 1e6
    return list(zip(start.tolist(), end.tolist(), strict=True))
