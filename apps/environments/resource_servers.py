"""Connect an environment's resource server and judge from its row."""

from contextlib import AbstractAsyncContextManager
from copy import copy
from typing import Any

from django.conf import settings

from apps.environments.models import Adapter, Environment
from apps.gym.calls.flow_control import Gate
from apps.gym.calls.observers import Observer, ignore
from apps.gym.calls.outbound import Outbound
from apps.gym.environments.registry import BUILTINS
from apps.gym.errors import EnvironmentFault, JudgeError, PolicyError
from apps.gym.judging.judge import Judge
from apps.gym.judging.scale import read_settings
from apps.gym.resources.gymnasium import GymnasiumServer
from apps.gym.resources.inprocess import InProcessServer
from apps.gym.resources.mcp import McpServer
from apps.gym.resources.mcp_client import Command
from apps.gym.resources.nemo_gym_http import HttpResourceServer
from apps.gym.resources.own_verifier import ToollessServer, UnverifiedServer, VerifiedServer
from apps.gym.resources.protocol import ResourceServer
from apps.gym.resources.server_calls import Caller
from apps.gym.resources.server_survey import read_survey
from apps.gym.resources.written_environments import WrittenServer
from apps.gym.verifiers.parameters_reader import VerifierMisconfigured
from apps.gym.wires.protocol import Weights
from apps.gym.wires.scores.score_cache import ReplyCache
from apps.gym.written.environment import Environment as WrittenEnvironment
from apps.gym.written.registry import WRITTEN
from apps.policies.policy_clients import connect_policy
from apps.policies.secrets import SecretUnreadable, decrypt_secret


def connect_environment(
    environment: Environment,
    outbound: Outbound,
    observe: Observer = ignore,
    judge: Judge | None = None,
    gate: Gate | None = None,
) -> ResourceServer:
    """Return the resource server, without connecting yet.

    Raise EnvironmentFault for a removed built-in environment or an invalid verifier.
    """
    server = _connect_server(environment, outbound, observe, judge, gate)
    if not environment.verifies:
        return UnverifiedServer(server)
    if not environment.verifies_here:
        return server
    try:
        return VerifiedServer(
            server, verifier=environment.verifier, verify_timeout=environment.verify_timeout, judge=judge
        )
    except VerifierMisconfigured as wrong:
        raise EnvironmentFault(f"{environment.slug}: its verifier cannot be used: {wrong}").permanent() from None


def connect_verifier(
    environment: Environment, outbound: Outbound, judge: Judge | None = None, gate: Gate | None = None
) -> ResourceServer:
    """Return the environment for verifying stored attempts.

    If the verifier reads only the trace, the tools need not exist and no session is opened. Raises like
    `connect_environment`.
    """
    if environment.verifies_here:
        environment = copy(environment)
        environment.adapter = Adapter.DECLARED
    return connect_environment(environment, outbound, judge=judge, gate=gate)


def _connect_server(
    environment: Environment, outbound: Outbound, observe: Observer, judge: Judge | None, gate: Gate | None
) -> ResourceServer:
    if environment.adapter == Adapter.DECLARED:
        return ToollessServer(name=environment.slug)
    written = WRITTEN.get(environment.builtin) if environment.adapter == Adapter.BUILTIN else None
    if written is not None:
        return WrittenServer(
            written,
            name=environment.slug,
            call_timeout=environment.call_timeout,
            verify_timeout=environment.verify_timeout,
        )
    if environment.adapter == Adapter.BUILTIN:
        return InProcessServer(
            environment.builtin,
            name=environment.slug,
            call_timeout=environment.call_timeout,
            verify_timeout=environment.verify_timeout,
            judge=judge,
        )
    if environment.adapter == Adapter.GYMNASIUM:
        return GymnasiumServer(connect_caller(environment, outbound, observe, gate))
    if environment.adapter in (Adapter.MCP, Adapter.MCP_PROCESS):
        return McpServer(
            outbound,
            name=environment.slug,
            url=environment.base_url,
            command=_find_command(environment) if environment.adapter == Adapter.MCP_PROCESS else None,
            call_timeout=environment.call_timeout,
            connect_timeout=environment.connect_timeout,
            observe=observe,
            max_tries=environment.max_tries,
            api_key=_read_key(environment),
        )
    return HttpResourceServer(
        connect_caller(environment, outbound, observe, gate),
        verify_timeout=environment.verify_timeout,
        survey=read_survey(environment.survey),
    )


def connect_caller(
    environment: Environment, outbound: Outbound, observe: Observer = ignore, gate: Gate | None = None
) -> Caller:
    """Return the calls to the environment's server over HTTP. Raise EnvironmentFault if its key cannot be read."""
    return Caller(
        outbound,
        name=environment.slug,
        base_url=environment.base_url,
        call_timeout=environment.call_timeout,
        connect_timeout=environment.connect_timeout,
        observe=observe,
        gate=gate,
        max_tries=environment.max_tries,
        api_key=_read_key(environment),
    )


def _read_key(environment: Environment) -> str:
    try:
        return decrypt_secret(environment.api_key_encrypted) if environment.api_key_encrypted else ""
    except SecretUnreadable as problem:
        raise EnvironmentFault(f"{environment.slug}: {problem}").permanent() from None


def _find_command(environment: Environment) -> Command:
    command = settings.MCP_COMMANDS.get(environment.command)
    if command is None:
        told = f"GYMWEB_MCP_COMMANDS of this worker has no command named {environment.command!r}"
        raise EnvironmentFault(f"{environment.slug}: {told}").permanent()
    return Command(command["command"], command["environment"])


def connect_judge(
    environment: Environment,
    outbound: Outbound,
    observe: Observer = ignore,
    seats: AbstractAsyncContextManager[Any] | None = None,
    *,
    weights: Weights | None = None,
    gate: Gate | None = None,
    replies: ReplyCache | None = None,
) -> Judge | None:
    """Return the environment's judge, or None. `seats` limit its concurrent calls, `replies` are kept.

    Raise JudgeError if the model cannot be connected or the settings are invalid.
    """
    model = environment.judge_model
    if model is None:
        return None
    try:
        asked = read_settings(environment.judge_settings)
    except ValueError as error:
        raise JudgeError(f"{environment.slug}: the judge's settings: {error}").permanent() from None
    try:
        policy = connect_policy(model, outbound, observe=observe, weights=weights, gate=gate)
    except PolicyError as error:
        raise JudgeError(f"The judge {model.slug} cannot be connected: {error}").permanent() from error
    return Judge(
        policy,
        name=model.slug,
        rubric=environment.judge_rubric,
        settings=asked,
        sampling=model.sampling,
        seats=seats,
        call_timeout=environment.verify_timeout,
        replies=replies,
    )


def drives_turns(environment: Environment) -> bool:
    """Return True if the environment answers replies itself, so only the built-in loop can run its tasks."""
    if environment.adapter != Adapter.BUILTIN:
        return environment.adapter == Adapter.GYMNASIUM
    written = WRITTEN.get(environment.builtin)
    if written is not None:
        return written.respond is not WrittenEnvironment.respond
    builtin = BUILTINS.get(environment.builtin)
    return builtin is not None and builtin.takes_turns
