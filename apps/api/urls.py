from django.urls import URLPattern, URLResolver, include, path, re_path
from rest_framework.routers import SimpleRouter

from apps.api.agents import AgentViewSet
from apps.api.audit_entries import AuditEntryViewSet
from apps.api.collection_deletions import CollectionDeletionViewSet
from apps.api.collections import CollectionViewSet
from apps.api.column_mappings import ColumnMappingViewSet
from apps.api.comments import CommentViewSet
from apps.api.datasets import DatasetViewSet
from apps.api.deletions import DeletionViewSet
from apps.api.docs import docs
from apps.api.environments import EnvironmentViewSet
from apps.api.exports import ExportViewSet
from apps.api.gym_configs import GymConfigViewSet
from apps.api.me import ApiKeyViewSet, MeViewSet
from apps.api.missing import NothingHereView
from apps.api.opinions import FlagViewSet, RewardOverrideViewSet, VerdictViewSet
from apps.api.pairs import PairSetViewSet, PairViewSet
from apps.api.people import PersonViewSet
from apps.api.policy_models import PolicyModelViewSet
from apps.api.queues import QueueItemViewSet, QueueViewSet
from apps.api.redaction import RedactionPatternViewSet
from apps.api.reverifications import ReverificationViewSet
from apps.api.reviews import ReviewViewSet
from apps.api.rollouts import RolloutViewSet
from apps.api.rubrics import RubricViewSet
from apps.api.saved_views import SavedViewViewSet
from apps.api.schema import SchemaView
from apps.api.streams import StreamViewSet
from apps.api.tasks import TaskViewSet
from apps.api.uploads import UploadViewSet
from apps.api.verifiers import VerifierViewSet
from apps.api.workers import WorkerViewSet

router = SimpleRouter()
router.register("me/keys", ApiKeyViewSet, basename="key")
router.register("datasets", DatasetViewSet)
router.register("uploads", UploadViewSet)
router.register("tasks", TaskViewSet)
router.register("column-mappings", ColumnMappingViewSet)
router.register("deletions", DeletionViewSet)
router.register("environments", EnvironmentViewSet)
router.register("policy-models", PolicyModelViewSet)
router.register("agents", AgentViewSet)
router.register("collections", CollectionViewSet)
router.register("collection-deletions", CollectionDeletionViewSet)
router.register("rollouts", RolloutViewSet)
router.register("saved-views", SavedViewViewSet)
router.register("reverifications", ReverificationViewSet)
router.register("pair-sets", PairSetViewSet)
router.register("pairs", PairViewSet)
router.register("exports", ExportViewSet)
router.register("redaction-patterns", RedactionPatternViewSet)
router.register("comments", CommentViewSet)
router.register("rubrics", RubricViewSet)
router.register("queues", QueueViewSet)
router.register("queue-items", QueueItemViewSet)
router.register("reviews", ReviewViewSet)
router.register("flags", FlagViewSet)
router.register("reward-overrides", RewardOverrideViewSet)
router.register("workers", WorkerViewSet)
router.register("audit-entries", AuditEntryViewSet)
router.register("people", PersonViewSet)

app_name = "api"
urlpatterns: list[URLPattern | URLResolver] = [
    path("v1/me/", MeViewSet.as_view({"get": "show"}), name="me"),
    path("v1/verifiers/", VerifierViewSet.as_view({"get": "show"}), name="verifiers"),
    path("v1/verifiers/try/", VerifierViewSet.as_view({"post": "attempt"}), name="verifier_try"),
    path("v1/gym-configs/", GymConfigViewSet.as_view({"post": "register"}), name="gym_configs"),
    path("v1/gym-configs/preview/", GymConfigViewSet.as_view({"post": "preview"}), name="gym_config_preview"),
    path("v1/verdicts/", VerdictViewSet.as_view({"get": "show"}), name="verdicts"),
    path("v1/rollouts/stream/", StreamViewSet.as_view({"post": "stream"}), name="rollout_stream"),
    path("v1/", include(router.urls)),
    path("schema/", SchemaView.as_view(), name="schema"),
    path("docs/", docs, name="docs"),
    re_path("", NothingHereView.as_view(), name="nothing"),
]
