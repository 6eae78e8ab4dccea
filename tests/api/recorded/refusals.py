"""One instance of each exception that the API answers with a problem, whether or not a recorded request raises it."""

from django.core.exceptions import PermissionDenied, RequestDataTooBig, SuspiciousOperation, ValidationError
from django.db import DataError
from django.db.models import ProtectedError
from django.http import Http404
from rest_framework import exceptions

from apps.accounts.disk_space import DiskFull, Place, Shortage
from apps.accounts.invitations import InvitationAccepted, InvitationEnded
from apps.accounts.models import SavedView
from apps.accounts.second_factor.authenticator_codes import CodeRefused, FactorUnreadable, SecondFactorRefused
from apps.accounts.sessions.browser_sessions import NotYourSession
from apps.accounts.table_preferences import NameTaken, NotYourView, ViewRefused
from apps.accounts.user_accounts import LastAdmin, ManagedByProvider
from apps.alerts.alert_delivery import AlertRefused
from apps.environments.verifier_cases import CasesNotRun
from apps.exports.export_deletion import StillBeingWritten
from apps.exports.export_orders import ExportRefused
from apps.exports.rechecks.recheck_jobs import CannotSteerRecheck, RecheckRefused
from apps.exports.retention.retention_plan import RetentionRefused
from apps.exports.trace_sends.send_orders import TraceSendRefused
from apps.gym.gymconfig.merging import ConfigRefused, Problem
from apps.gym.tasks.mappings.column_mapping import MappingRefused
from apps.gym.traces.tokens import TokensUnreadable
from apps.pairs.pair_decisions import DecisionRefused
from apps.pairs.pair_sets import CannotCancel, PairingRefused, PairSetInUse
from apps.pairs.set_differences import NothingToCompare
from apps.policies.policy_model_changes import KeyRequired
from apps.policies.row_checks import RowDeleted
from apps.reviews.comments.commenting import CommentRefused
from apps.reviews.queues.item_leases import CannotReview, LeaseLost
from apps.reviews.queues.queue_items import QueueRefused
from apps.reviews.reviews.flags import FlagRefused
from apps.reviews.reviews.review_answers import AnswerRefused
from apps.reviews.reviews.reward_overrides import OverrideEnded, OverrideRefused
from apps.reviews.reviews.rubric_changes import RubricInUse
from apps.reviews.reviews.submission import AlreadySubmitted
from apps.rollouts.imports.task_matching import BadLine, ImportRefused
from apps.rollouts.logprob_checks import NoComparableTokens
from apps.rollouts.metrics.collection_comparison import CannotContrast
from apps.rollouts.metrics.model_matrix import MatrixRefused
from apps.rollouts.plans.planning import PlanConflict
from apps.rollouts.plans.task_selection import NothingToCollect
from apps.rollouts.reverification.reverification_jobs import CannotApply, ReverifyRefused
from apps.rollouts.rollout_steps import CannotCompare
from apps.rollouts.scans.scan_controls import CannotScan
from apps.rollouts.scans.scan_estimates import ScanRefused
from apps.rollouts.search.filters.query_time_limit import FilterTooSlow
from apps.rollouts.server_metrics.aggregate_requests import NoServerMetrics
from apps.rollouts.serving.attempt_commands import (
    AttemptEnded,
    CommandRefused,
    NoSeat,
    NotClaimable,
    NotYours,
    WorkerUnreachable,
)
from apps.rollouts.steering.controls import CannotSteer
from apps.rollouts.steering.rollout_deletion import RemovalRefused
from apps.tasks.deletion_jobs import AlreadyBeingDeleted, StillInUse
from apps.tasks.gold_checks import NotCheckable
from apps.tasks.received_files import DatasetIsBeingDeleted, NotReceiving, PartTooLarge, WrongOffset
from apps.tasks.task_marks import MarkRefused
from apps.tasks.upload_choices import ChoiceRefused
from apps.tasks.upload_jobs import NotWaiting
from apps.tasks.upload_turns import DatasetIsBusy
from apps.tracking.hub_pushes import PushRefused
from apps.tracking.run_links import RunNotActive, TrackingRefused

