"""A browser without a window, for what people look at."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    """Return a Chromium that keeps what it stores in a temporary folder and dials nothing."""
    driver, program = shutil.which("chromedriver"), shutil.which("chromium")
    assert driver is not None, "install Chromium's chromedriver, so that it is on PATH"
    assert program is not None, "install Chromium, so that it is on PATH"
    profile: Path = tmp_path_factory.mktemp("profile")
    options = ChromeOptions()
    options.binary_location = program
    for argument in (
        "--headless=new",
        "--no-sandbox",  # which root cannot have
        "--disable-dev-shm-usage",
        "--no-first-run",
        "--disable-background-networking",
        "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
        f"--user-data-dir={profile}",
    ):
        options.add_argument(argument)
    chrome = Chrome(options=options, service=Service(driver))
    chrome.set_script_timeout(120)
    try:
        yield chrome
    finally:
        chrome.quit()
