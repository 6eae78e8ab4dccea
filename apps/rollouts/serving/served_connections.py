"""Connect our environments, agents and policy models so that other programs can use them."""

import asyncio

import msgspec
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
from apps.policies.models import PolicyModel, Provider
from apps.policies.policy_clients import connect_policy
from apps.rollouts.plans.planning import describe_agent

RUN_SECONDS = 1800.0
"""Default time limit of an attempt by a served agent."""


async def connect_served_environment(environment: Environment, outbound: Outbound) -> ServedEnvironment:
    """Connect an environment. Raise CannotServe, or the error of connecting."""
    if environment.adapter == Adapter.GYMNASIUM:
        raise CannotServe(f"{environment} is a Gymnasium server. Give clients its own URL.")
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


async def connect_served_agent(
    agent: Agent,
    policy_model: PolicyModel,
    environment: Environment,
    outbound: Outbound,
    *,
    run_seconds: float = RUN_SECONDS,
) -> ServedAgent:
    """Connect an agent. Raise the error of connecting. Concurrency is limited by both model and environment."""
    settled = {**describe_agent(agent), "sampling": {**policy_model.sampling, **agent.sampling}}
    return ServedAgent(
        name=agent.slug,
        harness=msgspec.convert(settled, Harness),
        policy=connect_policy(policy_model, outbound),
        server=connect_environment(environment, outbound, judge=_connect_judge(environment, outbound)),
        seats=min(policy_model.concurrency, environment.concurrency),
        seconds=run_seconds,
    )


async def connect_served_model(policy_model: PolicyModel, outbound: Outbound) -> ServedModel:
    """Connect a policy model. Raise the error of connecting."""
    return ServedModel(
        name=policy_model.slug,
        policy=connect_policy(policy_model, outbound),
        sampling=policy_model.sampling,
        takes_thinking=policy_model.provider == Provider.ANTHROPIC,
    )


def _connect_judge(environment: Environment, outbound: Outbound) -> Judge | None:
    """Return the environment's judge, called up to its model's concurrency limit."""
    model = environment.judge_model
    return connect_judge(environment, outbound, seats=asyncio.Semaphore(model.concurrency) if model else None)


def answer_seconds(environment: Environment) -> float:
    """Return the maximum seconds for an answer, long enough for the time limits of the environment to apply first."""
    return 2 * environment.call_timeout + environment.verify_timeout + 10.0


def model_seconds(policy_model: PolicyModel) -> float:
    """Return the maximum seconds for an answer of this model, including retries."""
    return (policy_model.call_timeout + policy_model.connect_timeout) * policy_model.max_tries + 10.0
