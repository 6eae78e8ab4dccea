"""Addresses of the work itself: collections, rollouts, pairs, exports, workers."""

from django.urls import URLPattern, path

from apps.dashboard.views import collections, exports, importing, pairs, reverifications, rollouts, steering, workers

urlpatterns: list[URLPattern] = [
    path("collections/", collections.collection_list, name="collection_list"),
    path("collections/new/", collections.collection_create, name="collection_create"),
    path("collections/import/", importing.collection_import, name="collection_import"),
    path("collections/<int:pk>/", collections.collection_detail, name="collection_detail"),
    path("collections/<int:pk>/pause/", steering.collection_pause, name="collection_pause"),
    path("collections/<int:pk>/resume/", steering.collection_resume, name="collection_resume"),
    path("collections/<int:pk>/limits/", steering.collection_adjust, name="collection_adjust"),
    path("collections/<int:pk>/retry/", steering.collection_retry, name="collection_retry"),
    path("collections/<int:pk>/cancel/", steering.collection_cancel, name="collection_cancel"),
    path("rollouts/", rollouts.rollout_list, name="rollout_list"),
    path("rollouts/<int:pk>/", rollouts.rollout_detail, name="rollout_detail"),
    path("rollouts/<int:pk>/raw/", rollouts.rollout_raw, name="rollout_raw"),
    path("rollouts/<int:pk>/comments/", rollouts.rollout_comment, name="rollout_comment"),
    path("reverifications/", reverifications.reverification_list, name="reverification_list"),
    path("reverifications/new/", reverifications.reverification_create, name="reverification_create"),
    path("reverifications/<int:pk>/", reverifications.reverification_detail, name="reverification_detail"),
    path("reverifications/<int:pk>/apply/", reverifications.reverification_apply, name="reverification_apply"),
    path("reverifications/<int:pk>/cancel/", reverifications.reverification_cancel, name="reverification_cancel"),
    path("pair-sets/", pairs.pair_set_list, name="pair_set_list"),
    path("pair-sets/new/", pairs.pair_set_create, name="pair_set_create"),
    path("pair-sets/<int:pk>/", pairs.pair_set_detail, name="pair_set_detail"),
    path("pairs/<int:pk>/", pairs.pair_detail, name="pair_detail"),
    path("exports/", exports.export_list, name="export_list"),
    path("exports/new/", exports.export_create, name="export_create"),
    path("exports/<int:pk>/", exports.export_detail, name="export_detail"),
    path("exports/<int:pk>/download/", exports.export_download, name="export_download"),
    path("exports/<int:pk>/manifest/", exports.export_manifest, name="export_manifest"),
    path("workers/", workers.worker_list, name="worker_list"),
    path("workers/<int:pk>/drain/", workers.worker_drain, name="worker_drain"),
]
