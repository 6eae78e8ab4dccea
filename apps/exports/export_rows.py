"""Convert rollouts, pairs or tasks to exported rows. Count the dropped ones by reason."""

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import msgspec
import orjson

from apps.exports.best_attempts import AttemptRounds, Candidates
from apps.exports.export_filters import Filters, find_unselected
from apps.exports.export_selection import Candidate, Chosen, choose_rollouts
from apps.exports.exported_credentials import ExportedCredentials
from apps.exports.exported_pairs import find_refusal, read_chunks
from apps.exports.held_out_splits import split_of
from apps.exports.models import Export
from apps.exports.offered_tools import Offers
from apps.exports.rollout_values import fingerprint_of, has_tokens, is_masked, override_columns, reward_of
from apps.exports.task_prompts import planned_harness, row_with_prompt
from apps.exports.template_checks import TemplateCheck
from apps.gym.exporters.branches import find_leaves
from apps.gym.exporters.captured_rows import name_altered
from apps.gym.exporters.protocol import Attempt, Options, Preference, TaskPrompt
from apps.gym.exporters.registry import find_format
from apps.gym.sent_sampling import read_sent
from apps.gym.tasks.mappings.templates import GapEmpty
from apps.gym.traces.authorship import count_foreign
from apps.gym.traces.events import TraceUnion
from apps.gym.traces.exact_prompts import restore_prompts
from apps.gym.traces.graph import TraceGraph, is_captured
from apps.gym.traces.items import TaskRow, dump_json, input_items, read_json
from apps.gym.traces.segments import count_unusable
from apps.gym.traces.tokens import read_shape
from apps.gym.trainability import Dropped
from apps.gym.training_ledger import Ledger, Trainability, count_trained, find_unit
from apps.gym.wires.grammars import name_grammar
from apps.pairs.models import PreferencePair
from apps.pairs.provenance import provenance_columns
from apps.pairs.trace_reader import read_traces
from apps.rollouts.models import Rollout
from apps.tasks.models import DatasetVersion, Task
from apps.tasks.stored_images import full_row

