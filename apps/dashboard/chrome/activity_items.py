"""Background work and alerts for the header of every page, with one query."""

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from django.db import connection
from django.db.models import BigIntegerField, CharField, F, QuerySet, Value
from django.db.models.functions import Cast, Coalesce
from django.urls import reverse

from apps.environments.models import Environment
from apps.exports.models import Export, TraceSend
from apps.pairs.models import PairSet
from apps.policies.models import Health, PolicyModel
from apps.rollouts.engine.worker_leases import STATES_WITH_LEASE
from apps.rollouts.models import Breaker, Collection, CollectionDeletion, Recheck, Reverification, Scan, Worker
from apps.rollouts.steering.holds import RAISE
from apps.tasks.models import Deletion, Upload

SHOWN = 30
"""Maximum number of background jobs and alerts in the menu."""


@dataclass(frozen=True, slots=True)
class Alert:
    """An alert: rollouts wait until a user acts or an endpoint recovers."""

    what: str
    name: str
    says: str
    url: str


@dataclass(frozen=True, slots=True)
class Happening:
    tasks: list["Task"]
    alerts: list[Alert]
    is_cut: bool = False


_PAGES = {
    "upload": "upload_detail",
    "export": "export_detail",
    "trace send": "export_detail",
    "pair set": "pair_set_detail",
    "recheck": "recheck_detail",
    "verification": "reverification_detail",
    "scan": "scan_detail",
    "deletion": "deletion_detail",
    "deletion of a collection": "collection_deletion_detail",
    "paused collection": "collection_detail",
    "policy model": "model_detail",
    "environment": "environment_detail",
    "breaker of policy model": "model_detail",
    "breaker of environment": "environment_detail",
    "worker": "worker_list",
}
_NONE = Value(0)
_WORDS = {"verification": "reverification", "deletion of a collection": "deletion"}


class Task(NamedTuple):
    """A background job, or one cause of an alert."""

    ref: str
    group: str
    kind: str
    name: str
    says: str
    done: int
    whole: int

    @property
    def url(self) -> str:
        page = _PAGES[self.kind]
        return reverse(f"dashboard:{page}", args=[] if page == "worker_list" else [self.ref])

    @property
    def what(self) -> str:
        return _WORDS.get(self.kind, self.kind)

    @property
    def share(self) -> float | None:
        """Return the progress from 0 to 1; None if unknown."""
        return min(1.0, self.done / self.whole) if self.whole else None


def read_happening() -> Happening:
    # One statement, because it runs on every page.
    with connection.cursor() as cursor:
        cursor.execute(*_statement(connection.vendor))
        rows = [Task(*row) for row in cursor.fetchall()]
    tasks = [row for row in rows[:SHOWN] if row.group == "task"]
    alerts = [_alert(row) for row in rows[:SHOWN] if row.group == "alert"]
    return Happening(tasks=tasks, alerts=alerts, is_cut=len(rows) > SHOWN)


@functools.cache
def _statement(vendor: str) -> tuple[str, tuple[Any, ...]]:
    """Return the SQL, cached per `vendor`: building it took a third of the time of a page."""
    parts = [*_tasks(), *_alerts()]
    union = parts[0].union(*parts[1:], all=True)[: SHOWN + 1]
    sql, given = union.query.get_compiler(connection=connection).as_sql()
    return sql, tuple(given)


