"""Chromium, headless, for tests: a tab with what it has said and asked for, and axe's judgement of it."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

#: Chromium asks its maker's hosts at every start, unless it is told not to.
_QUIET = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip
_NAMES = ("chromium", "chromium-browser", "google-chrome")
#: Where pictures of the views are put, for whoever wants to look at them.
PICTURES = os.environ.get("PAGE_PICTURES")


class Tab:
    """One tab at one address.

    Attributes:
        messages: what the browser has reported: errors of scripts, and what the page's policy has refused.
        dialogs: that scripts have opened.
        requests: the addresses that were asked for.
    """

    def __init__(self, context: Any, url: str) -> None:
        self.url = url
        self.messages: list[str] = []
        self.dialogs: list[str] = []
        self.requests: list[str] = []
        self._context = context
        self._page = context.new_page()
        self._page.on("console", lambda message: self.messages.append(message.text))
        self._page.on("pageerror", lambda error: self.messages.append(str(error)))
        self._page.on("request", lambda request: self.requests.append(request.url))
        self._page.on("dialog", self._dismiss)
        self._page.goto(url)

    def _dismiss(self, dialog: Any) -> None:
        self.dialogs.append(dialog.message)
        dialog.dismiss()

    def wait_for(self, selector: str, *, timeout_s: float = 20) -> None:
        self._page.locator(selector).first.wait_for(timeout=timeout_s * 1000)

    def texts(self, selector: str) -> list[str]:
        return [" ".join(text.split()) for text in self._page.locator(selector).all_inner_texts()]

    def text(self, selector: str) -> str:
        return self.texts(selector)[0]

    def title(self) -> str:
        return str(self._page.title())

    def attribute(self, selector: str, name: str) -> str | None:
        return self._page.locator(selector).first.get_attribute(name)  # type: ignore[no-any-return]

    def is_hidden(self, selector: str) -> bool:
        return bool(self._page.locator(selector).is_hidden())

    def is_visible(self, selector: str) -> bool:
        return bool(self._page.locator(selector).is_visible())

    def click(self, selector: str) -> None:
        self._page.locator(selector).first.click()

    def fill(self, selector: str, text: str) -> None:
        self._page.locator(selector).fill(text)

    def press(self, key: str) -> None:
        self._page.keyboard.press(key)

    def type(self, text: str) -> None:
        self._page.keyboard.type(text)

    def wheel(self, pixels: int) -> None:
        self._page.mouse.move(600, 500)
        self._page.mouse.wheel(0, pixels)

    def pause(self, ms: int) -> None:
        self._page.wait_for_timeout(ms)

    def evaluate(self, script: str) -> Any:
        return self._page.evaluate(script)

    def violations(self) -> list[str]:
        """What axe finds against WCAG 2.2 A and AA, and its own best practices."""
        from axe_playwright_python.sync_playwright import Axe

        # The page's policy would refuse axe's own script: it runs from outside of the page.
        response = Axe().run(self._page).response
        undecided = [each for each in response["incomplete"] if each["id"] == "color-contrast"]
        return [
            f"{each['id']}: {node['html']} {node['failureSummary']}"
            for each in [*response["violations"], *undecided]
            for node in each["nodes"]
            # What is scrolled half out of its panel is judged where it is whole, and the text beside a dot where there is none.
            if not any(each in node["failureSummary"] for each in ("obscured", "pseudo element"))
        ]

    @contextmanager
    def measured_tasks(self) -> Iterator[list[float]]:
        """Yield a list that has, after the block, the milliseconds of CPU of each task of the page's main thread: a busy machine
        makes tasks longer, and not these."""
        chromium, tasks = self._context.browser, list[float]()
        chromium.start_tracing(page=self._page, categories=["toplevel", "devtools.timeline"])
        yield tasks
        events = json.loads(chromium.stop_tracing())["traceEvents"]
        main = {
            (event["pid"], event["tid"])
            for event in events
            if event["name"] == "thread_name" and event["args"]["name"] == "CrRendererMain"
        }
        tasks += [
            event["tdur"] / 1000
            for event in events
            if event["name"].endswith("RunTask") and "tdur" in event and (event["pid"], event["tid"]) in main
        ]

    def screenshot(self) -> bytes:
        return bytes(self._page.screenshot())

    def picture(self, name: str) -> None:
        if PICTURES:
            Path(PICTURES).mkdir(parents=True, exist_ok=True)
            self._page.screenshot(path=f"{PICTURES}/{name}.png", full_page=True)

    def close(self) -> None:
        self._context.close()


class Browser:
    """A running Chromium."""

    def __init__(self, chromium: Any) -> None:
        self._chromium = chromium

    def open(self, url: str, *, size: tuple[int, int] = (1280, 800), scheme: str = "light") -> Tab:
        context = self._chromium.new_context(
            viewport={"width": size[0], "height": size[1]}, color_scheme=scheme, reduced_motion="reduce", locale="en-GB",
            permissions=["clipboard-read", "clipboard-write"],
        )  # fmt: skip
        return Tab(context, url)


@contextmanager
def open_browser() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    path = next(filter(None, map(shutil.which, _NAMES)), None)
    assert path is not None, "make page installs Debian's package chromium"
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=list(_QUIET))
        yield Browser(chromium)
        chromium.close()
