"""Reads a rendered page as a browser would, and says what a strict Content-Security-Policy would refuse."""

from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = {"meta", "link", "input", "img", "br", "hr", "path", "rect", "circle", "line"}


@dataclass
class Element:
    tag: str
    attributes: dict[str, str]
    text: str = ""


@dataclass
class Page(HTMLParser):
    elements: list[Element] = field(default_factory=list)
    open: list[Element] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, {name: value or "" for name, value in attrs})
        self.elements.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(Element(tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        while self.open and self.open.pop().tag != tag:
            pass

    def handle_data(self, data: str) -> None:
        for element in self.open:
            element.text += data

    def all(self, tag: str) -> list[Element]:
        return [element for element in self.elements if element.tag == tag]


def read(html: str) -> Page:
    page = Page()
    page.feed(html)
    return page


def faults(html: str) -> list[str]:
    """Inline style, handlers and scripts; htmx that evaluates; links that only work with JavaScript; repeated ids."""
    page, found, ids = read(html), [], set()
    for element in page.elements:
        attributes = element.attributes
        found += [f"{element.tag} {name}" for name in attributes if name == "style" or name.startswith(("on", "hx-on"))]
        if element.tag == "style" or (element.tag == "script" and not attributes.get("src")):
            found.append(f"inline <{element.tag}>")
        if element.tag == "a" and "hx-get" in attributes and not attributes.get("href"):
            found.append(f"a link without href: {attributes['hx-get']}")
        if element.tag == "form" and "hx-post" in attributes and not attributes.get("action"):
            found.append(f"a form without action: {attributes['hx-post']}")
        if "[" in attributes.get("hx-trigger", "") or ("hx-vals" in attributes and "js:" in attributes["hx-vals"]):
            found.append(f"{element.tag} evaluates")
        if attributes.get("href", "").lower().startswith("javascript:"):
            found.append("a javascript: address")
        if "id" in attributes:
            found += [f"id {attributes['id']} twice"] if attributes["id"] in ids else []
            ids.add(attributes["id"])
    labelled = {label.attributes.get("for") for label in page.all("label")}
    for control in [*page.all("input"), *page.all("select"), *page.all("textarea")]:
        quiet = control.attributes.get("type") in {"hidden", "submit", "radio"}
        if not quiet and control.attributes.get("id") not in labelled and "aria-label" not in control.attributes:
            found.append(f"{control.tag} {control.attributes.get('name')} without a label")
    return found