_MOST_SAMPLINGS = 20
"""The number of different samplings in a manifest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRows:
    """The rows of one attempt, pair or task.

    `encoded` has the same rows as JSON. `split` selects the file of the export; `dataset_split` is the split of the
    task in its dataset.
    """

    source: Attempt | Preference | TaskPrompt
    split: str
    dataset_split: str
    rows: list[dict[str, Any]]
    encoded: list[bytes]


class RowReader:
    """Read the rows of an export. Iterate `rows()` once.

    `ledger` counts the attempts, pairs or tasks that were read, exported and left out. After the last row, `considered`
    is the sum of the others. `on_step` is called regularly, and may raise.
    """

    def __init__(self, export: Export, *, on_step: Callable[[], None] = lambda: None) -> None:
        self.export = export
        self.on_step = on_step
        self.ledger = Ledger()
        self._grammar = ""
        self.samplings: Counter[str] = Counter()
        """Number of exported calls with tokens by their sampling fields, as JSON."""
        self.sources: Counter[str] = Counter()
        """Number of exported pairs by source of the preference."""
        self.set_by_people = 0
        """Number of exported rewards that are overrides. The manifest has it under this name."""
        self._is_imported = "imported" in export.collection.snapshot
        self.offers = Offers(is_imported=self._is_imported)
        self.format = find_format(export.format)
        self.credentials = ExportedCredentials(mask=export.mask_credentials)
        self.check: TemplateCheck | None = None
        """The template check, while and after the rows are read."""
        self.filters = msgspec.convert(export.filters, Filters)
        self._options = msgspec.convert(export.options, Options)
        self.ledger.trains_foreign = self._options.injected == "kept"
        self._rows_left = self.filters.max_rows
        collection = export.collection
        self._version_labels = {collection.version_id: f"{collection.dataset.slug}@v{collection.version.number}"}
        self._agent = collection.agent.slug
        self._harness = planned_harness(collection)
        # Caches the last task, because its attempts are read one after the other.
        self._split_of = lru_cache(maxsize=1)(
            lambda task: split_of(task, share=export.validation_share, seed=export.split_seed)
        )

    def rows(self) -> Iterator[SourceRows]:
        """Yield rows up to `max_rows`."""
        if self.export.template:
            self.check = TemplateCheck(self.export.template, self.format, self._options)
        try:
            yield from self._counted_rows()
        finally:
            if self.check:
                self.check.close()

    def _counted_rows(self) -> Iterator[SourceRows]:
        for source_rows in self._read_sources():
            self.ledger.use(len(source_rows.rows))
            self._count_tokens(source_rows.source, count_trained(source_rows.rows))
            self._count_foreign_turns(source_rows.source)
            yield source_rows
            if self._rows_left is not None:
                self._rows_left -= len(source_rows.rows)
            if self._rows_left == 0:
                # `considered` already includes the rest of the chunk.
                ledger = self.ledger
                ledger.drop("beyond_max_rows", ledger.considered - ledger.used - ledger.dropped.total())
                return

    def summarize(self) -> Trainability:
        """Return what may be trained on, as far as the rows were read."""
        return self.ledger.summarize(find_unit(self.format.row_kind), grammar=self._grammar)

    def list_samplings(self) -> list[dict[str, Any]]:
        """Return the most frequent sampling fields of exported calls with tokens, and their number of calls."""
        found = self.samplings.most_common(_MOST_SAMPLINGS)
        return [{"sampling": read_json(sampling), "calls": calls} for sampling, calls in found]

    def _count_tokens(
        self, source: Attempt | Preference | TaskPrompt, trained: int | None, *, is_used: bool = True
    ) -> None:
        """Count the tokens in the loss of the exported paths, and the tokens that a grammar may have forced.

        If the source is used, also count the turns without usable tokens, and the fields that altered its sampling.
        """
        if not isinstance(source, Attempt) or not self.format.has_tokens or is_masked(source):
            return
        graph = TraceGraph(source.events)
        leaves = () if self.format.keeps_all else find_leaves(graph, self._options)
        exported = {call for leaf in leaves for call in graph.path(leaf) if call}
        calls = [graph.calls[call] for call in sorted(graph.calls if self.format.keeps_all else exported)]
        masks = "grammar_calls" in self.format.choices and self._options.grammar_calls == "mask"
        forced = [call.tokens for call in calls if call.grammar and call.tokens and masks]
        count = sum(read_shape(tokens).generated for tokens in forced)
        if trained is not None or count:
            self.ledger.count_tokens(sampled=(trained or 0) + count, trainable=trained or 0)
        if count and not trained:
            self._grammar = self._grammar or name_grammar(source.events)
        if is_used:
            self.ledger.turns.update(count_unusable(calls))
        if is_used and "altered_sampling" in self.format.choices:
            self.ledger.altered.update(name_altered(calls))
            sent = (dict(sorted(read_sent(call.sampling).items())) for call in calls if call.tokens)
            self.samplings.update(map(dump_json, sent))

    def _count_foreign_turns(self, source: Attempt | Preference | TaskPrompt) -> None:
        """Count the turns of the exported paths that the model did not write, if the format trains turns."""
        if not isinstance(source, Attempt) or self.format.needs_tokens or self.format.keeps_all:
            return
        if is_captured(source.events):
            graph = TraceGraph(source.events)
            lines = [graph.line(leaf) for leaf in find_leaves(graph, self._options)]
            self.ledger.turns["foreign_turn"] += sum(map(count_foreign, lines))

    def _read_sources(self) -> Iterator[SourceRows]:
        if self.format.row_kind == "preferences":
            yield from self._preferences()
        elif self.format.row_kind == "tasks":
            yield from self._tasks()
        else:
            yield from self._attempts()

    def _choose_rollouts(self) -> Iterator[list[Chosen]]:
        for chunk in choose_rollouts(
            self.export.collection,
            self.filters,
            format=self.format,
            ledger=self.ledger,
        ):
            self.on_step()
            yield chunk

    def _attempts(self) -> Iterator[SourceRows]:
        for chunk in self._choose_rollouts():
            rounds = AttemptRounds(chunk, max_rows=self.filters.per_task)
            fingerprints: dict[int, str] = {}
            # Rewards of the exported attempts by task id and fingerprint.
            exported: dict[tuple[int, str], float | None] = {}
            while candidates := rounds.take():
                if self.filters.dedupe and (self.filters.per_task or 0) > 1:
                    unread = {pk: one for pk, one in candidates.items() if pk not in fingerprints}
                    fingerprints.update((pk, fingerprint_of(events)) for pk, events in self._traces(unread))
                    for rollout, key in rounds.defer_duplicates(candidates, fingerprints, exported):
                        self._count_duplicate(rollout, exported[key])
                for rollout_id, events in self._traces(candidates, tokens=self.format.has_tokens):
                    chosen, rollout = candidates[rollout_id]
                    key = (chosen.task.pk, fingerprint_of(events) if self.filters.dedupe else "")
                    if key in exported:
                        self._count_duplicate(rollout, exported[key])
                        continue
                    if source_rows := self._convert(chosen.task, self._attempt(chosen, rollout, events)):
                        self.set_by_people += rollout.set_by_a_person
                        rounds.wrote(chosen.task.pk)
                        if key[1]:
                            exported[key] = rollout.reward
                        yield source_rows
            self.ledger.drop("beyond_the_best_of_its_task", rounds.left)

    def _count_duplicate(self, rollout: Candidate, reward: float | None) -> None:
        """Count a duplicate of an exported attempt with this reward.

        Duplicates with another reward are counted separately: one of the two rewards must be wrong.
        """
        same = rollout.reward == reward
        self.ledger.drop("identical_completion" if same else "identical_completion_with_another_reward")

    def _traces(self, candidates: Candidates, *, tokens: bool = False) -> Iterator[tuple[int, list[TraceUnion]]]:
        numbers = {pk: rollout.attempt for pk, (_, rollout) in candidates.items()}
        whole = self.format.reads_graph or "branches" in self.format.choices
        for found in read_traces(numbers, tokens=tokens, whole=whole, images=True):
            self.on_step()
            yield found

    def _tasks(self) -> Iterator[SourceRows]:
        collection = self.export.collection
        for chunk in self._choose_rollouts():
            offers = self.offers.read(chunk)
            for chosen in chunk:
                task = chosen.task
                offer = offers[task.pk]
                prompt = TaskPrompt(
                    task=full_row(task),
                    prompted_task=self._prompted_task(task),
                    agent=self._agent,
                    dataset=collection.dataset.slug,
                    environment=collection.environment.slug,
                    split=task.split,
                    task_id=task.external_id or str(task.pk),
                    task_index=task.index,
                    group=chosen.group,
                    tools=offer.tools,
                    agent_ref=offer.agent_ref,
                )
                self.on_step()
                if source_rows := self._convert(task, prompt):
                    self.set_by_people += chosen.set_by_people
                    self.offers.count(offer)
                    yield source_rows

    def _prompted_task(self, task: Task) -> TaskRow | None:
        try:
            return row_with_prompt(full_row(task), self._harness)
        except GapEmpty:
            return None

    def _preferences(self) -> Iterator[SourceRows]:
        per_task: Counter[int] = Counter()
        for pairs in read_chunks(self.export):
            self.ledger.considered += len(pairs)
            numbers = {one.pk: one.attempt for pair in pairs for one in (pair.chosen, pair.rejected)}
            traces = dict(read_traces(numbers, images=True))
            unselected = find_unselected(Rollout.objects.filter(pk__in=numbers), numbers, self.filters)
            for pair in pairs:
                self.on_step()
                if pair.chosen_id in unselected or pair.rejected_id in unselected:
                    self.ledger.drop("not_selected")
                    continue
                if reason := find_refusal(pair, self.filters, traces, per_task):
                    self.ledger.drop(reason)
                    continue
                if source_rows := self._convert(pair.chosen.task, self._preference(pair, traces)):
                    self.sources[pair.source] += 1
                    per_task[pair.task_id] += 1
                    yield source_rows

    def _convert(self, task: Task, source: Attempt | Preference | TaskPrompt) -> SourceRows | None:
        """Return the rows of the source, cut to `max_rows` of the export.

        If the format makes no rows of it, count it in the ledger and return None.
        """
        try:
            if isinstance(source, Attempt) and not source.events:
                raise Dropped("no_trace")
            all_rows = list(self.format.rows(source, self._options))
            if not all_rows:
                raise Dropped("all_tokens_masked" if self.format.needs_tokens else "nothing_to_train_on")
            rows = all_rows[: self._rows_left]
            rows, encoded = self.credentials.check(
                rows,
                [orjson.dumps(row) for row in rows],
                has_tokens=isinstance(source, Attempt) and has_tokens(source),
            )
            if self.check:
                self.check.read(rows)
        except Dropped as why:
            self.ledger.drop(why.reason)
            if why.reason == "all_tokens_masked":
                self._count_tokens(source, 0, is_used=False)
            return None
        except orjson.JSONEncodeError:
            # Lone surrogates and integers beyond 64 bits, which trainers cannot read.
            self.ledger.drop("not_encodable")
            return None
        return SourceRows(
            source=source, split=self._split_of(task), dataset_split=task.split, rows=rows, encoded=encoded
        )

    def _attempt(self, chosen: Chosen, rollout: Candidate, events: list[TraceUnion]) -> Attempt:
        policy_model = self.export.collection.snapshot.get("policy_model", {})
        return Attempt(
            events=self._restore_prompt(chosen.task, events),
            task=full_row(chosen.task),
            reward=reward_of(rollout, events),
            components=rollout.components,
            stop_reason=rollout.stop_reason,
            model_version=rollout.model_version,
            logprob_mode=policy_model.get("logprob_mode", ""),
            engine=policy_model.get("engine", {}),
            agent=self._agent,
            provider=policy_model.get("provider", ""),
            task_index=chosen.task.index,
            repeat=rollout.repeat,
            # Imported files have no end times.
            ended=rollout.finished_at.timestamp() if rollout.finished_at and not self._is_imported else 0.0,
            stored_at=rollout.finished_at.timestamp() if rollout.finished_at else 0.0,
            columns={"rollout_id": rollout.id, **self._origin(chosen.task)},
            group=chosen.group,
            override=override_columns(rollout.override),
        )

    def _restore_prompt(self, task: Task, events: list[TraceUnion]) -> list[TraceUnion]:
        """Return the trace with the prompt that the model saw. Stored traces mask suspected credentials in it."""
        if not self.credentials.redactor.is_suspicious(task.row_json):
            return events
        prompted_task = self._prompted_task(task) or full_row(task)
        return restore_prompts(events, input_items(prompted_task), self.credentials.redactor)

    def _preference(self, pair: PreferencePair, traces: dict[int, list[TraceUnion]]) -> Preference:
        def side(rollout: Rollout, reward: float | None) -> Attempt:
            return Attempt(
                events=self._restore_prompt(rollout.task, traces[rollout.pk]),
                task=full_row(rollout.task),
                reward=math.nan if reward is None else reward,
                stop_reason=rollout.stop_reason,
                agent=self._agent,
                task_index=rollout.task.index,
            )

        chosen_reward, rejected_reward = pair.rewards
        return Preference(
            chosen=side(pair.chosen, chosen_reward),
            rejected=side(pair.rejected, rejected_reward),
            margin=pair.margin,
            columns={
                "pair_id": pair.pk,
                **provenance_columns(pair),
                "chosen_rollout_id": pair.chosen_id,
                "rejected_rollout_id": pair.rejected_id,
                **self._origin(pair.chosen.task),
                "collection_id": pair.chosen.collection_id,
            },
        )

    def _origin(self, task: Task) -> dict[str, Any]:
        return {
            "collection_id": self.export.collection_id,
            "dataset": self._version_label(task),
            "task_id": task.pk,
            "task_index": task.index,
        }

    def _version_label(self, task: Task) -> str:
        """Return the label of the task's dataset version. The tasks of pairs may have different versions."""
        if task.version_id not in self._version_labels:
            version = DatasetVersion.objects.select_related("dataset").get(pk=task.version_id)
            self._version_labels[task.version_id] = str(version)
        return self._version_labels[task.version_id]
