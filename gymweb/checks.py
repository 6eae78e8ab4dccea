"""System checks of the database, the data folder, the secret key and single sign-on."""

import sqlite3
from collections.abc import Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning
from django.db import DatabaseError, NotSupportedError, OperationalError, connection, connections

from apps.accounts.models import Role
from apps.accounts.telemetry.exporters import MISSING, is_installed
from gymweb.folders import who_else_reads
from gymweb.migration_state import find_mismatch

SQLITE = (3, 37)
POSTGRES = 14


def check_sqlite(**kwargs: Any) -> list[CheckMessage]:
    if connection.vendor != "sqlite" or sqlite3.sqlite_version_info >= SQLITE:
        return []
    return [
        Error(
            f"SQLite {sqlite3.sqlite_version} is too old: GymWeb needs {SQLITE[0]}.{SQLITE[1]} or newer.",
            hint="Use a newer Python, or PostgreSQL with GYMWEB_DATABASE_URL.",
            id="gymweb.E001",
        )
    ]


def check_postgres(*, databases: Sequence[str] | None = None, **kwargs: Any) -> list[CheckMessage]:
    """Check the version of PostgreSQL. It connects, so it only runs with `migrate` and at process start."""
    return [problem for alias in databases or () for problem in _check_server(connections[alias])]


def _check_server(server: Any) -> list[CheckMessage]:
    if server.vendor != "postgresql":
        return []
    try:
        server.ensure_connection()
        version = server.pg_version // 10_000
    except NotSupportedError as problem:  # Django's own lower bound
        version = str(problem)
    except OperationalError:
        return []  # The code that needs the database will report it.
    if isinstance(version, int) and version >= POSTGRES:
        return []
    return [
        Error(
            f"PostgreSQL is too old: GymWeb needs {POSTGRES} or newer, and this is {version}.",
            hint="Upgrade the PostgreSQL server.",
            id="gymweb.E002",
        )
    ]


def check_tables(**kwargs: Any) -> list[CheckMessage]:
    """Check at process start that migrations are applied, instead of failing later."""
    try:
        problem = find_mismatch()
    except DatabaseError:
        return []  # The code that needs the database will report it.
    if not problem:
        return []
    what, _, remedy = problem.partition(": ")
    return [
        Error(
            f"GymWeb does not start on this database: {what}.",
            hint=f"{remedy[:1].upper()}{remedy[1:]}.",
            id="gymweb.E003",
        )
    ]


def check_secret_key(**kwargs: Any) -> list[CheckMessage]:
    if settings.SECRET_KEY_GIVEN or connection.vendor == "sqlite":
        return []
    return [
        Warning(
            "The secret key was generated on this machine. Processes on other machines have different keys, so "
            "sessions and stored API keys do not work there.",
            hint="Give all processes the same GYMWEB_SECRET_KEY.",
            id="gymweb.W001",
        )
    ]


def check_folder(**kwargs: Any) -> list[CheckMessage]:
    folder = Path(settings.VAR_DIR)
    who = who_else_reads(folder)
    if not who:
        return []
    return [
        Warning(
            f"{folder} is readable by {who}, including tasks, rollouts and uploads.",
            hint=f"Run chmod 0700 {folder}, or set GYMWEB_VAR to another folder.",
            id="gymweb.W002",
        )
    ]


def check_telemetry(**kwargs: Any) -> list[CheckMessage]:
    """Warn if OTEL_EXPORTER_OTLP_ENDPOINT asks for traces and metrics that this installation cannot send."""
    if not (settings.SEND_SPANS or settings.SEND_METRICS):
        return []
    if not is_installed():
        return [Warning(MISSING, hint="Run pip install -r requirements-otel.txt.", id="gymweb.W003")]
    if settings.TELEMETRY_PROTOCOL != "http/protobuf":
        return [
            Warning(
                f"OTEL_EXPORTER_OTLP_PROTOCOL is {settings.TELEMETRY_PROTOCOL!r}, but GymWeb sends http/protobuf.",
                hint="Unset it, and give the receiver's HTTP port, often 4318, in OTEL_EXPORTER_OTLP_ENDPOINT.",
                id="gymweb.W004",
            )
        ]
    return []


def check_single_sign_on(**kwargs: Any) -> list[CheckMessage]:
    """Check the combination of the settings. Each value by itself is checked when it is read."""
    if not settings.OIDC.issuer:
        return _check_unused_settings()
    problems: list[CheckMessage] = []
    if not settings.OIDC.client_id:
        problems.append(
            Error(
                "GYMWEB_OIDC_ISSUER is set, but GYMWEB_OIDC_CLIENT_ID is not.",
                hint="Register GymWeb at the provider and give the client ID that it shows.",
                id="gymweb.E004",
            )
        )
    unknown = sorted(set(settings.OIDC.roles.values()) - set(Role.values))
    if not settings.OIDC.roles or unknown:
        wrong = f"names the unknown role {unknown[0]!r}" if unknown else "maps no group to a role"
        problems.append(
            Error(
                f"GYMWEB_OIDC_ROLES {wrong}.",
                hint=f'Give JSON such as {{"ml-team": "engineer"}}. Roles: {", ".join(Role.values)}.',
                id="gymweb.E005",
            )
        )
    parts = urlsplit(settings.OIDC.issuer)
    if parts.scheme != "https" and not _is_loopback(parts.hostname or ""):
        problems.append(
            Error(
                f"GYMWEB_OIDC_ISSUER is {settings.OIDC.issuer}, without TLS: replies of the provider can be forged.",
                hint="Use https. Only a provider on this machine may use http.",
                id="gymweb.E006",
            )
        )
    return problems


def _check_unused_settings() -> list[CheckMessage]:
    if not settings.OIDC.client_id and not settings.OIDC.roles:
        return []
    return [
        Warning(
            "Single sign-on is off: GYMWEB_OIDC_CLIENT_ID or GYMWEB_OIDC_ROLES is set, but GYMWEB_OIDC_ISSUER is not.",
            hint="Set GYMWEB_OIDC_ISSUER to the URL of the provider, or remove the other settings.",
            id="gymweb.W005",
        )
    ]


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
