from django.urls import URLPattern, URLResolver, include, path, re_path
from rest_framework.routers import SimpleRouter
from rest_framework.viewsets import ViewSetMixin

from apps.api.accounts.audit_viewsets import AuditEntryViewSet
from apps.api.accounts.invitation_viewsets import InvitationViewSet
from apps.api.accounts.own_account import ApiKeyViewSet, MeViewSet
from apps.api.accounts.people_viewsets import PersonViewSet
from apps.api.accounts.redaction_viewsets import RedactionPatternViewSet
from apps.api.accounts.saved_view_viewsets import SavedViewViewSet
from apps.api.accounts.session_viewsets import SessionViewSet
from apps.api.agent_viewsets import AgentViewSet
from apps.api.alert_viewsets import DeliveryViewSet, SubscriptionViewSet
from apps.api.attempts.attempt_viewsets import AttemptViewSet
from apps.api.collections.collection_viewsets import CollectionViewSet
from apps.api.collections.stream_viewsets import StreamViewSet
from apps.api.datasets.column_mapping_viewsets import ColumnMappingViewSet
from apps.api.datasets.dataset_viewsets import DatasetViewSet
from apps.api.datasets.suite_viewsets import SuiteViewSet
from apps.api.datasets.task_viewsets import TaskViewSet
from apps.api.datasets.upload_viewsets import UploadViewSet
from apps.api.deletion_viewsets import CollectionDeletionViewSet, DeletionViewSet
from apps.api.environments.environment_viewsets import EnvironmentViewSet
from apps.api.environments.gym_config_viewsets import GymConfigViewSet
from apps.api.environments.verifier_viewsets import VerifierViewSet
from apps.api.export_viewsets import ExportViewSet
from apps.api.fleet.worker_viewsets import WorkerViewSet
from apps.api.framework.not_found import UnknownPathView
from apps.api.framework.openapi_schema import SchemaView, swagger_page
from apps.api.pairs.pair_viewsets import PairSetViewSet, PairViewSet
from apps.api.policy_models.policy_model_viewsets import PolicyModelViewSet
from apps.api.retention_viewsets import RetentionViewSet
from apps.api.reviews.comment_viewsets import CommentViewSet
from apps.api.reviews.opinion_viewsets import FlagViewSet, RewardOverrideViewSet, VerdictViewSet
from apps.api.reviews.queue_viewsets import QueueItemViewSet, QueueViewSet
from apps.api.reviews.review_viewsets import ReviewViewSet
from apps.api.reviews.rubric_viewsets import RubricViewSet
from apps.api.rollouts.recheck_viewsets import RecheckViewSet
from apps.api.rollouts.reverification_viewsets import ReverificationViewSet
from apps.api.rollouts.rollout_viewsets import RolloutViewSet
from apps.api.rollouts.scan_viewsets import ScanViewSet
from apps.api.trace_viewsets import TraceDestinationViewSet, TraceSendViewSet
from apps.api.tracking_viewsets import HubPushViewSet, TrackedRunViewSet, TrackerViewSet

VIEWSETS: dict[str, type[ViewSetMixin]] = {
    "datasets": DatasetViewSet,
    "suites": SuiteViewSet,
    "uploads": UploadViewSet,
    "tasks": TaskViewSet,
    "column-mappings": ColumnMappingViewSet,
    "deletions": DeletionViewSet,
    "environments": EnvironmentViewSet,
    "policy-models": PolicyModelViewSet,
    "agents": AgentViewSet,
    "collections": CollectionViewSet,
    "collection-deletions": CollectionDeletionViewSet,
    "rollouts": RolloutViewSet,
    "saved-views": SavedViewViewSet,
    "rechecks": RecheckViewSet,
    "reverifications": ReverificationViewSet,
    "scans": ScanViewSet,
    "pair-sets": PairSetViewSet,
    "pairs": PairViewSet,
    "exports": ExportViewSet,
    "trace-destinations": TraceDestinationViewSet,
    "trace-sends": TraceSendViewSet,
    "trackers": TrackerViewSet,
    "tracked-runs": TrackedRunViewSet,
    "hub-pushes": HubPushViewSet,
    "redaction-patterns": RedactionPatternViewSet,
    "alert-subscriptions": SubscriptionViewSet,
    "alert-deliveries": DeliveryViewSet,
    "comments": CommentViewSet,
    "rubrics": RubricViewSet,
    "queues": QueueViewSet,
    "queue-items": QueueItemViewSet,
    "reviews": ReviewViewSet,
    "flags": FlagViewSet,
    "reward-overrides": RewardOverrideViewSet,
    "workers": WorkerViewSet,
    "audit-entries": AuditEntryViewSet,
    "people": PersonViewSet,
    "invitations": InvitationViewSet,
}
router = SimpleRouter()
router.register("me/keys", ApiKeyViewSet, basename="key")
router.register("me/sessions", SessionViewSet, basename="session")
for prefix, viewset in VIEWSETS.items():
    router.register(prefix, viewset)

app_name = "api"
urlpatterns: list[URLPattern | URLResolver] = [
    path("v1/me/", MeViewSet.as_view({"get": "show"}), name="me"),
    path("v1/verifiers/", VerifierViewSet.as_view({"get": "show"}), name="verifiers"),
    path("v1/verifiers/try/", VerifierViewSet.as_view({"post": "attempt"}), name="verifier_try"),
    path("v1/gym-configs/", GymConfigViewSet.as_view({"post": "register"}), name="gym_configs"),
    path("v1/gym-configs/preview/", GymConfigViewSet.as_view({"post": "preview"}), name="gym_config_preview"),
    path("v1/storage/", RetentionViewSet.as_view({"get": "storage"}), name="storage"),
    path("v1/retention/", RetentionViewSet.as_view({"post": "apply"}), name="retention"),
    path("v1/retention/preview/", RetentionViewSet.as_view({"post": "preview"}), name="retention_preview"),
    path("v1/verdicts/", VerdictViewSet.as_view({"get": "show"}), name="verdicts"),
    path("v1/attempts/", AttemptViewSet.as_view({"post": "create"}), name="attempts"),
    path("v1/attempts/<int:pk>/finish/", AttemptViewSet.as_view({"post": "finish"}), name="attempt_finish"),
    path("v1/attempts/<int:pk>/fail/", AttemptViewSet.as_view({"post": "fail"}), name="attempt_fail"),
    path("v1/attempts/<int:pk>/extend/", AttemptViewSet.as_view({"post": "extend"}), name="attempt_extend"),
    path("v1/rollouts/stream/", StreamViewSet.as_view({"post": "stream"}), name="rollout_stream"),
    path("v1/", include(router.urls)),
    path("schema/", SchemaView.as_view(), name="schema"),
    path("docs/", swagger_page, name="docs"),
    re_path("", UnknownPathView.as_view(), name="nothing"),
]
