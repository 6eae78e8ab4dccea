"""Stream each ended rollout of a collection as a line of NDJSON, with one rollout in memory at a time."""

import asyncio
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any, NamedTuple

import msgspec
import orjson
from django.db import InterfaceError, OperationalError, connection
from django.db.models import Q
from django.utils import timezone

from apps.accounts.job_declarations import background_job
from apps.accounts.models import User
from apps.accounts.outages import run_query
from apps.gym.exporters.captured_rows import name_altered, refuse_sampling
from apps.gym.exporters.protocol import Options
from apps.gym.exporters.scored import group_figures, measure_group
from apps.gym.json_lines import escape_line_ends
from apps.gym.traces.events import AgentEnd, ModelCall
from apps.gym.traces.exact_prompts import restore_prompts
from apps.gym.traces.graph import TraceGraph
from apps.gym.traces.graph_segments import check_graph, join_graph
from apps.gym.traces.items import dump_json, input_items
from apps.gym.traces.messages import find_media, offered_tools
from apps.gym.traces.responses import assemble_response, prompt_items, with_unique_ids
from apps.gym.traces.segments import count_unusable, mask_grammar
from apps.gym.traces.tokens import TokensUnreadable
from apps.gym.trainability import Dropped, find_reason
from apps.gym.training_ledger import add_parts
from apps.policies.installation_redactor import fresh_redactor
from apps.rollouts.metrics.trainable_rollouts import foresee_trainability, read_trainability
from apps.rollouts.models import Collection, Rollout
from apps.rollouts.steering.controls import CannotSteer, cancel_collection
from apps.rollouts.steering.holds import explain_pause
from apps.tasks.stored_images import full_row

COME_BACK = timedelta(seconds=10)
"""How long a stream requested with a key waits for its reader to request it again after losing the response.
"""
UNFINISHED = [Collection.State.PLANNING, Collection.State.RUNNING, Collection.State.PAUSED]


def expect_reader(*, collection: Collection) -> None:
    """Announce a reader. Until reading starts, it counts as absent, because the response may never arrive."""
    unread = Q(reader__isnull=True) | Q(left_at__isnull=False)
    Collection.objects.filter(unread, pk=collection.pk).update(left_at=timezone.now())


def begin_reading(*, collection: Collection) -> uuid.UUID:
    """Return the token of a new reader. Only the latest reader counts; earlier ones lost their connection."""
    reader = uuid.uuid4()
    Collection.objects.filter(pk=collection.pk).update(reader=reader, left_at=None)
    return reader


def leave_unread(*, collection: Collection, reader: uuid.UUID) -> None:
    """Record that this reader left. The collection is cancelled if no reader returns or replaces it."""
    mine = Collection.objects.filter(pk=collection.pk, reader=reader, state__in=UNFINISHED)
    mine.update(left_at=timezone.now())


@background_job(waiting=lambda: Collection.objects.filter(left_at__isnull=False, state__in=UNFINISHED))
def sweep_left() -> bool:
    """Background job: cancel one collection whose reader did not return. Return True if there was one."""
    gone = Collection.objects.filter(left_at__lt=timezone.now() - COME_BACK, state__in=UNFINISHED)
    left = gone.select_related("created_by").first()
    if left is None:
        return False
    with suppress(CannotSteer):  # It ended meanwhile.
        cancel_collection(collection=left, user=left.created_by)
    return True


LOOK_SECONDS = 0.2
HEARTBEAT_SECONDS = 10.0
"""Seconds without a rollout after which an empty line is sent, before proxies close the connection."""
AWAY_SECONDS = 1.0
ACCESS_SECONDS = 2.0
"""Seconds between two checks that the reader still has permission."""
ENDED = (Rollout.Status.COMPLETED, Rollout.Status.FAILED)
HEARTBEAT = b"\n"


class _Look(NamedTuple):
    state: str
    running: bool
    ended: int
    fresh: list[tuple[int, int]]
    may_read: bool


