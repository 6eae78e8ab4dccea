"""Every route of the URL configuration, with the rule it carries: what the walk over URL × role × method goes by."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

from django.urls import Resolver404, URLPattern, URLResolver, get_resolver, resolve
from django.utils.regex_helper import normalize

from apps.accounts.permissions import Permission
from gymweb.asgi import application
from gymweb.sockets import SocketRouter

METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]
# Nothing exists under these, so a walk changes nothing: who may pass is told "not found".
SAMPLES = ["no-such-thing", "999999", "00000000-0000-0000-0000-000000000000", "other", "sample.txt"]


@dataclass(frozen=True)
class Route:
    path: str
    view: Callable[..., Any]

    @property
    def is_api(self) -> bool:
        return hasattr(self.view, "cls")

    @property
    def rules(self) -> dict[str, Permission | None]:
        """HTTP method → permission; a method that the route answers without a rule has None."""
        if not self.is_api:
            permissions = dict(getattr(self.view, "permissions", {}))
        elif hasattr(self.view, "actions"):
            table = self.view.cls.permissions
            permissions = {method.upper(): table.get(action) for method, action in self.view.actions.items()}
        else:
            table = getattr(self.view.cls, "permissions", {})
            handled = [method for method in METHODS if hasattr(self.view.cls, method.lower())]
            permissions = {method: table.get(method.lower()) for method in {*handled, *(m.upper() for m in table)}}
        if "GET" in permissions:
            permissions["HEAD"] = permissions["GET"]
        return permissions


def every_route() -> list[Route]:
    return [
        Route(_sample_path(prefix, pattern), pattern.callback) for prefix, pattern in _walk(get_resolver(), ("^/",))
    ]


def _walk(resolver: URLResolver, prefix: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], URLPattern]]:
    for pattern in resolver.url_patterns:
        if isinstance(pattern, URLResolver):
            yield from _walk(pattern, (*prefix, pattern.pattern.regex.pattern))
        else:
            yield prefix, pattern


def _sample_path(prefix: tuple[str, ...], pattern: URLPattern) -> str:
    """An address that resolves to this route and to no route before it."""
    regex = "".join(part.removeprefix("^") for part in (*prefix, pattern.pattern.regex.pattern))
    for form, names in normalize(regex):
        for values in product(SAMPLES, repeat=len(names)):
            path = form % dict(zip(names, values, strict=True))
            match = _resolve(path)
            if match is not None and match.func is pattern.callback:
                return path
    # A catch-all matches what nothing else does.
    path = regex.removesuffix("$") + "no-such-thing"
    match = _resolve(path)
    assert match is not None and match.func is pattern.callback, f"no address leads to {regex}: is it shadowed?"
    return path


def _resolve(path: str) -> Any:
    try:
        return resolve(path)
    except Resolver404:
        return None


def every_socket() -> list[str]:
    """An address for every route of the ASGI application's sockets."""
    inner = application.application_mapping["websocket"]
    # Origin check and authentication wrap the router.
    while not isinstance(inner, SocketRouter):
        inner = getattr(inner, "application", None) or inner.inner
    return [_sample_socket(pattern) for pattern in inner.routes]


def _sample_socket(pattern: URLPattern) -> str:
    regex = pattern.pattern.regex.pattern.removeprefix("^")
    for form, names in normalize(regex):
        for values in product(SAMPLES, repeat=len(names)):
            path = form % dict(zip(names, values, strict=True))
            if pattern.pattern.match(path):
                return f"/{path}"
    raise AssertionError(f"no address leads to the socket {regex}")
