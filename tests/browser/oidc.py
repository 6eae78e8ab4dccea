"""A real OpenID Connect provider, from npm, for the browser tests of single sign-on."""

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import copy, which
from typing import Any

import pytest

from scripts.servers import free_port
from tests.deadlines import DEADLINE
from tests.walk.processes import await_port

FOLDER = Path(__file__).parent / "oidc_provider"
ROLES = {"gym-admins": "admin", "gym-engineers": "engineer", "gym-annotators": "annotator"}


class Provider:
    """The provider, its accounts, and the settings with which GymWeb uses it."""

    def __init__(self, port: int, gymweb_port: int, accounts: Path) -> None:
        self.issuer, self.gymweb_port, self._accounts = f"http://127.0.0.1:{port}", gymweb_port, accounts

    @property
    def settings(self) -> dict[str, str]:
        return {
            "GYMWEB_OIDC_ISSUER": self.issuer,
            "GYMWEB_OIDC_CLIENT_ID": "gymweb",
            "GYMWEB_OIDC_CLIENT_SECRET": "a-secret-of-the-test",
            "GYMWEB_OIDC_NAME": "Test login",
            "GYMWEB_OIDC_ROLES": json.dumps(ROLES),
        }

    def set_account(self, name: str, *groups: str, **claims: Any) -> None:
        accounts = json.loads(self._accounts.read_text())
        accounts[name] = {"preferred_username": name, "groups": list(groups), **claims}
        self._accounts.write_text(json.dumps(accounts))


def install(folder: Path) -> None:
    """Install the provider into the folder, or skip the test where npm cannot."""
    npm = which("npm")
    if npm is None or which("node") is None:
        pytest.skip("single sign-on needs Node and npm")
    for name in ("package.json", "package-lock.json", "server.mjs"):
        copy(FOLDER / name, folder)
    words = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
    done = subprocess.run(words, check=False, cwd=folder, capture_output=True, text=True, timeout=DEADLINE)
    if done.returncode:
        pytest.skip(f"npm cannot install oidc-provider: {done.stderr[-300:]}")


@contextmanager
def provider_of(folder: Path) -> Iterator[Provider]:
    install(folder)
    port, gymweb_port, accounts = free_port(), free_port(), folder / "accounts.json"
    accounts.write_text("{}")
    redirect = f"http://127.0.0.1:{gymweb_port}/sign-in/oidc/callback/"
    child = subprocess.Popen(
        ["node", "server.mjs", str(port), redirect, str(accounts)],
        cwd=folder,
        env={**os.environ, "NODE_NO_WARNINGS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        await_port(child, port)
        yield Provider(port, gymweb_port, accounts)
    finally:
        child.terminate()
        child.wait(timeout=DEADLINE)
