"""The stored model calls of a collection, read from its database."""

from itertools import groupby

from apps.gym.traces.events import ModelCall, decode_event
from apps.rollouts.trace_payloads import unpack
from tests.faults.installation import Installation


def model_calls(installation: Installation, collection: int) -> dict[int, list[ModelCall]]:
    """By rollout, those of its latest attempt in order."""
    rows = installation.rows(
        "SELECT event.rollout_id, event.payload, event.tokens FROM rollouts_traceevent AS event"
        " JOIN rollouts_rollout AS rollout ON rollout.id = event.rollout_id AND rollout.attempt = event.attempt"
        f" WHERE rollout.collection_id = {collection} ORDER BY event.rollout_id, event.seq"
    )
    events = ((rollout, decode_event(unpack(payload), tokens)) for rollout, payload, tokens in rows)
    return {
        rollout: [event for _, event in group if isinstance(event, ModelCall)]
        for rollout, group in groupby(events, key=lambda row: row[0])
    }
