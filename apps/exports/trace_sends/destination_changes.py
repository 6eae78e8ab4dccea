"""Create, change and delete trace destinations."""

import re
from collections.abc import Mapping

import msgspec
from django.core.exceptions import ValidationError
from django.db import transaction
from yarl import URL

from apps.accounts.audit_log import describe, record
from apps.accounts.models import User
from apps.exports.models import TraceDestination
from apps.gym.redaction.shortening import cut
from apps.policies.row_checks import check_row, find_url_problem, lock_stored, save_row
from apps.policies.secrets import decrypt_secret, encrypt_secret

MAX_URL = 2_000
MAX_HEADERS = 20
MAX_HEADER_TEXT = 8_000
_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_VALUE = re.compile(r"[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?")
_OWN = frozenset({"host", "connection", "content-length", "content-type", "content-encoding", "transfer-encoding"})


def save_destination(
    *, destination: TraceDestination, url: str | None, headers: Mapping[str, str] | None, user: User | None = None
) -> TraceDestination:
    """Create or change a destination. With None, the stored URL or headers are kept. Raise ValidationError by field.

    A changed URL needs the headers again, so that no stored token reaches another host.
    """
    url = url.strip() if url is not None else None
    with transaction.atomic():
        stored = lock_stored(destination)
        check_row(destination, _find_problems(stored, url, headers))
        if url is not None:
            destination.url_encrypted, destination.url_hint = encrypt_secret(url), _hint(url)
        if headers is not None:
            destination.headers_encrypted = encrypt_secret(msgspec.json.encode(dict(headers)).decode())
            destination.header_names = sorted(headers)
        if stored is None:
            destination.created_by = user
        save_row(
            destination,
            stored,
            user=user,
            noun="trace_destination",
            target=destination.name,
            address=destination.url_hint,
            headers_changed=headers is not None,
        )
    return destination


def delete_destination(*, destination: TraceDestination, user: User | None = None) -> None:
    """Delete a destination with the log of its sends. Unfinished sends stop."""
    with transaction.atomic():
        target = destination.name
        record(user=user, action="trace_destination.delete", target=target, before=describe(destination))
        destination.delete()


def read_headers(text: str) -> dict[str, str]:
    """Return the headers in lines of `Name: value`. Raise ValidationError if a name is given twice.

    Lines without a colon have an empty value, which is invalid.
    """
    headers: dict[str, str] = {}
    for line in text.splitlines():
        name, _, value = (part.strip() for part in line.partition(":"))
        if _NAME.fullmatch(name) and name.lower() in map(str.lower, headers):
            raise ValidationError(_given_twice(name))
        if line.strip():
            headers[name] = value
    return headers


def open_destination(destination: TraceDestination) -> tuple[str, dict[str, str]]:
    """Return the URL and the headers. Raise SecretUnreadable."""
    url = decrypt_secret(destination.url_encrypted)
    if not destination.headers_encrypted:
        return url, {}
    return url, msgspec.json.decode(decrypt_secret(destination.headers_encrypted), type=dict[str, str])


def _find_problems(
    stored: TraceDestination | None, url: str | None, headers: Mapping[str, str] | None
) -> dict[str, list[str]]:
    found = {"url": "", "headers": _header_problem(headers or {})}
    if url is None and stored is None:
        found["url"] = "Enter a URL."
    elif url is not None:
        found["url"] = _url_problem(url)
        if not found["url"] and headers is None and stored is not None and stored.header_names:
            found["headers"] = "The URL has changed. Enter the headers again."
    return {field: [problem] for field, problem in found.items() if problem}


def _url_problem(url: str) -> str:
    if len(url) > MAX_URL:
        return f"Give at most {MAX_URL:,} characters."
    return find_url_problem(url)


def _header_problem(headers: Mapping[str, str]) -> str:
    if len(headers) > MAX_HEADERS or sum(map(len, [*headers, *headers.values()])) > MAX_HEADER_TEXT:
        return f"Give at most {MAX_HEADERS} headers with {MAX_HEADER_TEXT:,} characters in total."
    seen: set[str] = set()
    for number, (name, value) in enumerate(headers.items(), start=1):
        # The text is not quoted, because it may be a token without a name.
        if not _NAME.fullmatch(name):
            return f"Header {number} has no valid name. Write one header per line, as “Name: value”."
        if not _VALUE.fullmatch(value):
            return f"The header {name} needs a value of printable ASCII characters."
        if name.lower() in _OWN:
            return f"GymWeb sets the header {name} itself. Remove it."
        if name.lower() in seen:
            return _given_twice(name)
        seen.add(name.lower())
    return ""


def _given_twice(name: str) -> str:
    return f"The header {name} is given twice. Remove one."


def _hint(url: str) -> str:
    return cut(f"{URL(url).origin()}/…", 300)
