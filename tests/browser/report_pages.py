"""An HTML report in a browser: actions wait until the page has drawn what they lead to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import Select, WebDriverWait

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from selenium.webdriver import Chrome
    from selenium.webdriver.remote.webelement import WebElement

WATCH = """
window.violations = []
document.addEventListener("securitypolicyviolation", event => window.violations.push(event.violatedDirective))
window.addEventListener("error", event => window.violations.push(event.message))
window.addEventListener("unhandledrejection", event => window.violations.push(String(event.reason)))
"""
PATIENCE_S = 60


class ReportPage:
    """A report that is open.

    Args:
        browser: Shows it.
        path: The file.
        state: What stands behind the # of its address.
    """

    def __init__(self, browser: Chrome, path: Path, state: str = "") -> None:
        self.browser = browser
        self.path = path
        self._watch: str = browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": WATCH})[
            "identifier"
        ]
        self.open(state)

    def close(self) -> None:
        """Leave the report, and check that it did nothing that it may not."""
        found = self.complaints()
        self.browser.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", {"identifier": self._watch})
        self.browser.get("about:blank")
        assert found == []

    def complaints(self) -> list[Any]:
        """Return what the page violated, what it requested, and what the browser logged."""
        requests = self.run("return performance.getEntriesByType('resource').map(entry => entry.name)")
        logged = [entry["message"] for entry in self.browser.get_log("browser")]  # type: ignore[no-untyped-call]  # of selenium
        return [*self.run("return window.violations"), *requests, *logged]

    def open(self, state: str = "") -> None:
        """Open the report as a link from elsewhere does."""
        self.browser.get("about:blank")
        self.browser.get(self.path.as_uri() + (f"#{state}" if state else ""))
        self._wait("")

    def do(self, action: Callable[[], object]) -> None:
        """Act, and wait until the page is drawn again."""
        before = self.ready
        action()
        self._wait(before)

    @property
    def ready(self) -> str:
        """The number of the last drawing."""
        return str(self.run("return document.documentElement.dataset.ready || ''"))

    @property
    def state(self) -> str:
        """What stands behind the # of the address."""
        return str(self.run("return location.hash.slice(1)"))

    @property
    def counter(self) -> str:
        """How many cases are found."""
        return self.one("#counter").text

    @property
    def cases(self) -> list[str]:
        """The ids of the cases on the page of the list."""
        return [str(text) for text in self.run(
            "return [...document.querySelectorAll('#case-lines .case-link')].map(link => link.textContent)"
        )]  # fmt: skip

    @property
    def opened(self) -> str:
        """The heading of the open case; empty where the list is shown."""
        return str(
            self.run(
                "const c = document.getElementById('case'); return c.hidden ? '' : c.querySelector('h2').textContent"
            )
        )

    @property
    def focused(self) -> str:
        """The text of the element with the focus."""
        return str(self.run("return document.activeElement.textContent"))

    def one(self, selector: str) -> WebElement:
        """Return an element."""
        return self.browser.find_element(By.CSS_SELECTOR, selector)

    def click(self, selector: str) -> None:
        """Click on an element that leads to something else."""
        self.do(self.one(selector).click)

    def choose(self, selector: str, text: str) -> None:
        """Choose an option."""
        self.do(lambda: Select(self.one(selector)).select_by_visible_text(text))

    def press(self, *keys: str) -> None:
        """Press keys that draw nothing anew, at the element with the focus."""
        ActionChains(self.browser).send_keys(*keys).perform()

    def enter(self, selector: str, text: str) -> None:
        """Replace the text of an input, and apply it."""
        field = self.one(selector)
        field.clear()
        self.do(lambda: field.send_keys(text, "\n"))

    def run(self, code: str, *arguments: Any) -> Any:
        """Run code in the page."""
        return self.browser.execute_script(code, *arguments)

    def _wait(self, before: str) -> None:
        WebDriverWait(self.browser, PATIENCE_S, 0.02).until(lambda _: self.ready not in ("", before))
