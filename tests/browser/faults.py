"""What goes wrong on a page, said by its browser."""

from playwright.sync_api import Page

_BROKEN_OFF = ("htmx:afterRequest,", "htmx:sendAbort,")
"""htmx says so of a request that a newer one replaced, or that the page was left in; of one that failed it says more,
by another name."""


def faults_of(page: Page) -> list[str]:
    """Grows with what scripts throw and with what is said on the console as an error."""
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(f"threw: {error}"))
    page.on(
        "console",
        lambda said: (
            wrong.append(f"console: {said.text}")
            if said.type == "error" and not said.text.startswith(_BROKEN_OFF)
            else None
        ),
    )
    return wrong