WITH_A_MESSAGE = [
    AttemptEnded,
    CommandRefused,
    NoSeat,
    NotClaimable,
    NotYours,
    WorkerUnreachable,
    NothingToCollect,
    CasesNotRun,
    PlanConflict,
    CannotContrast,
    NoServerMetrics,
    FilterTooSlow,
    CannotSteer,
    ImportRefused,
    ReverifyRefused,
    RemovalRefused,
    CannotApply,
    PairingRefused,
    CannotCancel,
    PairSetInUse,
    NothingToCompare,
    ExportRefused,
    CommentRefused,
    NotYourView,
    ViewRefused,
    QueueRefused,
    LeaseLost,
    AlreadySubmitted,
    CannotReview,
    RubricInUse,
    FlagRefused,
    OverrideEnded,
    OverrideRefused,
    LastAdmin,
    RowDeleted,
    TokensUnreadable,
    NotReceiving,
    StillBeingWritten,
    StillInUse,
    AlreadyBeingDeleted,
    NotWaiting,
    NotCheckable,
    DatasetIsBeingDeleted,
    DatasetIsBusy,
    PartTooLarge,
    Http404,
    PermissionDenied,
    RequestDataTooBig,
    SuspiciousOperation,
    DataError,
    exceptions.NotFound,
    exceptions.MethodNotAllowed,
    exceptions.NotAuthenticated,
]
WITH_A_FIELD = [
    ReverifyRefused,
    RemovalRefused,
    PairingRefused,
    ExportRefused,
    ViewRefused,
    QueueRefused,
    DecisionRefused,
]
MESSAGE = "This cannot be done: choose another one."

REFUSALS: list[Exception] = [
    *[kind(MESSAGE) for kind in WITH_A_MESSAGE],
    *[kind(MESSAGE, "field") for kind in WITH_A_FIELD],
    *[kind(MESSAGE, "field") for kind in (MarkRefused, ChoiceRefused)],
    MappingRefused(MESSAGE, "mapping/input"),
    ImportRefused(MESSAGE, [BadLine("rows.jsonl", 3, "not_json", MESSAGE)], 7),
    ConfigRefused(Problem("env.yaml", "calculator.host", MESSAGE), Problem("env.yaml", "", MESSAGE)),
    NameTaken("Mine", SavedView(pk=3), "choose another name"),
    AnswerRefused({"choice": "Choose one.", "scores.clear": "Give a number."}),
    WrongOffset(12_345),
    DiskFull(Shortage(Place.FILES, "/", 1_000_000, 2_000_000_000)),
    ProtectedError(MESSAGE, set()),
    KeyRequired(),
    ValidationError(MESSAGE),
    ValidationError({"field": [MESSAGE, ValidationError(MESSAGE, "code", {"pointer": "/0"})], "__all__": MESSAGE}),
    exceptions.ValidationError({"field": {"0": [MESSAGE]}, "non_field_errors": [MESSAGE]}),
    exceptions.Throttled(30),
    exceptions.AuthenticationFailed({"one": MESSAGE}),
    MatrixRefused(MESSAGE, "field"),
    ScanRefused(MESSAGE, "field"),
    CannotScan(MESSAGE),
    RetentionRefused(MESSAGE, "field"),
    AlertRefused(MESSAGE),
    CannotCompare(MESSAGE),
    InvitationEnded(),
    InvitationAccepted(MESSAGE),
    ManagedByProvider(MESSAGE, "field"),
    SecondFactorRefused(MESSAGE),
    FactorUnreadable(MESSAGE),
    CodeRefused(),
    NotYourSession(MESSAGE),
    TraceSendRefused(MESSAGE, "field"),
    TrackingRefused(MESSAGE, "field"),
    RunNotActive(MESSAGE),
    PushRefused(MESSAGE, "field"),
    RecheckRefused(MESSAGE, "field"),
    CannotSteerRecheck(MESSAGE),
    NoComparableTokens(MESSAGE),
]
