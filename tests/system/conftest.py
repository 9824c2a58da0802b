"""What tests with other processes share: the command, synthetic runs, and a browser.

The browser is Chromium, driven through chromedriver's HTTP protocol with the standard library.
"""

import base64
import json
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import ancl, no_figures
from tests.reporting.conftest import (
    address,
    make,
    make_analysis,
    make_search,
    report_of_all,
    runs,
)

__all__ = [  # fixtures of other folders
    "address",
    "ancl",
    "make",
    "make_analysis",
    "make_search",
    "no_figures",
    "report_of_all",
    "runs",
]


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator["Browser"]:
    if CHROMIUM is None or DRIVER is None:
        pytest.skip("Chromium or chromedriver is not installed")
    with opened(tmp_path_factory.mktemp("browser")) as window:
        yield window


KEYS = {"ArrowLeft": "\ue012", "ArrowUp": "\ue013", "ArrowRight": "\ue014", "ArrowDown": "\ue015"}
KEYS |= {"Tab": "\ue004", "Escape": "\ue00c"}
CHROMIUM = next(
    (p for n in ("chromium", "chromium-browser", "google-chrome") if (p := shutil.which(n))), None
)
DRIVER = shutil.which("chromedriver")
WATCH = """
window.problems = [];
addEventListener("error", (event) => problems.push(`error: ${event.message}`));
addEventListener("unhandledrejection", (event) => problems.push(`rejected: ${event.reason}`));
addEventListener("securitypolicyviolation", (event) => problems.push(`no ${event.blockedURI}`));
"""


class Browser:
    """One window.

    Args:
        driver: The address of chromedriver.
        profile: Where the browser keeps its own files.
    """

    def __init__(self, driver: str, profile: Path) -> None:
        arguments = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        options = {"args": [*arguments, f"--user-data-dir={profile}"], "binary": CHROMIUM}
        wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        found = _post(f"{driver}/session", {"capabilities": {"alwaysMatch": wanted}})
        self._session = f"{driver}/session/{found['sessionId']}"
        self.cdp("Page.addScriptToEvaluateOnNewDocument", source=WATCH)

    def _command(self, path: str, **content: Any) -> Any:
        return _post(f"{self._session}/{path}", content)

    def cdp(self, command: str, **params: Any) -> Any:
        """A command of the browser's own protocol."""
        return self._command("goog/cdp/execute", cmd=command, params=params)

    def size(self, width: int, height: int = 900, *, dark: bool = False) -> None:
        """The window's size in pixels, and the system's theme."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.cdp("Emulation.setDeviceMetricsOverride", **metrics)
        theme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.cdp("Emulation.setEmulatedMedia", features=[theme])

    def open(self, address: str) -> None:
        """Load a page; another hash of the same file is loaded anew."""
        self._command("url", url="about:blank")
        self._command("url", url=address)
        self._settle()

    def reload(self) -> None:
        """Load the same address again."""
        self._command("refresh")
        self._settle()

    def _settle(self) -> None:
        """Wait until what is measured on the page is drawn."""
        frame = "await new Promise((done) => requestAnimationFrame(done));"
        self.run(3 * frame)

    def run(self, script: str) -> Any:
        """The value a script returns; a promise is waited for."""
        body = f"return (async () => {{ {script} }})()"
        return self._command("execute/sync", script=body, args=[])

    def value(self, expression: str) -> Any:
        """The value of an expression."""
        return self.run(f"return {expression}")

    def press(self, *names: str) -> None:
        """Press keys, where the focus is."""
        pressed = [
            {"type": kind, "value": KEYS.get(name, name)}
            for name in names
            for kind in ("keyDown", "keyUp")
        ]
        actions = [{"type": "key", "id": "keys", "actions": pressed}]
        self._command("actions", actions=actions)

    def problems(self) -> list[str]:
        """Errors of scripts, and what the console holds of warnings and errors."""
        logged = self._command("se/log", type="browser")
        told = [each["message"] for each in logged if each["level"] in ("WARNING", "SEVERE")]
        return [*self.value("problems"), *told]

    def picture(self, *, whole: bool = True, height: float | None = None) -> bytes:
        """The page as PNG, or its upper part of this height."""
        part: dict[str, Any] = {}
        if height is not None:
            width = self.value("innerWidth")
            part = {"clip": {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}}
        shot = self.cdp("Page.captureScreenshot", captureBeyondViewport=whole, format="png", **part)
        return base64.b64decode(shot["data"])

    def close(self) -> None:
        """Close the window."""
        request = urllib.request.Request(self._session, method="DELETE")
        urllib.request.urlopen(request, timeout=30).close()


@contextmanager
def opened(place: Path) -> Iterator[Browser]:
    """A browser with its files in a directory."""
    assert DRIVER
    with subprocess.Popen([DRIVER, "--port=0"], stdout=subprocess.PIPE, text=True) as process:
        try:
            window = Browser(f"http://127.0.0.1:{_port(process)}", place / "profile")
            try:
                yield window
            finally:
                window.close()
        finally:
            process.terminate()


def _port(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    for line in process.stdout:
        if "was started successfully on port" in line:
            return line.split("on port")[1].strip(" .\n")
    raise RuntimeError("chromedriver did not start")


def _post(address: str, content: dict[str, Any]) -> Any:
    body = json.dumps(content).encode()
    request = urllib.request.Request(address, body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            return json.load(answer)["value"]
    except urllib.error.HTTPError as error:
        raise RuntimeError(json.load(error)["value"]["message"]) from error