def _tasks() -> Iterable[QuerySet[Any, Any]]:
    """Return the unfinished background jobs, one query per kind (see WORKER_BACKGROUND_JOBS in the settings)."""
    loaded = ("read_bytes", "received_bytes")
    yield _jobs(Upload, "upload", [Upload.State.QUEUED, Upload.State.LOADING], "dataset__name", loaded)
    yield _jobs(Export, "export", [Export.State.QUEUED, Export.State.WRITING], "collection__name")
    sending = [TraceSend.State.QUEUED, TraceSend.State.SENDING]
    yield _jobs(TraceSend, "trace send", sending, "destination__name", ("sent", "total"), ref="export_id")
    yield _jobs(PairSet, "pair set", [PairSet.State.QUEUED, PairSet.State.MAKING], "name", ("considered", "total"))
    verifying = [Reverification.State.QUEUED, Reverification.State.VERIFYING, Reverification.State.APPLYING]
    verified = (F("verified") + F("failed"), "total")
    yield _jobs(Reverification, "verification", verifying, "collection__name", verified)
    checking = [Recheck.State.QUEUED, Recheck.State.RUNNING]
    to_check = F("total") + F("outcomes") + F("untrainable") + F("counts")
    checked = (F("checked") + F("applied") + F("skipped"), to_check)
    yield _jobs(Recheck, "recheck", checking, "collection__name", checked)
    yield _jobs(Scan, "scan", [Scan.State.RUNNING], "name", (F("answered") + F("failed"), "total"))
    for model, what in ((Deletion, "deletion"), (CollectionDeletion, "deletion of a collection")):
        yield _jobs(model, what, ["queued", "deleting"], "name", ("deleted", "total"))


def _jobs(
    model: Any,
    what: str,
    states: Sequence[str],
    name: str,
    progress: tuple[Any, Any] = (_NONE, _NONE),
    *,
    ref: str = "pk",
) -> QuerySet[Any, Any]:
    """Return the jobs in these states. `progress` has the finished and all parts of a job."""
    done, whole = progress
    rows = model.objects.filter(state__in=states)
    return _rows(rows, "task", what, ref=ref, name=name, says="state", done=done, whole=whole)


def _alerts() -> Iterable[QuerySet[Any, Any]]:
    shut = Breaker.objects.exclude(state=Breaker.State.CLOSED)
    for endpoint, what in (("policy_model", "policy model"), ("environment", "environment")):
        yield _rows(
            shut.filter(**{f"{endpoint}__isnull": False}),
            "alert",
            f"breaker of {what}",
            ref=f"{endpoint}__slug",
            name=f"{endpoint}__name",
            says="message",
        )
    unwell: list[tuple[QuerySet[Any], str]] = [
        (PolicyModel.objects.filter(health=Health.UNHEALTHY), "policy model"),
        (Environment.objects.filter(health=Health.UNHEALTHY), "environment"),
    ]
    for rows, what in unwell:
        yield _rows(rows, "alert", what, ref="slug", name="name", says="health_message")
    paused = Collection.objects.listed().filter(state=Collection.State.PAUSED, pause_reason__in=list(RAISE))
    yield _rows(paused, "alert", "paused collection", name="name", says="pause_reason")
    stuck = Worker.objects.filter(state__in=STATES_WITH_LEASE).exclude(trouble="")
    yield _rows(stuck, "alert", "worker", name="host", says="trouble")


def _rows(rows: QuerySet[Any], group: str, what: str, **columns: Any) -> QuerySet[Any, Any]:
    """Return the same columns and types for each table: (id or slug, group, kind, name, state or message, …)."""
    given = {"ref": "pk", "done": _NONE, "whole": _NONE, **columns}
    text, whole = CharField(max_length=500), BigIntegerField()
    casts: dict[str, Any] = {f"u_{name}": Cast(given[name], text) for name in ("ref", "name", "says")}
    casts["u_name"] = Coalesce(casts["u_name"], Value("", output_field=text))
    numbers = {f"u_{name}": Cast(given[name], whole) for name in ("done", "whole")}
    kinds = {"u_group": Value(group, output_field=text), "u_what": Value(what, output_field=text)}
    names = ("u_ref", "u_group", "u_what", "u_name", "u_says", "u_done", "u_whole")
    columned: QuerySet[Any, Any] = rows.order_by().annotate(**casts, **numbers, **kinds).values_list(*names)
    return columned


def _alert(row: Task) -> Alert:
    if row.kind == "paused collection":
        reason = Collection.PauseReason(row.says)
        return Alert("paused", f"#{row.ref} {row.name}", f"{reason.label}: {RAISE[reason]}", row.url)
    if row.kind.startswith("breaker of "):
        return Alert("breaker open", row.name, row.says or "Its calls fail", row.url)
    if row.kind == "worker":
        return Alert("worker problem", f"{row.name}, worker {row.ref}", row.says, row.url)
    return Alert(f"{row.kind} unhealthy", row.name, row.says or "Its health check failed", row.url)