class RolloutStream:
    """The lines of one collection, from its first ended rollout on.

    Iterate `lines()` once, then call `leave()`, also if the reader disconnected.

    `may_return` is for a reader who can request the same collection again; the stream waits for them for a while.
    `may_read` checks their permission while the stream is open. `options` are as in exports: `grammar_calls` and
    `altered_sampling`.
    """

    def __init__(
        self,
        *,
        collection: Collection,
        grouped: bool,
        seconds: float,
        keep: bool,
        user: User | None,
        may_return: bool = False,
        may_read: Callable[[], bool] = lambda: True,
        options: Options | None = None,
    ) -> None:
        self._collection = collection
        self._grouped, self._seconds, self._keep, self._user = grouped, seconds, keep, user
        self._may_return, self._may_read = may_return, may_read
        self._options = options or Options()
        self._turns: Counter[str] = Counter()
        self._altered: Counter[str] = Counter()
        self._reader: uuid.UUID | None = None
        self._asked_at = time.monotonic()
        self._sent: set[int] = set()
        self._groups: dict[int, list[int]] = defaultdict(list)
        self._is_settled = False
        if not keep:
            expect_reader(collection=collection)

    async def lines(self) -> AsyncIterator[bytes]:
        """Yield the collection, then rollouts (or groups of them) in the order in which they end, then the end line.

        The first and the last line say what may be trained on.
        """
        until = time.monotonic() + self._seconds
        quiet_since = time.monotonic()
        self._reader = await run_query(begin_reading, collection=self._collection)
        yield _line({"type": "collection", **await run_query(self._read_ledger)})
        while True:
            look = await self._look(until)
            for rollout_id, task_id in look.fresh if look else []:
                self._sent.add(rollout_id)
                async for line in self._told(rollout_id, task_id):
                    quiet_since = time.monotonic()
                    yield line
            if reason := self._why_over(look, until):
                break
            if time.monotonic() - quiet_since > HEARTBEAT_SECONDS:
                quiet_since = time.monotonic()
                yield HEARTBEAT
            await asyncio.sleep(LOOK_SECONDS if look else AWAY_SECONDS)
        for task_id in list(self._groups):
            yield await run_query(self._read_group, task_id)
        self._is_settled = True
        if reason in {"time", "denied"} and not self._keep:
            await run_query(self._cancel)
        yield _line({"type": "end", "reason": reason, **await run_query(self._read_end)})

    def leave(self) -> None:
        """Cancel the rest of the collection when the reader leaves, unless it is kept or the reader may return.

        Idempotent.
        """
        if self._keep or self._is_settled or self._reader is None:
            return
        self._is_settled = True
        if self._may_return:
            leave_unread(collection=self._collection, reader=self._reader)
        else:
            self._cancel()

    def _cancel(self) -> None:
        # Not if a later reader took over.
        if Collection.objects.filter(pk=self._collection.pk, reader=self._reader).exists():
            with suppress(CannotSteer):  # It ended meanwhile.
                cancel_collection(collection=self._collection, user=self._user)

    async def _told(self, rollout_id: int, task_id: int) -> AsyncIterator[bytes]:
        if not self._grouped:
            yield await run_query(self._read_rollout, rollout_id)
            return
        group = self._groups[task_id]
        group.append(rollout_id)
        if len(group) == self._collection.repeats:
            yield await run_query(self._read_group, task_id)

    async def _look(self, until: float) -> _Look | None:
        """Return None while the database is unavailable. Raise its error once the stream's time is over."""
        try:
            return await run_query(self._read)
        except (OperationalError, InterfaceError):
            if time.monotonic() >= until:
                raise
            await run_query(connection.close)
            return None

    def _read(self) -> _Look:
        # The state is read first, so all rollouts that it counts as ended are found below.
        row = Collection.objects.values_list("state", "completed", "failed").get(pk=self._collection.pk)
        state, ended = row[0], row[1] + row[2]
        fresh: list[tuple[int, int]] = []
        rollouts = Rollout.objects.filter(collection_id=self._collection.pk)
        if ended != len(self._sent) or state != Collection.State.RUNNING:
            rows = rollouts.filter(status__in=ENDED).order_by("finished_at", "pk").values_list("pk", "task_id")
            fresh = [row for row in rows if row[0] not in self._sent]
        may_read = True
        if time.monotonic() - self._asked_at >= ACCESS_SECONDS:
            self._asked_at, may_read = time.monotonic(), self._may_read()
        # Queried only for paused collections, which may still have running rollouts.
        running = state != Collection.State.PAUSED or rollouts.filter(status=Rollout.Status.RUNNING).exists()
        return _Look(state, running, ended, fresh if may_read else [], may_read)

    def _why_over(self, look: _Look | None, until: float) -> str:
        """Return why the stream ends.

        `completed`, `cancelled` or `paused` like the collection, `denied` if the reader lost permission, `time` if its
        time is up, or an empty string.
        """
        if look and not look.may_read:
            return "denied"
        over = (Collection.State.COMPLETED, Collection.State.CANCELLED)
        if look and (look.state in over or (look.state == Collection.State.PAUSED and not look.running)):
            return look.state
        return "time" if time.monotonic() >= until else ""

    def _read_end(self) -> dict[str, Any]:
        """Return the counts and, for a paused collection, the reason."""
        self._collection.refresh_from_db()
        pause = explain_pause(self._collection)
        return {**self._read_ledger(), **({"message": f"Paused, since {pause}"} if pause else {})}

    def _read_ledger(self) -> dict[str, Any]:
        """Return the counts, and what may be trained on."""
        found = read_trainability(self._collection)
        if self._options.grammar_calls == "keep":
            left_out = [one for one in found.left_out if one.level != "token"]
            found = replace(found, trainable_tokens=found.sampled_tokens, left_out=left_out, notice="", grammar="")
        elif found.sampled_tokens is None:
            found = replace(found, notice=foresee_trainability(self._collection))
        found = add_parts(found, turns=self._turns, altered=self._altered)
        return {**_counts(self._collection), "trainability": msgspec.to_builtins(found)}

    def _read_group(self, task_id: int) -> bytes:
        """Return the line of a group. Rollouts are read one at a time, so only their text is in memory together."""
        ids = self._groups.pop(task_id)
        rollouts = b",".join(self._read_rollout(rollout_id).rstrip() for rollout_id in ids)
        is_whole = b"true" if len(ids) == self._collection.repeats else b"false"
        figures = dump_json(_group_figures(ids)).encode()
        return b'{"type":"group","task":%d,"is_whole":%b,"figures":%b,"rollouts":[%b]}\n' % (
            task_id,
            is_whole,
            figures,
            rollouts,
        )

    def _read_rollout(self, rollout_id: int) -> bytes:
        rollout = Rollout.objects.select_related("task", "collection__policy_model").get(pk=rollout_id)
        graph = rollout.graph(tokens=True, images=True)
        fields = describe_rollout(rollout, graph, self._options)
        if not fields["left_out"]:
            calls = _effective_calls(graph)
            self._turns.update(count_unusable(calls))
            self._altered.update(name_altered(calls) if fields["segments"] else ())
        model = self._collection.snapshot["policy_model"]
        server = {"logprob_mode": model.get("logprob_mode", ""), **model.get("engine", {})}
        return escape_line_ends(dump_json({**fields, **server}).encode()) + b"\n"


