"""Connect environments, agents and policy models of ours to be served to others."""

import asyncio

from django.conf import settings

from apps.agents.models import Agent
from apps.environments.models import Adapter, Environment
from apps.environments.resource_servers import connect_environment, connect_judge, connect_verifier
from apps.gym.calls.outbound import Outbound
from apps.gym.judging.judge import Judge
from apps.gym.loop.agent_loop import Harness
from apps.gym.serving.served_agent import ServedAgent
from apps.gym.serving.served_environment import CannotServe, ServedEnvironment, serve_environment
from apps.gym.serving.served_model import ServedModel
from apps.policies.models import PolicyModel
from apps.policies.policy_clients import connect_policy

RUN_SECONDS = 1800.0
"""For one attempt of a served agent, unless it is said otherwise."""


async def connect_served_environment(environment: Environment, outbound: Outbound) -> ServedEnvironment:
    """Raises CannotServe, and what connecting raises."""
    if environment.adapter == Adapter.GYMNASIUM:
        raise CannotServe(f"{environment} is a Gymnasium server: give its own address to whoever shall use it.")
    judge = _connect_judge(environment, outbound)
    most = settings.SERVED_SESSIONS
    if environment.adapter == Adapter.MCP_PROCESS:
        # Each session is a process.
        most = min(most, environment.concurrency)
    return await serve_environment(
        connect_environment(environment, outbound, judge=judge),
        most_sessions=most,
        session_seconds=settings.SERVED_SESSION_SECONDS,
        verifying=connect_verifier(environment, outbound, judge=judge),
    )


def connect_served_agent(
    agent: Agent,
    policy_model: PolicyModel,
    environment: Environment,
    outbound: Outbound,
    *,
    run_seconds: float = RUN_SECONDS,
) -> ServedAgent:
    """Raises what connecting raises. Attempts at once are as many as both model and environment allow."""
    harness = Harness(
        system_prompt=agent.system_prompt,
        examples=agent.examples,
        max_steps=agent.max_steps,
        time_limit=agent.time_limit,
        token_limit=agent.token_limit,
        parallel_tool_calls=agent.parallel_tool_calls,
        sampling={**policy_model.sampling, **agent.sampling},
    )
    return ServedAgent(
        name=agent.slug,
        harness=harness,
        policy=connect_policy(policy_model, outbound),
        server=connect_environment(environment, outbound, judge=_connect_judge(environment, outbound)),
        seats=min(policy_model.concurrency, environment.concurrency),
        seconds=run_seconds,
    )


def connect_served_model(policy_model: PolicyModel, outbound: Outbound) -> ServedModel:
    """Raises what connecting raises."""
    return ServedModel(
        name=policy_model.slug, policy=connect_policy(policy_model, outbound), sampling=policy_model.sampling
    )


def _connect_judge(environment: Environment, outbound: Outbound) -> Judge | None:
    """Asked as often at once as its model allows."""
    model = environment.judge_model
    return connect_judge(environment, outbound, seats=asyncio.Semaphore(model.concurrency) if model else None)


def answer_seconds(environment: Environment) -> float:
    """The longest that an answer of this environment may take: its own limits are told apart before."""
    return 2 * environment.call_timeout + environment.verify_timeout + 10.0


def model_seconds(policy_model: PolicyModel) -> float:
    """The same for a model, with its retries."""
    return (policy_model.call_timeout + policy_model.connect_timeout) * policy_model.max_tries + 10.0
