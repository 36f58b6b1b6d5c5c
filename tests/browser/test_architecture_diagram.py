"""The diagram of docs/architecture.md, as a browser draws it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

pytestmark = pytest.mark.browser
DIAGRAM = Path(__file__).resolve().parents[2] / "docs" / "architecture.svg"
CUT_OFF = """
const whole = document.documentElement.getBoundingClientRect()
const boxes = [...document.querySelectorAll("rect")].map(rect => rect.getBoundingClientRect())
const holds = (box, text) => box.left <= text.left && text.right <= box.right
const around = (box, text) => box.top <= text.top && text.bottom <= box.bottom
const texts = [...document.querySelectorAll("text")]
return [texts.length, texts.filter(text => {
  const place = text.getBoundingClientRect(), middle = (place.left + place.right) / 2
  return !holds(whole, place) || !around(whole, place)
    || boxes.some(box => around(box, place) && box.left < middle && middle < box.right && !holds(box, place))
}).map(text => text.textContent)]
"""


def test_no_text_is_cut_off(browser: Chrome) -> None:
    """Every text lies in the picture, and those in a box between its sides."""
    browser.get(DIAGRAM.as_uri())
    found: list[Any] = browser.execute_script(CUT_OFF)
    count, cut_off = found
    assert count > 15
    assert cut_off == []
