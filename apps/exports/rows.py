"""From the database to the rows of a file: one generator a format, counting what is left out and why."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from apps.exports.models import Export, ExportFormat, PreferencePair
from apps.exports.traces import read_traces
from apps.gym.events import TraceUnion
from apps.gym.exporters.nemo_gym_rollouts import rollout_row
from apps.gym.exporters.trl_dpo import preference_row
from apps.gym.exporters.trl_sft import demonstration_row
from apps.gym.messages import Dropped
from apps.gym.stopping import ENDED_BY_ITSELF
from apps.rollouts.models import Rollout
from apps.tasks.models import Task

ROLLOUTS = 200
PAIRS = 50
"""Rows read together; a chunk of pairs holds all its traces at once, a chunk of rollouts one at a time."""


class RowReader:
    """Iterate `rows()` once; `considered` and `dropped` are complete when it ends."""

    def __init__(self, export: Export, *, on_chunk: Callable[[], None]) -> None:
        self.export = export
        self.on_chunk = on_chunk
        self.considered = 0
        self.dropped: Counter[str] = Counter()
        collection = export.collection
        self._dataset = f"{collection.dataset.slug}@v{collection.version.number}"
        # Of a collection that goes on, one may be flagged after the export was asked for.
        self._with_flagged = bool(export.filters.get("include_flagged"))
        self._agent = collection.agent.slug

    def rows(self) -> Iterator[dict[str, Any]]:
        if self.export.format == ExportFormat.TRL_DPO:
            yield from self._preferences()
        else:
            yield from self._scored()

    def _scored(self) -> Iterator[dict[str, Any]]:
        with_tokens = self.export.format == ExportFormat.NEMO_GYM_ROLLOUTS
        for chunk in self._rollout_chunks():
            self.considered += len(chunk)
            self.on_chunk()
            kept: dict[int, Rollout] = {}
            for rollout in chunk:
                if reason := self._refusal(rollout):
                    self.dropped[reason] += 1
                else:
                    kept[rollout.pk] = rollout
            attempts = {pk: rollout.attempt for pk, rollout in kept.items()}
            tasks = Task.objects.in_bulk({rollout.task_id for rollout in kept.values()})
            for rollout_id, events in read_traces(attempts, tokens=with_tokens):
                rollout = kept[rollout_id]
                try:
                    yield self._scored_row(rollout, tasks[rollout.task_id], events)
                except Dropped as why:
                    self.dropped[why.reason] += 1

    def _scored_row(self, rollout: Rollout, task: Task, events: list[TraceUnion]) -> dict[str, Any]:
        assert rollout.reward is not None
        if not events:
            raise Dropped("no_trace")
        if self.export.format == ExportFormat.TRL_SFT:
            columns = {"rollout_id": rollout.pk, **self._origin(task)}
            return demonstration_row(events, task.row, reward=rollout.reward, columns=columns)
        return rollout_row(
            events,
            task.row,
            reward=rollout.reward,
            components=rollout.components,
            stop_reason=rollout.stop_reason,
            agent=self._agent,
            task_index=task.index,
            repeat=rollout.repeat,
            origin={
                "rollout_id": rollout.pk,
                **self._origin(task),
                **({"model_version": rollout.model_version} if rollout.model_version else {}),
            },
        )

    def _preferences(self) -> Iterator[dict[str, Any]]:
        for pairs in self._pair_chunks():
            self.considered += len(pairs)
            self.on_chunk()
            attempts = {one.pk: one.attempt for pair in pairs for one in (pair.chosen, pair.rejected)}
            traces = dict(read_traces(attempts))
            for pair in pairs:
                try:
                    yield self._preference(pair, traces)
                except Dropped as why:
                    self.dropped[why.reason] += 1

    def _preference(self, pair: PreferencePair, traces: dict[int, list[TraceUnion]]) -> dict[str, Any]:
        least = self.export.filters.get("min_reward")
        chosen, rejected = pair.chosen, pair.rejected
        if (chosen.flagged or rejected.flagged) and not self._with_flagged:
            raise Dropped("flagged")
        if chosen.reward is None or rejected.reward is None:
            raise Dropped("no_reward")
        if least is not None and chosen.reward < least:
            raise Dropped("below_min_reward")
        if not traces[chosen.pk] or not traces[rejected.pk]:
            raise Dropped("no_trace")
        return preference_row(
            traces[chosen.pk],
            traces[rejected.pk],
            pair.task.row,
            chosen_reward=chosen.reward,
            rejected_reward=rejected.reward,
            columns={
                "pair_id": pair.pk,
                "chosen_rollout_id": chosen.pk,
                "rejected_rollout_id": rejected.pk,
                **self._origin(pair.task),
            },
        )

    def _refusal(self, rollout: Rollout) -> str:
        """Why the rollout is left out, from its row alone; empty when it is not."""
        least = self.export.filters.get("min_reward")
        if rollout.status in {Rollout.Status.FAILED, Rollout.Status.CANCELLED}:
            return str(rollout.status)
        if rollout.status != Rollout.Status.COMPLETED:
            return "not_finished"
        if rollout.reward is None or (rollout.flagged and not self._with_flagged):
            return "no_reward" if rollout.reward is None else "flagged"
        if least is not None and rollout.reward < least:
            return "below_min_reward"
        if self.export.format == ExportFormat.TRL_SFT and rollout.stop_reason not in ENDED_BY_ITSELF:
            return "truncated"
        return ""

    def _origin(self, task: Task) -> dict[str, Any]:
        return {
            "collection_id": self.export.collection_id,
            "dataset": self._dataset,
            "task_id": task.pk,
            "task_index": task.index,
        }

    def _rollout_chunks(self) -> Iterator[list[Rollout]]:
        """By key, not by a cursor held open: a long read would keep SQLite from trimming its log."""
        rollouts = Rollout.objects.filter(collection_id=self.export.collection_id).order_by("id")
        last = 0
        while chunk := list(rollouts.filter(id__gt=last)[:ROLLOUTS]):
            yield chunk
            last = chunk[-1].pk

    def _pair_chunks(self) -> Iterator[list[PreferencePair]]:
        pairs = PreferencePair.objects.filter(pair_set_id=self.export.pair_set_id).order_by("id")
        pairs = pairs.select_related("chosen", "rejected", "task")
        last = 0
        while chunk := list(pairs.filter(id__gt=last)[:PAIRS]):
            yield chunk
            last = chunk[-1].pk
