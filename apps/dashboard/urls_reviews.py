"""Addresses of what people judge: queues, the pages on which they work, rubrics, and what they say of a rollout."""

from django.urls import URLPattern, path

from apps.dashboard.views import judging, queues, review_tables, reviewing, rubrics, settling

urlpatterns: list[URLPattern] = [
    path("queues/", queues.queue_list, name="queue_list"),
    path("queues/new/", queues.queue_create, name="queue_create"),
    path("queues/<int:pk>/", queues.queue_detail, name="queue_detail"),
    path("queues/<int:pk>/items/", review_tables.queue_items, name="queue_items"),
    path("queues/<int:pk>/edit/", queues.queue_edit, name="queue_edit"),
    path("queues/<int:pk>/delete/", queues.queue_delete, name="queue_delete"),
    path("queues/<int:pk>/close/", queues.queue_close, name="queue_close"),
    path("queues/<int:pk>/open/", queues.queue_open, name="queue_open"),
    path("queues/<int:pk>/review/", reviewing.queue_work, name="queue_work"),
    path("queues/<int:pk>/undo/", reviewing.review_undo, name="review_undo"),
    path("queue-items/<int:pk>/", settling.queue_item, name="queue_item"),
    path("queue-items/<int:pk>/text/<slug:side>/<int:step>/", reviewing.queue_item_text, name="queue_item_text"),
    path("reviews/", review_tables.review_list, name="review_list"),
    path("reviews/<int:pk>/submit/", reviewing.review_submit, name="review_submit"),
    path("reviews/<int:pk>/text/<slug:side>/<int:step>/", reviewing.review_text, name="review_text"),
    path("reviews/<int:pk>/skip/", reviewing.review_skip, name="review_skip"),
    path("rubrics/", rubrics.rubric_list, name="rubric_list"),
    path("rubrics/new/", rubrics.rubric_create, name="rubric_create"),
    path("rubrics/<slug:slug>/edit/", rubrics.rubric_edit, name="rubric_edit"),
    path("rubrics/<slug:slug>/delete/", rubrics.rubric_delete, name="rubric_delete"),
    path("rollouts/<int:pk>/flags/", judging.rollout_flag, name="rollout_flag"),
    path("flags/<int:pk>/withdraw/", judging.flag_withdraw, name="flag_withdraw"),
    path("rollouts/<int:pk>/override/", judging.rollout_override, name="rollout_override"),
    path("rollouts/<int:pk>/scores/", judging.rollout_score, name="rollout_score"),
    path("reward-overrides/<int:pk>/withdraw/", judging.override_withdraw, name="override_withdraw"),
    path("comments/<int:pk>/resolve/", judging.comment_resolve, name="comment_resolve"),
]
