"""Register the environments, agents, policy models and datasets (without tasks) of a NeMo Gym configuration.

Stores nothing if there are problems. Objects that already exist with the same settings are left unchanged.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from django.core.exceptions import ValidationError
from django.db import models, transaction

from apps.accounts.models import User
from apps.agents.agent_changes import save_agent
from apps.agents.models import Agent
from apps.environments.environment_changes import save_environment
from apps.environments.models import Adapter, Environment
from apps.gym.gymconfig import descriptions
from apps.gym.gymconfig.merging import ConfigRefused, Problem
from apps.gym.gymconfig.pasted_files import MOST_DESCRIBED, MOST_PASTED, split_texts
from apps.gym.gymconfig.references import Values
from apps.gym.redaction.shortening import cut_clean
from apps.policies.models import PolicyModel, Provider, Wire
from apps.policies.policy_clients import stored_key
from apps.policies.policy_model_changes import save_policy_model
from apps.policies.secrets import SecretUnreadable
from apps.tasks.dataset_changes import create_dataset
from apps.tasks.models import Dataset

_OWN_LOOP = frozenset({"simple_agent", "gymnasium_agent"})
"""Agents whose loop is the same as ours. Other agents become agent servers."""
_SERVER_STEPS = 1000
"""Maximum turns of an agent server if the configuration has none: NeMo Gym does not limit them."""
_SLUG_LENGTH = 64

Row = TypeVar("Row", bound=models.Model)


@dataclass
class Line:
    """One registered object. `outcome` is `created`, `changed`, `unchanged` or `skipped`; `told` has details."""

    kind: str
    slug: str
    outcome: str
    told: str = ""


@dataclass
class Registered:
    """Result of a registration. Objects with `problems` are not registered; only a preview has problems."""

    lines: list[Line] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    def add(self, kind: str, slug: str, outcome: str, told: str = "") -> None:
        self.lines.append(Line(kind, slug, outcome, told))


def register_pasted(
    *,
    text: str,
    addresses: Mapping[str, str],
    without_models: bool = False,
    without_data: bool = False,
    preview: bool = False,
    user: User | None = None,
) -> Registered:
    """Register one or several configurations given as text.

    Reads no files and no environment variables, so datasets are registered without tasks. `addresses` maps server names
    to URLs.

    Raise ConfigRefused with all problems. A preview stores nothing and returns the problems instead.
    """
    try:
        if len(text) > MOST_PASTED:
            raise ConfigRefused(Problem("", "", f"has {len(text):,} characters; the maximum is {MOST_PASTED:,}"))
        description, values = descriptions.describe_texts(split_texts(text), without_models=without_models)
        if description.size > MOST_DESCRIBED:
            told = f"describes {description.size:,} objects; the maximum is {MOST_DESCRIBED}"
            raise ConfigRefused(Problem("", "", told))
        done = register_described(
            description, values, addresses=addresses, without_data=without_data, preview=preview, user=user
        )
    except ConfigRefused as refused:
        if not preview:
            raise
        return Registered(problems=refused.problems)
    return done


def register_described(
    description: descriptions.Description,
    values: Values,
    *,
    addresses: Mapping[str, str],
    without_data: bool = False,
    preview: bool = False,
    user: User | None = None,
) -> Registered:
    """Register the contents of a configuration. Raise ConfigRefused with all problems, unless it is a preview."""
    done = Registered()
    with transaction.atomic():
        _store(description, _Registrar(values, addresses, done, user), without_data=without_data)
        if preview:
            transaction.set_rollback(True)
        elif done.problems:
            raise ConfigRefused(*done.problems)
    return done


def _store(description: descriptions.Description, registrar: "_Registrar", *, without_data: bool) -> None:
    for note in description.notes:
        registrar.done.add("note", str(note), "skipped")
    for server in description.servers:
        registrar.environment(server)
    for agent in description.agents:
        registrar.agent(agent)
    for model in description.models:
        registrar.model(model)
    registered = [] if without_data else [given for given in description.datasets if registrar.dataset(given)]
    for given in registered:
        origin = f"; download it from {given.source}" if given.source else ""
        registrar.done.add("tasks", _dataset_slug(given), "skipped", f"{given.wanted} is not on this server{origin}")


class _Registrar:
    """Registers the objects of one configuration. Problems are added to `done.problems`."""

    def __init__(self, values: Values, addresses: Mapping[str, str], done: Registered, user: User | None) -> None:
        self._values = values
        self._addresses = addresses
        self._user = user
        self.done = done
        self._environments: dict[str, Environment] = {}

    def environment(self, server: descriptions.ResourceServer) -> None:
        url = (self._addresses.get(server.name) or server.url).rstrip("/")
        if not url:
            self._refuse(server.key, f"has no host and port. {_start(server.name)}")
            return
        adapter = Adapter.GYMNASIUM if server.is_gymnasium else Adapter.HTTP
        fields = {"adapter": adapter.value, "base_url": url, "description": server.description}
        row = self._save(
            "environment",
            server,
            fields,
            model=Environment,
            save=lambda environment: save_environment(environment=environment, user=self._user),
        )
        if row is not None:
            self._environments[server.name] = row

    def agent(self, agent: descriptions.Agent) -> None:
        fields: dict[str, Any] = {} if agent.max_steps is None else {"max_steps": agent.max_steps}
        first, told = None, ""
        if agent.kind not in _OWN_LOOP:
            url = (self._addresses.get(agent.name) or agent.url).rstrip("/")
            if problem := self._find_agent_problem(agent, url):
                self.done.add("agent", _slug(agent.name), "skipped", problem)
                return
            first = {"max_steps": _SERVER_STEPS}
            fields |= {"kind": Agent.Kind.SERVER.value, "server_url": url}
            if agent.runs_episodes:
                fields["server_route"] = Agent.Route.EPISODE.value
            elif not agent.server:
                fields["server_route"] = Agent.Route.RUN.value
            told = f"{url}; {_partners(agent)}"
        save = partial(save_agent, user=self._user)
        self._save("agent", agent, fields, model=Agent, save=lambda row: save(agent=row), first=first, told=told)

    def _find_agent_problem(self, agent: descriptions.Agent, url: str) -> str:
        """Return why an agent cannot be an agent server here; empty if it can."""
        environment = self._environments.get(agent.server)
        if environment is not None and environment.adapter == Adapter.GYMNASIUM:
            return f"{agent.kind} drives a Gymnasium environment, which needs the built-in loop"
        kind = "an environment server" if agent.runs_episodes else "an agent server"
        return "" if url else f"{agent.kind} is {kind}. {_start(agent.name)}"

    def model(self, model: descriptions.Model) -> None:
        fields = {
            "provider": Provider(model.provider).value,
            "wire": Wire(model.wire).value,
            "base_url": model.base_urls[0].rstrip("/"),
            "more_base_urls": [url.rstrip("/") for url in model.base_urls[1:]],
            "model_name": model.model,
            "api_version": model.api_version,
            "extra_headers": model.headers,
            "extra_body": model.extra_body,
            "capture_tokens": model.captures_tokens,
        }
        self._save(
            "policy model",
            model,
            fields,
            model=PolicyModel,
            save=lambda row: save_policy_model(policy_model=row, api_key=model.api_key, user=self._user),
            same=lambda row: _has_key(row, model.api_key),
        )

    def dataset(self, given: descriptions.DatasetFile) -> Dataset | None:
        environment = self._environments.get(given.server)
        if environment is None:
            return None  # its environment was already refused
        slug = _dataset_slug(given)
        known = Dataset.objects.filter(slug=slug).first()
        if known is not None:
            if known.environment_id != environment.pk:
                self._refuse(given.key, f"the dataset {slug} belongs to the environment {known.environment.slug}")
            return known
        parts = [f"License: {given.license}." if given.license else "", f"From {given.source}." if given.source else ""]
        described = " ".join(part for part in parts if part)
        self.done.add("dataset", slug, "created")
        name = cut_clean(f"{given.server} {given.name}", 100)
        return create_dataset(slug=slug, name=name, environment=environment, description=described, user=self._user)

    def _save(
        self,
        kind: str,
        given: descriptions.ResourceServer | descriptions.Agent | descriptions.Model,
        fields: dict[str, Any],
        *,
        model: type[Row],
        save: Callable[[Row], object],
        same: Callable[[Row], bool] = lambda row: True,
        first: Mapping[str, Any] | None = None,
        told: str = "",
    ) -> Row | None:
        """Create or change a row. A new row also gets the fields of `first`."""
        slug = _slug(given.name)
        row = model._default_manager.filter(slug=slug).first()
        outcome = "created" if row is None else "changed"
        if row is None:
            row = model(slug=slug, name=cut_clean(given.name, 100), **{**(first or {}), **fields})
        else:
            changed = [name for name, value in fields.items() if getattr(row, name) != value]
            if not changed and same(row):
                self.done.add(kind, slug, "unchanged", told)
                return row
            for name in changed:
                setattr(row, name, fields[name])
        try:
            save(row)
        except ValidationError as wrong:
            for name, problems in wrong.message_dict.items():
                self._refuse(given.key, f"{name}: {' '.join(problems)}")
            return None
        self.done.add(kind, slug, outcome, told or str(getattr(row, "base_url", "")))
        return row

    def _refuse(self, key: str, message: str) -> None:
        self.done.problems.append(Problem(self._values.file_of(key), key, message))


def _has_key(model: PolicyModel, api_key: str) -> bool:
    try:
        return stored_key(model) == api_key
    except SecretUnreadable:
        return False


def _start(name: str) -> str:
    """Return what to do about a server without an address."""
    return f"Start it and give its address: {name}=URL (in a terminal: gymweb import config --address {name}=URL)"


def _partners(agent: descriptions.Agent) -> str:
    """Return what to combine an agent server with: GymWeb's agents name no environment and no model."""
    environment = f"with environment {_slug(agent.server)}" if agent.server else "it verifies, over /run"
    if agent.runs_episodes:
        environment += "; it runs and verifies episodes"
    model = f"; with policy model {_slug(agent.model)}" if agent.model else ""
    return f"{environment}{model}; its model server must have the host and port of GymWeb"


def _dataset_slug(given: descriptions.DatasetFile) -> str:
    return _slug(f"{given.server}-{given.name}")


def _slug(name: str) -> str:
    """Return a slug for a configuration name. Dots and slashes become dashes."""
    usual = "".join(letter if letter.isascii() and (letter.isalnum() or letter in "_-") else "-" for letter in name)
    return usual[:_SLUG_LENGTH]
