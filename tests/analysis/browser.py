"""A headless Chromium, driven over its debugging pipe."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
]


# Copied upwards first, because one of the two may be 3 or 4 already.
_ON_3_AND_4 = """
import fcntl, os, sys
high = [fcntl.fcntl(int(number), fcntl.F_DUPFD, 10) for number in sys.argv[1:3]]
os.dup2(high[0], 3)
os.dup2(high[1], 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


class Page:
    """One page; every console message, exception and request since it was opened is kept."""

    def __init__(self, requests: IO[bytes], answers: IO[bytes]) -> None:
        self._requests, self._answers = requests, answers
        self._number = 0
        self._session: str | None = None
        self._loaded = False
        self._untouched: Path | None = None
        self.complaints: list[str] = []
        self.urls: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        self._requests.write(json.dumps(message).encode() + b"\0")
        self._requests.flush()
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                result: dict[str, Any] = answer["result"]
                return result

    def _read(self) -> dict[str, Any]:
        text = bytearray()
        while (byte := self._answers.read(1)) != b"\0":
            if not byte:
                raise RuntimeError("the browser has gone")
            text += byte
        message: dict[str, Any] = json.loads(text)
        method, parameters = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(parameters["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning"):
            self.complaints.append(json.dumps(parameters["args"]))
        elif method == "Log.entryAdded":
            self.complaints.append(json.dumps(parameters["entry"]))
        elif method == "Network.requestWillBeSent":
            self.urls.append(parameters["request"]["url"])
        elif method == "Page.loadEventFired":
            self._loaded = True
        return message

    def open(self, path: Path, *, unfold: bool = True) -> None:
        """Show a page anew, with nothing remembered of the one before, and its sections open."""
        self._untouched = None
        self._reset()
        self._navigate("about:blank")
        self.complaints.clear()
        self.urls.clear()
        self._navigate(path.as_uri())
        self.settle()
        if unfold:
            self.run("document.querySelectorAll('details.fold').forEach((e) => { e.open = true; })")
            self.settle()

    def show(self, path: Path) -> None:
        """Show a page to a test that puts back what it changes, but for size and media; loaded only after others."""
        if self._untouched == path:
            self._reset()
            self.settle()
        else:
            self.open(path)
            self._untouched = path

    def _reset(self) -> None:
        self.resize(1400)
        self.call("Emulation.setEmulatedMedia", media="", features=[])

    def _navigate(self, url: str) -> None:
        self._loaded = False
        self.call("Page.navigate", url=url)
        while not self._loaded:
            self._read()

    def resize(self, width: int, height: int = 900) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def settle(self) -> None:
        """Wait for two frames, so that sizes have been observed and drawn."""
        self.run(
            "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))"
        )

    def run(self, expression: str) -> Any:
        answer = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in answer:
            raise RuntimeError(json.dumps(answer["exceptionDetails"]))
        return answer["result"].get("value")

    def press(self, key: str) -> None:
        codes = {"Tab": 9, "Enter": 13, "ArrowRight": 39, "ArrowDown": 40, " ": 32}
        text = {"Enter": "\r", " ": " "}.get(key, "")
        for kind in ("keyDown", "keyUp"):
            self.call(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                text=text if kind == "keyDown" else "",
                windowsVirtualKeyCode=codes.get(key, 0),
            )
        self.settle()

    def drag(self, begin: tuple[float, float], end: tuple[float, float]) -> None:
        """Press the mouse at a place, and let it go at another."""
        steps = (("mousePressed", begin), ("mouseMoved", end), ("mouseReleased", end))
        for kind, (x, y) in steps:
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
        self.settle()

    def choose(self, control: str, value: str, event: str = "change") -> None:
        """Choose an entry of a select element."""
        element = f"document.getElementById('{control}')"
        self.run(f"{element}.value = '{value}'; {element}.dispatchEvent(new Event('{event}'))")
        self.settle()

    def type(self, control: str, text: str) -> None:
        """Replace the text of an input element."""
        self.choose(control, text, "input")

    def click(self, selector: str) -> None:
        """Click on an element."""
        self.run(f"document.querySelector('{selector}').click()")
        self.settle()

    @property
    def said(self) -> str:
        """What a screen reader was told last."""
        return str(self.run("document.getElementById('live').textContent"))

    def prefer(self, scheme: str) -> None:
        self.call(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": scheme}],
        )
        self.settle()


@contextmanager
def browser() -> Iterator[Page]:
    assert CHROMIUM is not None
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        out_read, out_write = os.pipe()
        in_read, in_write = os.pipe()
        # The browser reads its commands from descriptor 3 and answers on 4.
        process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                _ON_3_AND_4,
                str(out_read),
                str(in_write),
                CHROMIUM,
                *FLAGS,
                f"--user-data-dir={profile}",
            ],
            pass_fds=(out_read, in_write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(out_read)
        os.close(in_write)
        try:
            with os.fdopen(out_write, "wb") as requests, os.fdopen(in_read, "rb") as answers:
                yield Page(requests, answers)
        finally:
            process.terminate()
            process.wait()
