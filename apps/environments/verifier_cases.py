"""Run the cases of an environment's verifier: attempts whose reward is known."""

import asyncio
from copy import copy

from asgiref.sync import async_to_sync

from apps.accounts.audit_log import record
from apps.environments.models import Adapter, Environment
from apps.environments.resource_servers import connect_environment
from apps.gym.environments.task_generation import Case
from apps.gym.errors import EnvironmentFault
from apps.gym.loop.trials.case_runs import CaseResult, check_each, list_cases
from apps.gym.request_refusals import Refusal
from apps.gym.written.registry import WRITTEN, find_kit
from apps.policies.policy_clients import open_outbound

PROVE_SECONDS = 120.0


class CasesNotRun(Refusal, status=409, code="cases-not-run"):
    """Why not, in one sentence."""


def find_cases(environment: Environment) -> list[Case]:
    """Empty for an environment that has none, a server's own are its own affair, and where they cannot be made."""
    try:
        return _find(environment)[0]
    except EnvironmentFault:
        return []


def prove_environment(*, environment: Environment, user: object) -> list[CaseResult]:
    """Every case of the environment's own verifier, run now. Raises CasesNotRun."""
    try:
        cases, max_steps = _find(environment)
    except EnvironmentFault as fault:
        raise CasesNotRun(str(fault)) from None
    if not cases:
        raise CasesNotRun(
            f"{environment.slug} has no cases: only environments that run in process have them, where they make tasks "
            "or give cases of their own."
        )
    results = async_to_sync(_prove)(environment, cases, max_steps)
    failed = sum(not result.passed for result in results)
    record(user=user, action="environment.prove", target=environment.slug, cases=len(results), failed=failed)
    return results


def _find(environment: Environment) -> tuple[list[Case], int]:
    """With the replies that the longest may take. Raises EnvironmentFault."""
    if environment.adapter != Adapter.BUILTIN:
        return [], 0
    if kit := find_kit(environment.builtin):
        return list_cases(kit), kit.max_steps
    written = WRITTEN.get(environment.builtin)
    return (written.own_cases(), written.max_steps) if written else ([], 0)


async def _prove(environment: Environment, cases: list[Case], max_steps: int) -> list[CaseResult]:
    own = copy(environment)
    # What is configured in its place has rewards of its own.
    own.verifier, own.verifies = {}, True
    outbound = open_outbound()
    try:
        async with asyncio.timeout(PROVE_SECONDS):
            return await check_each(connect_environment(own, outbound), cases, max_steps=max_steps)
    except TimeoutError:
        raise CasesNotRun(f"The cases were not done within {PROVE_SECONDS:g} s.") from None
    except EnvironmentFault as fault:
        raise CasesNotRun(str(fault)) from None
    finally:
        await outbound.close()
