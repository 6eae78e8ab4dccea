"""Queue, cancel and resume sends of exported traces."""

from dataclasses import dataclass, field

from django.db import IntegrityError, transaction
from django.utils import timezone

from apps.accounts.audit_log import record, update_row
from apps.accounts.models import User
from apps.exports.models import Export, TraceDestination, TraceSend
from apps.exports.trace_sends.otlp_requests import MISSING
from apps.gym.request_refusals import Refusal
from apps.gym.rollout_files.otlp_protobuf import is_installed
from apps.gym.specs import described

State = TraceSend.State
FORMAT = "otel_genai"


class TraceSendRefused(Refusal, status=409, code="trace-send-refused"):
    """Raised if an export cannot be sent, or a send cannot be cancelled or resumed. `argument` is the invalid field."""


@dataclass(frozen=True, kw_only=True)
class TraceSendOrder:
    """A request to send the traces of an export."""

    export: Export = field(metadata=described("Export", "Ready export with the format OpenTelemetry GenAI spans"))
    destination: TraceDestination = field(metadata=described("Destination", "Receiver of the traces"))


def can_be_sent(export: Export) -> bool:
    """Return True if the export has traces in the format that receivers read."""
    return not _export_problem(export)


def _export_problem(export: Export) -> str:
    if export.format != FORMAT:
        return f"has the format {export.format}. Choose one with the format OpenTelemetry GenAI spans."
    if export.state != Export.State.READY:
        return f"is {export.get_state_display()}, not ready. Wait, or choose another export."
    return "" if export.rows else "is empty. Choose an export with at least one row."


def queue_trace_send(order: TraceSendOrder, *, user: User | None = None) -> TraceSend:
    """Queue a send for a worker. Raise TraceSendRefused.

    Sending an export again replaces the traces at the receiver, because their ids stay the same.
    """
    export, destination = order.export, order.destination
    if problem := _export_problem(export):
        raise TraceSendRefused(f"Export #{export.pk} {problem}", "export")
    if not is_installed():
        raise TraceSendRefused(MISSING)
    send = TraceSend(export=export, destination=destination, total=export.rows, created_by=user)
    try:
        with transaction.atomic():
            send.save(force_insert=True)
            record(user=user, action="trace_send.create", target=send, export=export.pk, destination=destination.name)
    except IntegrityError:
        raise TraceSendRefused(
            f"This export is already being sent to {destination.name}. Wait until that send ends, or cancel it.",
            "destination",
        ) from None
    return send


def cancel_trace_send(*, send: TraceSend, user: User | None = None) -> TraceSend:
    """Cancel a send. Idempotent. Traces that were sent stay at the receiver. Raise TraceSendRefused if it has ended."""
    now = timezone.now()
    cancelled = {"state": State.CANCELLED, "touched_at": now, "finished_at": now}
    unfinished = {"state__in": [State.QUEUED, State.SENDING]}
    update_row(send, cancelled, only=unfinished, user=user, action="trace_send.cancel", target=send)
    if send.state != State.CANCELLED:
        raise TraceSendRefused("This send has finished and cannot be cancelled.")
    return send


def resume_trace_send(*, send: TraceSend, user: User | None = None) -> TraceSend:
    """Continue a failed or cancelled send with its next trace. Raise TraceSendRefused."""
    queued = {
        "state": State.QUEUED,
        "attempt": 0,
        "message": "",
        "retry_at": None,
        "failing_since": None,
        "finished_at": None,
        "touched_at": timezone.now(),
    }
    stopped = {"state__in": [State.FAILED, State.CANCELLED]}
    try:
        changed = update_row(send, queued, only=stopped, user=user, action="trace_send.resume", target=send)
    except IntegrityError:
        raise TraceSendRefused(
            f"This export is already being sent to {send.destination}. Wait until that send ends, or cancel it."
        ) from None
    if not changed:
        raise TraceSendRefused(
            f"This send is {send.get_state_display()}. Only a failed or cancelled send can be resumed."
        )
    return send
