"""Read once a second what the engine needs: cancellations, limits, breakers, other workers, this worker."""

from typing import NamedTuple

from apps.rollouts.engine.circuit_breakers import Endpoint, Turn, read_shut, store_turns
from apps.rollouts.engine.collection_limits import pause_overdue
from apps.rollouts.engine.throttling import read_limited
from apps.rollouts.engine.worker_leases import is_draining, live_workers
from apps.rollouts.models import Collection


class Surroundings(NamedTuple):
    """`cancelled` or deleted of the collections asked about, `paused` just now; `live` workers with their groups."""

    cancelled: set[int]
    paused: list[int]
    live: list[tuple[int, str]]
    shut: list[Endpoint]
    throttled: list[Endpoint]
    is_draining: bool


def look_around(*, lease: int, collection_ids: set[int], turns: dict[Endpoint, Turn]) -> Surroundings:
    """Store what the breakers have to say, pause what ran out of time, and read the rest."""
    store_turns(turns)
    going_on = Collection.objects.filter(pk__in=collection_ids).exclude(state=Collection.State.CANCELLED)
    return Surroundings(
        cancelled=collection_ids - set(going_on.values_list("pk", flat=True)),
        paused=pause_overdue(),
        live=live_workers(),
        shut=list(read_shut()),
        throttled=read_limited(),
        is_draining=is_draining(lease),
    )
