"""Connect an environment: from its row to the resource server that speaks for it."""

from apps.environments.models import Adapter, Environment
from apps.gym.observing import Observer, ignore
from apps.gym.outbound import Outbound
from apps.gym.resources.http import HttpResourceServer
from apps.gym.resources.inprocess import InProcessServer
from apps.gym.resources.protocol import ResourceServer


def connect_environment(environment: Environment, outbound: Outbound, observe: Observer = ignore) -> ResourceServer:
    """Opens no connection yet. Raises EnvironmentFault where a built-in of that name no longer exists."""
    if environment.adapter == Adapter.BUILTIN:
        return InProcessServer(
            environment.builtin,
            name=environment.slug,
            verifies=environment.verifies,
            call_timeout=environment.call_timeout,
            verify_timeout=environment.verify_timeout,
        )
    return HttpResourceServer(
        outbound,
        name=environment.slug,
        base_url=environment.base_url,
        call_timeout=environment.call_timeout,
        connect_timeout=environment.connect_timeout,
        observe=observe,
        verify_timeout=environment.verify_timeout,
        max_tries=environment.max_tries,
        verifies=environment.verifies,
    )
