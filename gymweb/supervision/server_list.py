"""The servers of a configuration: which processes to start where, and what each is told about the others."""

import socket
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from apps.gym.gymconfig.descriptions import AGENTS, ENVIRONMENT_SERVERS, MODELS, SERVERS, Description
from apps.gym.gymconfig.merging import MISSING, ConfigRefused, Problem
from apps.gym.gymconfig.references import Values
from apps.gym.traces.items import as_object
from gymweb.supervision.config_files import KINDS, find_below

LABELS = {SERVERS: "resource server", AGENTS: "agent", MODELS: "model", ENVIRONMENT_SERVERS: "environment server"}
_HEAD_PORT = 11000
"""Port of the head server in NeMo Gym. Its servers require the address; GymWeb starts no head server."""


class Server(NamedTuple):
    """A server. `folder` is None for a URL, which is only watched."""

    name: str
    kind: str
    url: str
    folder: Path | None = None
    entrypoint: str = ""


class ServerList:
    """The servers, and the configuration that they share.

    `known_ports` has the ports of the last run: a server keeps its port, so that planned rollouts still find it.
    """

    def __init__(
        self,
        description: Description,
        values: Values,
        *,
        addresses: Mapping[str, str],
        roots: Sequence[Path],
        known_ports: Mapping[str, int],
    ) -> None:
        self._values, self._addresses, self._roots = values, addresses, roots
        self._base_urls = {model.key: model.base_urls[0] for model in description.models}
        self._known, self._taken = known_ports, set[int]()
        self.tree: dict[str, Any] = {name: deepcopy(values.raw(name)) for name in values.names}
        self.host = values.text("default_host") or "127.0.0.1"
        self._fill_defaults()
        # Fixed ports first, so that no free port takes one of them.
        blocks = sorted(self._blocks(), key=lambda block: not block[2].get("port"))
        found = {name: self._plan(name, kind, block, key) for name, kind, block, key in blocks}
        self.servers = [found[name] for name in self.tree if name in found]
        for name in addresses.keys() - found.keys():
            raise ConfigRefused(Problem(f"--address {name}", "", "no server has this name"))

    def ports(self) -> dict[str, int]:
        """Return the ports of this run, and those of servers that other configurations name."""
        own = {server.name: urlsplit(server.url).port or 0 for server in self.servers if server.folder}
        return {**self._known, **own}

    def tree_for(self, server: Server, web: tuple[str, int]) -> dict[str, Any]:
        """Return the configuration for a server: agents call their models at GymWeb, which records the calls."""
        if server.kind not in (AGENTS, ENVIRONMENT_SERVERS):
            return self.tree
        tree = deepcopy(self.tree)
        for block in (block for name in tree for block in as_object(as_object(tree[name]).get(MODELS)).values()):
            block.update({"host": web[0], "port": web[1]})
        return tree

    def _fill_defaults(self) -> None:
        """Set the keys that NeMo Gym's launcher sets, and which its servers read without a default."""
        defaults: dict[str, Any] = {
            "default_host": self.host,
            "use_absolute_ip": False,
            "port_range_low": 10_001,
            "port_range_high": 20_000,
            "disallowed_ports": [],
            "head_server_deps": [],
            "dry_run": False,
            "skip_venv_if_present": False,
            "results_dir": str(Path("results").absolute()),
            "cache_dir": str(Path("cache").absolute()),
            "uv_cache_dir": str(Path("cache/uv").absolute()),
        }
        self.tree = defaults | self.tree
        for name in ("uv_venv_dir", "results_dir", "cache_dir"):
            # Servers run in their own folders.
            if given := self._values.text(name):
                self.tree[name] = str(Path(given).absolute())
        self.tree["head_server"] = {"host": self.host, "port": _HEAD_PORT} | as_object(self.tree.get("head_server"))

    def _blocks(self) -> Iterator[tuple[str, str, dict[str, Any], str]]:
        """Yield name, kind, settings and key of each server. Agents without a resource server are left out."""
        for name, given in self.tree.items():
            kinds = [kind for kind in KINDS if kind in as_object(given)]
            if len(kinds) > 1:
                raise self._values.refuse(name, f"holds {' and '.join(kinds)}: give each server its own name")
            for kind in kinds:
                inner = as_object(given[kind])
                if len(inner) != 1 or not isinstance(settings := next(iter(inner.values())), dict):
                    raise self._values.refuse(f"{name}.{kind}", "must hold one implementation with keys")
                if as_object(settings.get("resources_server")).get("name") != MISSING:
                    yield name, kind, settings, f"{name}.{kind}.{next(iter(inner))}"

    def _plan(self, name: str, kind: str, settings: dict[str, Any], key: str) -> Server:
        values = self._values
        entrypoint, port = values.text(f"{key}.entrypoint"), values.whole(f"{key}.port", 0)
        if given := self._addresses.get(name):
            parts = urlsplit(given)
            settings.update({"host": parts.hostname, "port": parts.port or (443 if parts.scheme == "https" else 80)})
            return Server(name, kind, given.rstrip("/"))
        host = values.text(f"{key}.host") or self.host
        if not entrypoint:
            url = make_url(host, port) if port else self._base_urls.get(key, "")
            if not url:
                raise values.refuse(key, f"has neither entrypoint nor host and port. Or give --address {name}=URL")
            return Server(name, kind, url)
        path = Path(kind, key.rpartition(".")[2])
        file = None if Path(entrypoint).is_absolute() else find_below(self._roots, path / entrypoint)
        if file is None:
            told = f"{path / entrypoint} was not found in {', '.join(map(str, self._roots))}"
            raise values.refuse(f"{key}.entrypoint", told)
        port = self._reserve(host, port, key, name)
        settings.update({"host": host, "port": port})
        return Server(name, kind, make_url(host, port), file.parents[len(Path(entrypoint).parts) - 1], entrypoint)

    def _reserve(self, host: str, port: int, key: str, name: str) -> int:
        """Return the configured port, else that of the last run if it is free, else a free one."""
        if port:
            problem = "two servers have this port" if port in self._taken else find_port_problem(host, port)
            if problem:
                raise self._values.refuse(f"{key}.port", f"{host}:{port}: {problem}. Or give --address {name}=URL")
        else:
            known = self._known.get(name, 0)
            is_free = known and known not in self._taken and not find_port_problem(host, known)
            port = known if is_free else find_free_port(host)
        self._taken.add(port)
        return port


def find_port_problem(host: str, port: int) -> str:
    """Return why no server can listen there; empty if one can."""
    try:
        with socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET):
            return ""
    except OSError as problem:
        return str(problem.strerror or problem)


def find_free_port(host: str) -> int:
    with socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET) as listening:
        return int(listening.getsockname()[1])


def make_url(host: str, port: int) -> str:
    reachable = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - a listening address
    return f"http://[{reachable}]:{port}" if ":" in reachable else f"http://{reachable}:{port}"
