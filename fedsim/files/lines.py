"""Lines that programs print, as tables: Flower's server log, nvidia-smi and tegrastats."""

from __future__ import annotations

import re
from collections.abc import Iterator

from fedsim.files.sources import SourceFile

_HEAD_BYTES = 1 << 16
_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?")
_FLOWER = re.compile(
    rb"(?:configure_(?:fit|train): |fit_round \d+: )(?:strategy )?sampled", re.IGNORECASE
)
_SENT = re.compile(_FLOWER.pattern.decode(), re.IGNORECASE)
_ARRIVED = re.compile(
    r"(?:aggregate_(?:fit|train): |\bfit_round \d+ )received ([1-9]\d*) results", re.IGNORECASE
)
_ROUND = re.compile(r"\[ROUND (\d{1,15})\b|\bfit_round (\d{1,15}):")
_BEGINS = re.compile(r"\[INIT\]|\bFL starting|Starting Flower")
WHOLE_ROUNDS = (
    "Flower's server log has the times of whole rounds: each counts as one dispatch of its slowest client. Log the"
    " clients with fedsim.flower.logged."
)
_RAIL = re.compile(r"\b(\w+) (\d+)(?:mW)?/\d+(?:mW)?(?= |$)")
_TEGRA = re.compile(rb"\bRAM \d+/\d+MB")
_NO_WATTS = re.compile(
    rb"(?:(?<=\d) W|\[(?:N/A|Not Supported|Unknown Error|Insufficient Permissions)\])(?=\s*(?:,|\r|\n|$))"
)
"""What nvidia-smi writes behind or instead of a number."""
_TEGRA_TIME = re.compile(r"(\d\d)-(\d\d)-(\d{4}) (\d\d:\d\d:\d\d)")


def as_table(source: SourceFile) -> tuple[SourceFile, str]:
    """A file of such lines as CSV, and a flag about it (empty: none); another file as it is."""
    head = source.head(_HEAD_BYTES)
    if _FLOWER.search(head):
        return _table(source, "client,start,end,round", _rounds(source)), WHOLE_ROUNDS
    if _TEGRA.search(head):
        return _table(source, "time,power", _tegrastats(source)), ""
    if b"power.draw" in head.partition(b"\n")[0]:
        names, end, rows = source.data.partition(b"\n")
        plain = re.sub(rb" *\[W\]", b"", names) + end + _NO_WATTS.sub(b"", rows)
        return SourceFile(source.name, source.where, plain), ""
    return source, ""


def _table(source: SourceFile, header: str, rows: Iterator[tuple[int, str]]) -> SourceFile:
    origins, lines = zip((1, header), *rows, strict=True)
    return SourceFile(source.name, source.where, "\n".join(lines).encode(), origins)


def _rounds(source: SourceFile) -> Iterator[tuple[int, str]]:
    """A row per round of a server, from its messages to the last reply, with the line of the latter."""
    number, sent = 0, ""
    for line, text in source.lines():
        if _BEGINS.search(text):
            number = 0
        if begun := _ROUND.search(text):
            number = int(begun[1] or begun[2]) - 1
        is_sent = bool(_SENT.search(text))
        if not (is_sent or _ARRIVED.search(text)):
            continue
        time = _TIME.search(text)
        if time is None:
            hint = "log with times, such as those of docker logs --timestamps or journalctl -o short-iso"
            raise source.error("the line has no time", hint, line=line)
        instant = time[0].replace(",", ".")
        if is_sent:
            number, sent = number + 1, instant
        elif sent:
            yield line, f"slowest,{sent},{instant},{number}"
            sent = ""


def _tegrastats(source: SourceFile) -> Iterator[tuple[int, str]]:
    """The power of the whole board in watts, that of its input or the sum of its rails, with its line."""
    first = set[str]()
    for line, text in source.lines():
        time = _TEGRA_TIME.search(text)
        rails = {name: float(milliwatts) for name, milliwatts in _RAIL.findall(text)}
        if time is None or not rails:
            hint = "log with the time and the power, as tegrastats of JetPack 5 does"
            raise source.error("the line has no time or no power", hint, line=line)
        used = {name: each for name, each in rails.items() if name.endswith("_IN")} or rails
        if {*used} != (first := first or {*used}):
            message = f"the line has the power of {', '.join(used)}, not of {', '.join(first)}"
            raise source.error(message, "remove it", line=line)
        month, day, year, clock = time.groups()
        yield line, f"{year}-{month}-{day}T{clock},{sum(used.values()) / 1000}"
