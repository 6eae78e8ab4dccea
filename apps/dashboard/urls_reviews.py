"""URLs of reviews: queues, work pages, rubrics, and annotations of a rollout."""

from django.urls import URLPattern, path

from apps.dashboard.views.reviews import (
    adjudication_views,
    queue_views,
    quick_pass_views,
    review_table_views,
    rollout_review_views,
    work_views,
)

urlpatterns: list[URLPattern] = [
    path("queues/", queue_views.queue_list, name="queue_list"),
    path("queues/new/", queue_views.queue_create, name="queue_create"),
    path("queues/<int:pk>/", queue_views.queue_detail, name="queue_detail"),
    path("queues/<int:pk>/items/", review_table_views.queue_items, name="queue_items"),
    path("queues/<int:pk>/edit/", queue_views.queue_edit, name="queue_edit"),
    path("queues/<int:pk>/delete/", queue_views.queue_delete, name="queue_delete"),
    path("queues/<int:pk>/close/", queue_views.queue_close, name="queue_close"),
    path("queues/<int:pk>/open/", queue_views.queue_open, name="queue_open"),
    path("queues/<int:pk>/review/", work_views.queue_work, name="queue_work"),
    path("queues/<int:pk>/quick-pass/", quick_pass_views.queue_quick_pass, name="queue_quick_pass"),
    path("queues/<int:pk>/undo/", work_views.review_undo, name="review_undo"),
    path("queue-items/<int:pk>/", adjudication_views.queue_item, name="queue_item"),
    path("queue-items/<int:pk>/text/<slug:side>/<int:step>/", work_views.queue_item_text, name="queue_item_text"),
    path("reviews/", review_table_views.review_list, name="review_list"),
    path("reviews/<int:pk>/submit/", work_views.review_submit, name="review_submit"),
    path("reviews/<int:pk>/text/<slug:side>/<int:step>/", work_views.review_text, name="review_text"),
    path("reviews/<int:pk>/skip/", work_views.review_skip, name="review_skip"),
    path("rubrics/", queue_views.rubric_list, name="rubric_list"),
    path("rubrics/new/", queue_views.rubric_edit, name="rubric_create"),
    path("rubrics/<slug:slug>/edit/", queue_views.rubric_edit, name="rubric_edit"),
    path("rubrics/<slug:slug>/delete/", queue_views.rubric_delete, name="rubric_delete"),
    path("rollouts/<int:pk>/flags/", rollout_review_views.rollout_flag, name="rollout_flag"),
    path("flags/<int:pk>/withdraw/", rollout_review_views.flag_withdraw, name="flag_withdraw"),
    path("rollouts/<int:pk>/override/", rollout_review_views.rollout_override, name="rollout_override"),
    path("rollouts/<int:pk>/scores/", rollout_review_views.rollout_score, name="rollout_score"),
    path("reward-overrides/<int:pk>/withdraw/", rollout_review_views.override_withdraw, name="override_withdraw"),
    path("comments/<int:pk>/resolve/", rollout_review_views.comment_resolve, name="comment_resolve"),
]
