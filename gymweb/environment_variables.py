"""Read settings from environment variables. Invalid values raise a one-line error."""

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

import environ
from django.core.exceptions import ImproperlyConfigured

_WHOLE = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?")
_SWITCH = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
_PORTS = {"http": 80, "https": 443}
_POSTGRES = frozenset({"postgres", "postgresql", "pgsql", "psql"})
_REDIS = frozenset({"redis", "rediss"})
_MAIL_PORTS = {"smtp": 25, "smtp+tls": 587, "smtps": 465}
ESCAPES = "Escape @, / and # in passwords as %40, %2F and %23."
LONGEST = 40
"""Maximum characters of an invalid value quoted in a message."""


class SettingRefused(ImproperlyConfigured):
    """Raised for an invalid setting. The message names the setting and its valid values."""


class Environment:
    """Environment variables by name. Missing or empty ones have their default."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = values

    def text(self, name: str, *, default: str) -> str:
        return self._values.get(name, "").strip() or default

    def texts(self, name: str, *, default: Sequence[str] = ()) -> list[str]:
        """Return a comma-separated list."""
        given = [part.strip() for part in self._values.get(name, "").split(",")]
        return [part for part in given if part] or list(default)

    def origins(self, name: str) -> list[str]:
        """Return origins as browsers send them: lower case, without trailing slash and default port."""
        return [_origin(name, given) for given in self.texts(name)]

    def choice(self, name: str, *, default: str, choices: Sequence[str]) -> str:
        """Return one of the choices, ignoring case."""
        given = self.text(name, default=default)
        chosen = next((choice for choice in choices if choice.lower() == given.lower()), None)
        if chosen is None:
            raise SettingRefused(f"{name} is {_shown(given)}: give one of {', '.join(choices)}.")
        return chosen

    def switch(self, name: str, *, default: bool) -> bool:
        given = self.text(name, default="1" if default else "0")
        if given.lower() not in _SWITCH:
            raise SettingRefused(f"{name} is {_shown(given)}: give 1 or 0.")
        return _SWITCH[given.lower()]

    def whole(self, name: str, *, default: int, least: int, most: int) -> int:
        given = self.text(name, default=str(default))
        # Longer numbers are out of any range, and Python refuses to parse very long ones.
        if not _WHOLE.fullmatch(given) or len(given) > LONGEST or not least <= int(given) <= most:
            allowed = f"a whole number from {least} to {most}, such as {default}"
            raise SettingRefused(f"{name} is {_shown(given)}: give {allowed}.")
        return int(given)

    def number(self, name: str, *, default: float, least: float, most: float) -> float:
        given = self.text(name, default=str(default))
        if not _NUMBER.fullmatch(given) or not least <= float(given) <= most:
            allowed = f"a number from {least:g} to {most:g} in plain digits, such as {default:g}"
            raise SettingRefused(f"{name} is {_shown(given)}: give {allowed}.")
        return float(given)

    def telemetry(self, signal: str) -> bool:
        """Return True if OpenTelemetry's standard variables say to send this signal: `TRACES` or `METRICS`."""
        if self.text("OTEL_SDK_DISABLED", default="false").lower() == "true":
            return False
        if self.text(f"OTEL_{signal}_EXPORTER", default="otlp") == "none":
            return False
        endpoints = (f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
        return any(self.text(name, default="") for name in endpoints)

    def database(self, name: str, *, default: str) -> dict[str, Any]:
        """Return Django's database settings. The value is never quoted, because it may contain a password."""
        given = self.text(name, default=default)
        if not _names_database(given):
            raise SettingRefused(
                f"{name} is not a supported database URL. Give "
                f"postgres://NAME:PASSWORD@HOST:PORT/DATABASE or sqlite:////absolute/path. {ESCAPES}"
            )
        return dict(environ.Env.db_url_config(given))

    def redis(self, name: str) -> str:
        """Return the URL of Redis, or an empty string. The value is never quoted, because it may contain a password."""
        given = self.text(name, default="")
        if given and not _names_redis(given):
            raise SettingRefused(
                f"{name} is not a Redis URL. Give redis://:PASSWORD@HOST:PORT/0, rediss://… for TLS or "
                f"unix:///path. {ESCAPES}"
            )
        return given

    def email(self, name: str) -> dict[str, Any]:
        """Return Django's e-mail settings; an empty EMAIL_HOST means off. The value is never quoted: see `database`."""
        parts = _mail_parts(self.text(name, default="smtp:"))
        if parts is None:
            raise SettingRefused(
                f"{name} is not the URL of a mail server. Give smtp+tls://NAME:PASSWORD@HOST:587, smtps:// or smtp://. "
                f"{ESCAPES}"
            )
        return {
            "EMAIL_HOST": parts.hostname or "",
            "EMAIL_PORT": parts.port or _MAIL_PORTS[parts.scheme],
            "EMAIL_HOST_USER": unquote(parts.username or ""),
            "EMAIL_HOST_PASSWORD": unquote(parts.password or ""),
            "EMAIL_USE_TLS": parts.scheme == "smtp+tls",
            "EMAIL_USE_SSL": parts.scheme == "smtps",
        }


def _mail_parts(address: str) -> SplitResult | None:
    try:
        parts = urlsplit(address)
        _ = parts.port
    except ValueError:
        return None
    is_off = address == "smtp:"
    return parts if parts.scheme in _MAIL_PORTS and (is_off or parts.hostname) else None


def _origin(name: str, given: str) -> str:
    try:
        parts = urlsplit(given.lower())
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if parts.scheme not in _PORTS or not parts.hostname or parts.path.strip("/"):
        raise SettingRefused(
            f"{name}: {_shown(given)} is not an origin. Use scheme and host, for example https://gym.example.org."
        )
    host = parts.netloc.rpartition(":")[0] if port == _PORTS[parts.scheme] else parts.netloc
    return f"{parts.scheme}://{host}"


def _names_database(address: str) -> bool:
    if address == "sqlite://:memory:":
        return True
    try:
        parts = urlsplit(address)
        _ = parts.port
    except ValueError:
        return False
    named = len(parts.path) > 1
    if parts.scheme == "sqlite":
        return named and not parts.netloc
    return parts.scheme in _POSTGRES and (named or "service=" in parts.query)


def _names_redis(address: str) -> bool:
    try:
        parts = urlsplit(address)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return False
    if parts.scheme == "unix":
        return len(parts.path) > 1
    number = parts.path.strip("/")
    return parts.scheme in _REDIS and bool(host) and (not number or _WHOLE.fullmatch(number) is not None)


def _shown(value: str) -> str:
    return repr(value if len(value) <= LONGEST else f"{value[:LONGEST]}…")


_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


def read_commands(text: str) -> dict[str, dict[str, Any]]:
    """Parse `{"files": "mcp-files /data"}`, or with environment: `{"files": {"command": […], "environment": {…}}}`."""
    if not text.strip():
        return {}
    try:
        given = json.loads(text)
    except ValueError as error:
        raise SettingRefused(f"GYMWEB_MCP_COMMANDS is not JSON: {error}") from None
    if not isinstance(given, dict):
        raise SettingRefused("GYMWEB_MCP_COMMANDS must be an object of names and commands.")
    return {name: _read_command(name, command) for name, command in given.items()}


def _read_command(name: str, given: Any) -> dict[str, Any]:
    if not _NAME.fullmatch(name):
        told = "a name has up to 64 letters, digits, _ and -"
        raise SettingRefused(f"GYMWEB_MCP_COMMANDS: {name!r} is not a valid name: {told}.")
    whole = given if isinstance(given, dict) else {"command": given}
    command, environment = whole.get("command"), whole.get("environment", {})
    words = shlex.split(command) if isinstance(command, str) else command
    if not isinstance(words, list) or not words or not all(isinstance(word, str) and word for word in words):
        raise SettingRefused(f"GYMWEB_MCP_COMMANDS: {name}: the command must be text or a list of words.")
    texts = isinstance(environment, dict) and all(isinstance(value, str) for value in environment.values())
    if not texts or set(whole) - {"command", "environment"}:
        raise SettingRefused(f"GYMWEB_MCP_COMMANDS: {name}: the only other key is `environment`, an object of strings.")
    return {"command": words, "environment": environment}