def _group_figures(ids: list[int]) -> dict[str, Any]:
    """Return the statistics of a group as exports have them, and the advantages by rollout.

    Each rollout with a reward counts once. Failed and masked rollouts are left out.
    """
    rows = Rollout.objects.filter(pk__in=ids, status=Rollout.Status.COMPLETED, masked="", reward__isnull=False)
    rewards = {pk: float(reward) for pk, reward in rows.values_list("pk", "reward") if reward is not None}
    group = measure_group(list(rewards.values()))
    if group is None:
        return {"group_size": 0, "zero_variance": True, "advantages": {}}
    told = {pk: group_figures(reward, group) for pk, reward in rewards.items()}
    names = ("advantage", "advantage_mean_only")
    advantages = {str(pk): {name: figures[name] for name in names} for pk, figures in told.items()}
    shared = {name: value for name, value in next(iter(told.values())).items() if name not in names}
    return {**shared, "advantages": advantages}


def _counts(collection: Collection) -> dict[str, Any]:
    names = ("state", "total", "completed", "failed", "cancelled", "rewarded")
    return {"collection": collection.pk, **{name: getattr(collection, name) for name in names}}


def _line(fields: dict[str, Any]) -> bytes:
    return escape_line_ends(orjson.dumps(fields, option=orjson.OPT_APPEND_NEWLINE))


