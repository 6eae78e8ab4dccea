"""What stands between a page and its server: a wire that a test cuts, and mends, while the page is open."""

from collections.abc import Callable

from playwright.sync_api import Page, Route

Answer = Callable[[Route], None]


class Wire:
    """Carries the requests whose address matches a pattern, from before the page opens until it closes.

    A route that is laid on an open page does not hold at once: Chromium answers `Fetch.enable` before the page's own
    process has heard of it, and keys travel another way, so that what a key sends may pass (3 of 150 on a busy
    machine). One that is laid first, and changes what it does, has no such gap; nor leaves taking it away a request
    behind.
    """

    def __init__(self, page: Page, pattern: str) -> None:
        self._answer: Answer = Route.continue_
        page.route(pattern, self._carry)

    def _carry(self, route: Route) -> None:
        self._answer(route)

    def answers(self, answer: Answer) -> None:
        self._answer = answer

    def cut(self) -> None:
        self._answer = Route.abort

    def mend(self) -> None:
        self._answer = Route.continue_
