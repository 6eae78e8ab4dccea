"""The health check of an environment: is its resource server there, and which tools does it name?"""

from asgiref.sync import async_to_sync
from django.utils import timezone

from apps.environments.connecting import connect_environment
from apps.environments.models import Environment
from apps.gym.errors import EnvironmentFault
from apps.gym.resources.protocol import Probe
from apps.gym.storable import clean_line
from apps.policies.connecting import open_outbound
from apps.policies.models import Health

_MESSAGE_CHARACTERS = 500


def probe_environment(*, environment: Environment) -> Environment:
    """Ask the resource server and store what came of it. Never raises for a server that fails."""
    probe = async_to_sync(_probe)(environment)
    environment.health = Health.HEALTHY if probe.healthy else Health.UNHEALTHY
    environment.health_message = clean_line(_sentence(probe), _MESSAGE_CHARACTERS)
    environment.health_checked_at = timezone.now()
    changed = ["health", "health_message", "health_checked_at"]
    if probe.healthy:
        environment.survey = probe.found
        changed.append("survey")
    environment.save(update_fields=changed)
    return environment


async def _probe(environment: Environment) -> Probe:
    outbound = open_outbound()
    try:
        return await connect_environment(environment, outbound).probe()
    except EnvironmentFault as fault:
        return Probe(healthy=False, message=str(fault))
    finally:
        await outbound.close()


def _sentence(probe: Probe) -> str:
    if not probe.healthy:
        return probe.message
    names = ", ".join(tool["name"] for tool in probe.tools)
    tools = f"; tools: {names}" if names else ""
    return f"{probe.message} ({probe.latency * 1000:.1f} ms){tools}"
