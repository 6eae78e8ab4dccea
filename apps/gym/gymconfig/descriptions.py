"""The contents of a configuration: resource servers, agents with their datasets, models."""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from apps.gym.gymconfig.merging import (
    MISSING,
    ConfigRefused,
    Problem,
    merge_texts,
    resolve_inheritance,
)
from apps.gym.gymconfig.references import Values, find_unusable
from apps.gym.traces.items import as_object

SERVERS, AGENTS, MODELS = "resources_servers", "responses_api_agents", "responses_api_models"
ENVIRONMENT_SERVERS = "environment_servers"
SPLITS = {"train": "train", "validation": "validation", "benchmark": "test", "example": "example"}
_PLACEHOLDER = re.compile(r"|MISSING|.*<.*>.*|None|null")
"""Values that NeMo Gym's configurations hold where users set an address or a name."""
_FLAT_SERVERS = frozenset({"legacy_agent", "single_agent_turn_legacy"})
"""Environment servers that take rows of agents in place of episodes, and only pass them on."""
_UNUSED = {
    "prepare_script": "was not run: run `gym eval prepare` of NeMo Gym, and upload the file that it writes",
    "taskset": "routes no tasks here: choose the agent in the collection. Materialised tasks carry their taskset",
}
"""Keys of a dataset that GymWeb does not use, with what users do in place of them."""
_OPENAI = re.compile(r"https://api\.openai\.com(/|$)")
_ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - a listening address, not a reachable one


class ResourceServer(msgspec.Struct, kw_only=True):
    """A resource server.

    `url` is empty if the configuration names neither host nor port; it then takes any free port.
    """

    name: str
    key: str
    kind: str
    url: str
    description: str
    is_gymnasium: bool = False


class DatasetFile(msgspec.Struct, kw_only=True):
    name: str
    key: str
    server: str
    split: str
    wanted: str
    license: str = ""
    source: str = ""


class Agent(msgspec.Struct, kw_only=True):
    """An agent. `server` and `model` are empty if the configuration names none; for `url` see ResourceServer.

    With `runs_episodes`, it is an environment server, which runs and verifies episodes.
    """

    name: str
    key: str
    kind: str
    url: str
    server: str
    model: str
    max_steps: int | None
    runs_episodes: bool = False


class Model(msgspec.Struct, kw_only=True):
    """A model. `provider` is `openai`, `azure`, `vllm` or `compatible`; `wire` is `responses` or `chat`."""

    name: str
    key: str
    provider: str
    wire: str
    base_urls: list[str]
    model: str
    api_key: str = ""
    api_version: str = ""
    headers: dict[str, str] = {}
    extra_body: dict[str, Any] = {}
    captures_tokens: bool = False


class Description(msgspec.Struct, kw_only=True):
    """The contents of a configuration. `notes` list what was left out and why."""

    servers: list[ResourceServer] = []
    agents: list[Agent] = []
    models: list[Model] = []
    datasets: list[DatasetFile] = []
    notes: list[Problem] = []

    @property
    def size(self) -> int:
        return len(self.servers) + len(self.agents) + len(self.models) + len(self.datasets)


def describe_texts(
    texts: Mapping[str, str], *, without_models: bool = False, environment: Mapping[str, str] = MappingProxyType({})
) -> tuple[Description, Values]:
    """Describe the configurations in these texts, by name. Raises ConfigRefused with every problem.

    `environment` has the variables that `${oc.env:NAME}` may read: none, unless the texts are the operator's own.
    """
    merged = merge_texts(texts)
    if unusable := find_unusable(merged):
        raise ConfigRefused(*unusable)
    try:
        resolve_inheritance(merged)
    except RecursionError:
        raise ConfigRefused(Problem("", "", "the inheritance is nested too deep")) from None
    values = Values(merged, environment)
    reader = _Reader(values, kinds=(SERVERS, AGENTS, ENVIRONMENT_SERVERS, *(() if without_models else (MODELS,))))
    for name in values.names:
        reader.read(name)
    reader.check_references()
    if reader.problems:
        raise ConfigRefused(*reader.problems)
    return reader.found, values


