"""A real browser for the tests of pages: Chromium without a window, offline, and what it saw."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
MISSING = "there is no chromium with its driver; on Debian: apt-get install chromium chromium-driver"
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
    " --disable-component-update --disable-sync --disable-dev-shm-usage"
).split()
PHONE, DESKTOP = 360, 1200


class Browser:
    """One window, whose width and colour scheme can be set for each page."""

    def __init__(self, driver: Chrome) -> None:
        self.driver = driver

    def open(self, page: Path, width: int = DESKTOP, dark: bool = False) -> None:
        """Show a page from disk in a window of this width in CSS pixels."""
        self.resize(width)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
        for log in ("browser", "performance"):
            self.driver.get_log(log)  # what earlier pages said
        self.driver.get(page.resolve().as_uri())

    def resize(self, width: int, height: int = 900) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width <= PHONE}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    def run(self, script: str, *arguments: object) -> Any:
        """What a function body in JavaScript returns."""
        return self.driver.execute_script(script, *arguments)

    def complaints(self) -> list[str]:
        """What the page wrote on the console: errors, warnings, what its security policy refused."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def requests(self) -> list[str]:
        """The files and addresses that the page asked for, without data in it and without the browser's own pages."""
        events = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        asked = (e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent")
        return [url for url in asked if url.startswith(("file:", "http", "ws", "ftp"))]


@pytest.fixture(scope="module")
def window() -> Iterator[Browser]:
    """Chromium with a profile of its own, which disappears with it."""
    if not (CHROMIUM and DRIVER):
        pytest.skip(MISSING)
    with TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        options = ChromeOptions()
        options.binary_location = str(CHROMIUM)
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        driver = Chrome(options=options, service=Service(executable_path=str(DRIVER)))
        try:
            yield Browser(driver)
        finally:
            driver.quit()
