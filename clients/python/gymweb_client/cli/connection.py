"""Choose the server and key: from the command line, environment variables, or the profiles of `gymweb login`."""

import json
import os
import re
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

from gymweb_client.errors import GymWebError

LOCAL_URL = "http://127.0.0.1:8000"


class NotSignedIn(GymWebError):
    """Raised if no server, or no key for it, is configured."""


class WrongUsage(GymWebError):
    """Raised for contradictory options and unreadable files."""


class Connection(NamedTuple):
    url: str
    key: str


def config_path() -> Path:
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "gymweb" / "config.toml"


def environment_key() -> str:
    return os.environ.get("GYMWEB_TOKEN") or os.environ.get("GYMWEB_KEY", "")


def find_connection(url: str, profile: str) -> Connection | None:
    """Return the server and key to use, or None if none is given or stored. Raise NotSignedIn.

    A stored key is only sent to its own server.
    """
    config, token = _read_config(), environment_key()
    profiles = config["profiles"]
    if profile and url:
        raise WrongUsage("Give --url or --profile, not both.")
    if profile:
        if profile not in profiles:
            raise NotSignedIn(f"Unknown profile {profile}. Run: gymweb login --profile {profile}")
        return Connection(**profiles[profile])
    if url := url or os.environ.get("GYMWEB_URL", ""):
        url = check_url(url)
        stored = next((one["key"] for one in profiles.values() if one["url"] == url), "")
        return Connection(url, token or _demand_key(url, stored))
    default = config["default"]
    if default in profiles:
        return Connection(profiles[default]["url"], token or profiles[default]["key"])
    return Connection(LOCAL_URL, token) if token else None


def check_url(url: str) -> str:
    url = url.rstrip("/").removesuffix("/api/v1")
    if not re.fullmatch(r"https?://[^\s/?#\"\\]+(/[^\s?#\"\\]*)?", url):
        raise WrongUsage(f"{url} is not a server URL. Example: https://gym.example")
    return url


def store_profile(name: str, url: str, key: str) -> Path:
    """Store a profile, readable only by this user. The first one becomes the default."""
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name):
        raise WrongUsage(f"{name!r} is not a profile name. Use letters, digits, - and _.")
    if not re.fullmatch(r"[!-~]+", key):
        raise WrongUsage("Invalid API key: it is empty or contains characters that keys do not have.")
    config = _read_config()
    config["profiles"][name] = {"url": url, "key": key}
    config["default"] = config["default"] or name
    return _write_config(config)


def remove_profile(name: str) -> bool:
    config = _read_config()
    if config["profiles"].pop(name, None) is None:
        return False
    if config["default"] == name:
        config["default"] = next(iter(config["profiles"]), "")
    _write_config(config)
    return True


def choose_default(name: str) -> None:
    config = _read_config()
    if name not in config["profiles"]:
        raise WrongUsage(f"Unknown profile {name}. Run: gymweb login --profile {name}")
    _write_config({**config, "default": name})


def list_profiles() -> list[dict[str, Any]]:
    """Return name, address and whether it is the default of each profile, without the keys."""
    config = _read_config()
    return [
        {"profile": name, "url": one["url"], "default": name == config["default"]}
        for name, one in config["profiles"].items()
    ]


def _demand_key(url: str, key: str) -> str:
    if not key:
        raise NotSignedIn(f"No API key for {url} is stored. Run gymweb login --url {url}, or set GYMWEB_KEY.")
    return key


def _read_config() -> dict[str, Any]:
    path = config_path()
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        profiles = {name: Connection(**one)._asdict() for name, one in found.get("profiles", {}).items()}
    except (OSError, ValueError, TypeError, AttributeError) as wrong:
        raise WrongUsage(f"{path} cannot be read: {wrong}. Repair it, or delete it and sign in again.") from None
    return {"default": found.get("default", ""), "profiles": profiles}


def _write_config(config: dict[str, Any]) -> Path:
    lines = [f"default = {json.dumps(config['default'])}"]
    for name, one in config["profiles"].items():
        lines += ["", f"[profiles.{name}]", *(f"{key} = {json.dumps(value)}" for key, value in one.items())]
    path = config_path()
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    part = path.with_suffix(".part")
    part.unlink(missing_ok=True)
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write("\n".join([*lines, ""]))
    return part.replace(path)