class _Reader:
    def __init__(self, values: Values, *, kinds: tuple[str, ...]) -> None:
        self._kinds = kinds
        self._values = values
        self.found = Description()
        self.problems: list[Problem] = []

    def read(self, name: str) -> None:
        for kind in [kind for kind in self._kinds if kind in as_object(self._values.raw(name))]:
            try:
                self._read_server(name, kind)
            except ConfigRefused as refused:
                self.problems += refused.problems

    def _read_server(self, name: str, kind: str) -> None:
        inner = self._values.raw(f"{name}.{kind}")
        if not isinstance(inner, dict) or len(inner) != 1:
            told = "must hold one implementation by its name"
            raise self._values.refuse(f"{name}.{kind}", told)
        (implementation,) = inner
        key = f"{name}.{kind}.{implementation}"
        if not isinstance(inner[implementation], dict):
            raise self._values.refuse(key, "must have keys")
        read = {
            SERVERS: self._read_resources,
            AGENTS: self._read_agent,
            ENVIRONMENT_SERVERS: self._read_environment_server,
            MODELS: self._read_model,
        }[kind]
        read(name, implementation, key)

    def _read_resources(self, name: str, implementation: str, key: str) -> None:
        self.found.servers.append(
            ResourceServer(
                name=name,
                key=key,
                kind=implementation,
                url=self._read_url(key),
                description=self._values.text(f"{key}.description"),
            )
        )

    def _read_url(self, key: str) -> str:
        values = self._values
        host, port = values.text(f"{key}.host"), values.whole(f"{key}.port", 0)
        host = _ANY_ADDRESS.get(host, host) or values.text("default_host", "127.0.0.1")
        bracketed = f"[{host}]" if ":" in host else host
        return f"http://{bracketed}:{port}" if port else ""

    def _read_agent(self, name: str, implementation: str, key: str) -> None:
        if self._values.raw(f"{key}.resources_server.name") == MISSING:
            told = f"the agent {name} was left out, since it names no resource server (???)"
            self._note(f"{key}.resources_server.name", told)
            return
        server, model = (
            self._reference(f"{key}.resources_server", SERVERS),
            self._reference(f"{key}.model_server", MODELS),
        )
        steps = self._values.get(f"{key}.max_steps")
        self.found.agents.append(
            Agent(
                name=name,
                key=key,
                kind=implementation,
                url=self._read_url(key),
                server=server,
                model=model,
                max_steps=self._values.whole(f"{key}.max_steps", 10) if steps is not None else None,
            )
        )
        for place, given in enumerate(self._values.rows(f"{key}.datasets")):
            self._read_dataset(given, f"{key}.datasets[{place}]", server)

    def _read_environment_server(self, name: str, implementation: str, key: str) -> None:
        server, agent = f"{key}.resources_server", f"{key}.agent_server"
        unset = [one for one in (server, agent) if self._values.raw(f"{one}.name") == MISSING]
        if unset:
            told = f"the environment server {name} was left out, since it names no server (???)"
            self._note(f"{unset[0]}.name", told)
            return
        fronted = self._reference(agent, AGENTS)
        if implementation in _FLAT_SERVERS:
            told = f"the environment server {name} was left out: GymWeb calls {fronted or 'its agent'} itself"
            self._note(f"{name}.{ENVIRONMENT_SERVERS}", told)
            return
        self.found.agents.append(
            Agent(
                name=name,
                key=key,
                kind=implementation,
                url=self._read_url(key),
                server=self._reference(server, SERVERS),
                model="",
                max_steps=None,
                runs_episodes=True,
            )
        )

    def _reference(self, key: str, kind: str) -> str:
        """Return the name in `{type, name}`, or an empty text without the key."""
        given = self._values.get(key)
        if given is None:
            return ""
        if not isinstance(given, dict) or given.get("type", kind) != kind or not isinstance(given.get("name"), str):
            raise self._values.refuse(key, f"must be {{type: {kind}, name: …}}")
        return str(given["name"])

    def _read_dataset(self, given: Any, key: str, server: str) -> None:
        refuse = self._values.refuse
        if not isinstance(given, dict):
            raise refuse(key, "must have keys")
        for needed in ("name", "type", "jsonl_fpath"):
            if not isinstance(given.get(needed), str) or not given[needed]:
                raise refuse(f"{key}.{needed}", "is needed, as a text")
        if given["type"] not in SPLITS:
            raise refuse(f"{key}.type", f"must be one of {', '.join(SPLITS)}, not {given['type']!r}")
        if not server:
            self._note(key, f"the dataset {given['name']} belongs to an agent that has no resource server")
            return
        for unused, told in _UNUSED.items():
            if given.get(unused):
                self._note(f"{key}.{unused}", f"{given[unused]!r} {told}")
        self.found.datasets.append(
            DatasetFile(
                name=given["name"],
                key=key,
                server=server,
                split=SPLITS[given["type"]],
                wanted=given["jsonl_fpath"],
                license=str(given.get("license") or ""),
                source=_source(given),
            )
        )

    def _read_model(self, name: str, implementation: str, key: str) -> None:
        values = self._values
        if implementation in ("openai_model", "azure_openai_model"):
            url = values.text(f"{key}.openai_base_url")
            azure = implementation == "azure_openai_model"
            self._add_model(
                key,
                Model(
                    name=name,
                    key=key,
                    provider="azure" if azure else "openai" if _OPENAI.match(url) else "compatible",
                    wire="responses",
                    base_urls=[url],
                    model=values.text(f"{key}.openai_model"),
                    api_key=values.text(f"{key}.openai_api_key"),
                    api_version=values.text(f"{key}.default_query.api-version") if azure else "",
                    headers=_texts(values.mapping(f"{key}.openai_default_headers")),
                ),
            )
        elif implementation == "vllm_model":
            given = values.get(f"{key}.base_url", "")
            extra = dict(values.mapping(f"{key}.extra_body"))
            if template := values.mapping(f"{key}.chat_template_kwargs"):
                extra["chat_template_kwargs"] = template
            self._add_model(
                key,
                Model(
                    name=name,
                    key=key,
                    provider="vllm",
                    wire="chat",
                    base_urls=[str(url) for url in given] if isinstance(given, list) else [str(given)],
                    model=values.text(f"{key}.model"),
                    api_key=values.text(f"{key}.api_key"),
                    headers=_texts(values.mapping(f"{key}.default_headers")),
                    extra_body=extra,
                    captures_tokens=values.get(f"{key}.return_token_id_information") is True,
                ),
            )
        else:
            told = (
                f"{implementation} is started by NeMo Gym itself. Serve it and declare it as vllm_model or openai_model"
            )
            self._note(key, told)

    def _add_model(self, key: str, model: Model) -> None:
        """Add a model. One whose address or name is still a placeholder is left out and listed."""
        unset = [one for one in [*(model.base_urls or [""]), model.model] if _PLACEHOLDER.fullmatch(one.strip())]
        if unset:
            told = f"the model {model.name} was left out, since its base URL or model name is not set ({unset[0]!r})"
            self._note(key, f"{told}. Set it, and register the files again")
        else:
            self.found.models.append(model)

    def _note(self, key: str, told: str) -> None:
        self.found.notes.append(Problem(self._values.file_of(key), key, told))

    def check_references(self) -> None:
        """Check that all referenced servers exist. An agent's kind shows whether its server is a Gymnasium server."""
        servers = {server.name: server for server in self.found.servers}
        models = {name for name in self._values.names if MODELS in as_object(self._values.raw(name))}
        for agent in self.found.agents:
            if agent.server and agent.server not in servers:
                told = (
                    f"refers to {agent.server!r}, which does not exist. Available: "
                    f"{', '.join(sorted(servers)) or 'none'}"
                )
                self.problems.append(Problem(self._values.file_of(agent.key), f"{agent.key}.resources_server", told))
            elif agent.server and re.search("gymnasium", agent.kind):
                servers[agent.server].is_gymnasium = True
            if agent.model and agent.model not in models:
                self._note(f"{agent.key}.model_server", f"its model server {agent.model!r} is not in these files")


def _texts(given: dict[str, Any]) -> dict[str, str]:
    return {name: str(value) for name, value in given.items()}


def _source(given: dict[str, Any]) -> str:
    """Return where the file can be downloaded, in one line."""
    source = given.get("source") or given.get("huggingface_identifier")
    if isinstance(source, dict) and source.get("repo_id"):
        return f"Hugging Face {source['repo_id']} {source.get('artifact_fpath') or ''}".strip()
    return ""
