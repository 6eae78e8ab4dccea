"""Run the cases of an environment's verifier: attempts whose reward is known."""

import asyncio
from copy import copy

from asgiref.sync import async_to_sync

from apps.accounts.auditing import record
from apps.environments.connecting import connect_environment
from apps.environments.models import Adapter, Environment
from apps.gym.builtin.generating import Case, Kit
from apps.gym.errors import EnvironmentFault
from apps.gym.trials.checking import CaseResult, check_cases, list_cases
from apps.gym.written.registry import find_kit
from apps.policies.connecting import open_outbound

PROVE_SECONDS = 120.0


class CasesNotRun(Exception):
    """Why not, in one sentence."""


def find_cases(environment: Environment) -> list[Case]:
    """Empty for an environment that has none: a server's own are its own affair."""
    kit = _find_kit(environment)
    return list_cases(kit) if kit else []


def prove_environment(*, environment: Environment, user: object) -> list[CaseResult]:
    """Every case of the environment's own verifier, run now. Raises CasesNotRun."""
    kit = _find_kit(environment)
    if kit is None:
        raise CasesNotRun(
            f"{environment.slug} has no cases: only environments that run in process and make tasks have."
        )
    results = async_to_sync(_prove)(environment, kit)
    failed = sum(not result.passed for result in results)
    record(user=user, action="environment.prove", target=environment.slug, cases=len(results), failed=failed)
    return results


def _find_kit(environment: Environment) -> Kit | None:
    return find_kit(environment.builtin) if environment.adapter == Adapter.BUILTIN else None


async def _prove(environment: Environment, kit: Kit) -> list[CaseResult]:
    own = copy(environment)
    # What is configured in its place has rewards of its own.
    own.verifier, own.verifies = {}, True
    outbound = open_outbound()
    try:
        async with asyncio.timeout(PROVE_SECONDS):
            return await check_cases(connect_environment(own, outbound), kit)
    except TimeoutError:
        raise CasesNotRun(f"The cases were not done within {PROVE_SECONDS:g} s.") from None
    except EnvironmentFault as fault:
        raise CasesNotRun(str(fault)) from None
    finally:
        await outbound.close()
