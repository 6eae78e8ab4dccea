"""Build the table of sample rollouts: prompt, answer, reward, and a link to each rollout."""

from apps.gym.judging.prompts import readable_prompt
from apps.gym.redaction.shortening import cut
from apps.gym.traces.events import ModelCall, Prompt, TraceUnion
from apps.gym.traces.items import last_assistant_text
from apps.pairs.trace_reader import read_traces
from apps.policies.installation_redactor import fresh_redactor
from apps.rollouts.models import Collection, Rollout
from apps.tracking.page_links import page_link
from apps.tracking.run_batches import SampleTable

COLUMNS = ["rollout", "task", "model_version", "reward", "stop_reason", "turns", "prompt", "answer", "link"]
MAX_CHARACTERS = 2_000


def sample_rollouts(collection: Collection, number: int) -> SampleTable:
    """Return `number` completed rollouts, evenly spaced by id, so that a repeated attempt sends the same rows.

    Rollouts with unreviewed redactions are left out. Credentials in prompts and answers are masked.
    """
    completed = Rollout.objects.filter(collection=collection, status=Rollout.Status.COMPLETED, flagged=False)
    ids = list(completed.order_by("pk").values_list("pk", flat=True))
    if len(ids) > number:
        ids = [ids[place * len(ids) // number] for place in range(number)]
    rollouts = {one.pk: one for one in completed.filter(pk__in=ids).select_related("task")}
    redactor = fresh_redactor()
    rows = []
    for pk, events in read_traces({pk: one.attempt for pk, one in rollouts.items()}):
        texts = [cut(redactor.redact_text(text)[0], MAX_CHARACTERS) for text in (_prompt(events), _answer(events))]
        rows.append(_row(rollouts[pk], *texts))
    return SampleTable(COLUMNS, rows)


def _row(rollout: Rollout, prompt: str, answer: str) -> list[str | float | int | None]:
    return [
        rollout.pk,
        rollout.task.external_id or str(rollout.task_id),
        rollout.model_version,
        rollout.reward,
        rollout.stop_reason,
        rollout.turns,
        prompt,
        answer,
        page_link("rollout_detail", rollout.pk),
    ]


def _prompt(events: list[TraceUnion]) -> str:
    items = next((event.items for event in events if isinstance(event, Prompt)), [])
    return readable_prompt(items, MAX_CHARACTERS)


def _answer(events: list[TraceUnion]) -> str:
    replies = [event.items for event in events if isinstance(event, ModelCall)]
    return last_assistant_text(replies[-1]) if replies else ""
