"""Import drf-spectacular without Django's test framework, which takes 3 MB of each web process."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any


@contextmanager
def import_request_factory_lazily() -> Iterator[None]:
    """Let drf-spectacular import `APIRequestFactory` at its first call: only building the schema needs it."""
    stub = ModuleType("rest_framework.test")
    stub.APIRequestFactory = _make_request_factory  # type: ignore[attr-defined]
    is_needed = sys.modules.setdefault(stub.__name__, stub) is stub
    try:
        yield
    finally:
        if is_needed:
            del sys.modules[stub.__name__]


def _make_request_factory() -> Any:
    from rest_framework.test import APIRequestFactory

    return APIRequestFactory()