def describe_rollout(rollout: Rollout, graph: TraceGraph, options: Options | None = None) -> dict[str, Any]:
    """Return the fields of an ended rollout that a trainer needs.

    `left_out` is the reason why it is left out by default (apps.gym.trainability).

    Prompt, tools and items are those of the main path. The prompt is that of the task row, not masked.
    `segments` are the captured tokens of all paths, ready to train on; None if they cannot be read. A
    rollout that `options` would drop from an export has none.
    """
    names = ("repeat", "seed", "status", "reward", "masked", "components", "stop_reason", "error_kind", "error_message")
    figures = ("turns", "tool_calls", "tool_errors", "input_tokens", "output_tokens", "duration")
    task = rollout.task
    row = full_row(task)
    events, redactor = graph.main, fresh_redactor()
    if redactor.is_suspicious(task.row_json):
        events = restore_prompts(events, input_items(row), redactor)
    # Without an answer that only `finish` has: no call wrote it.
    events = with_unique_ids([event for event in events if not isinstance(event, AgentEnd)])
    response = assemble_response(events, row, stop_reason=rollout.stop_reason)
    return {
        "type": "rollout",
        "rollout": rollout.pk,
        "task": task.pk,
        "task_index": task.index,
        "external_id": task.external_id,
        **{name: getattr(rollout, name) for name in names},
        "left_out": find_reason(rollout),
        "model_version": rollout.model_version,
        **{name: getattr(rollout, name) for name in figures},
        "cost": rollout.known_cost,
        "prompt": prompt_items(events),
        "tools": offered_tools(events, row),
        "items": response["output"],
        **_tokens(graph, options or Options()),
    }


def _effective_calls(graph: TraceGraph) -> list[ModelCall]:
    return [graph.calls[call] for call in graph.effective_calls]


def _tokens(graph: TraceGraph, options: Options) -> dict[str, Any]:
    try:
        if media := find_media(graph.events):
            raise Dropped(media)
        refuse_sampling(_effective_calls(graph), options)
        found, joined = check_graph(graph), join_graph(graph)
    except TokensUnreadable as wrong:
        return {"segments": None, "tokens_note": str(wrong)}
    except Dropped as why:
        return {"segments": [], "tokens_note": why.reason, "is_one_sequence": False}
    if options.grammar_calls == "mask":
        for one in joined:
            mask_grammar(one.segment, one.sampled)
    segments = [
        {
            **{name: part if name == "calls" else part.tolist() for name, part in one.segment._asdict().items()},
            "sampled": msgspec.to_builtins(one.sampled),
            "weight": 1 / (sum(any(each.segment.mask) for each in joined) or len(joined)),
            **({} if graph.is_line else {"lineage": one.lineage}),
        }
        for one in joined
    ]
    calls = [event for event in graph.events if isinstance(event, ModelCall) and event.tokens is None]
    note = next((event.tokens_note for event in calls if event.tokens_note), "")
    return {"segments": segments, "tokens_note": note, "is_one_sequence": found.captured > 0 and found.is_whole}
