"""Test a verifier on one reply, and run an environment's test cases: attempts with a known reward."""

import asyncio
import time
from copy import copy
from typing import Any

import msgspec
from asgiref.sync import async_to_sync
from django.core.exceptions import ValidationError

from apps.accounts.audit_log import record
from apps.accounts.outages import release_connection
from apps.environments.models import Adapter, Environment
from apps.environments.resource_servers import connect_environment
from apps.gym.environments.task_generation import Case
from apps.gym.errors import EnvironmentFault, VerifierError
from apps.gym.loop.trials.case_runs import CaseResult, check_each, list_cases
from apps.gym.request_refusals import Refusal
from apps.gym.rewards import Reward
from apps.gym.traces.items import message
from apps.gym.verifiers.registry import asks_judge, find_problems, read_verifier
from apps.gym.verifiers.verification import verify_attempt
from apps.gym.written.registry import WRITTEN, find_kit
from apps.policies.policy_clients import open_outbound

MOST_SECONDS = 10.0
MAX_REPLY = 200_000


class VerifierTrial(msgspec.Struct, frozen=True, kw_only=True):
    """Either `reward`, or the `error` with which a rollout would end. `seconds` is the duration."""

    reward: Reward | None = None
    error: str = ""
    seconds: float = 0.0


def try_verifier(
    *, verifier: object, row: dict[str, Any], reply: str, output: list[Any] | None = None
) -> VerifierTrial:
    """Verify one attempt. `output` are its items; if empty, `reply` is its only message.

    Raise ValidationError for invalid parameters. Judges are not called, because that costs tokens.
    """
    if problems := describe_problems(verifier):
        raise ValidationError({"verifier": problems})
    if asks_judge(verifier):
        raise ValidationError({"verifier": ["A judge model is asked only in a collection: try the other components."]})
    if len(reply) > MAX_REPLY:
        raise ValidationError({"reply": [f"Give at most {MAX_REPLY:,} characters."]})
    response = {"output": [message("assistant", reply)] if output is None else output}
    given = {"responses_create_params": {"input": ""}, **row}
    release_connection()
    began = time.perf_counter()
    try:
        reward = async_to_sync(verify_attempt)(read_verifier(verifier), given, response, most_seconds=MOST_SECONDS)
    except VerifierError as failure:
        return VerifierTrial(error=str(failure), seconds=time.perf_counter() - began)
    return VerifierTrial(reward=reward, seconds=time.perf_counter() - began)


def describe_problems(verifier: object) -> list[ValidationError]:
    """Return an error per problem. Its text begins with the JSON pointer, which is also in `params`."""
    return [
        ValidationError("%(told)s", params={"told": f"{at or 'The verifier'} {problem}.", "pointer": at})
        for at, problem in find_problems(verifier)
    ]


PROVE_SECONDS = 120.0


class CasesNotRun(Refusal, status=409, code="cases-not-run"):
    """Raised with the reason in one sentence."""


def find_cases(environment: Environment) -> list[Case]:
    """Return the test cases; empty for environments without cases, for resource servers, and if creating them fails."""
    try:
        return _find(environment)[0]
    except EnvironmentFault:
        return []


def prove_environment(*, environment: Environment, user: object) -> list[CaseResult]:
    """Run every test case of the environment's own verifier. Raise CasesNotRun."""
    try:
        cases, max_steps = _find(environment)
    except EnvironmentFault as fault:
        raise CasesNotRun(str(fault)) from None
    if not cases:
        raise CasesNotRun(
            f"{environment.slug} has no cases: only environments that run in process have them, where they make tasks "
            "or give cases of their own."
        )
    release_connection()
    results = async_to_sync(_prove)(environment, cases, max_steps)
    failed = sum(not result.passed for result in results)
    record(user=user, action="environment.prove", target=environment.slug, cases=len(results), failed=failed)
    return results


def _find(environment: Environment) -> tuple[list[Case], int]:
    """Return the test cases, and the number of replies of the longest. Raise EnvironmentFault."""
    if environment.adapter != Adapter.BUILTIN:
        return [], 0
    if kit := find_kit(environment.builtin):
        return list_cases(kit), kit.max_steps
    written = WRITTEN.get(environment.builtin)
    return (written.own_cases(), written.max_steps) if written else ([], 0)


async def _prove(environment: Environment, cases: list[Case], max_steps: int) -> list[CaseResult]:
    own = copy(environment)
    # A verifier configured in its place would return other rewards.
    own.verifier, own.verifies = {}, True
    outbound = open_outbound()
    try:
        async with asyncio.timeout(PROVE_SECONDS):
            return await check_each(connect_environment(own, outbound), cases, max_steps=max_steps)
    except TimeoutError:
        raise CasesNotRun(f"The cases did not finish within {PROVE_SECONDS:g} s.") from None
    except EnvironmentFault as fault:
        raise CasesNotRun(str(fault)) from None
    finally:
        await outbound.close()
