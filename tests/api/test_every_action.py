"""What a person can change on a page, a program can change through the API: page by page, from both sets of routes."""

from functools import cache

import pytest
from django.urls import get_resolver

from apps.accounts.permissions import Permission
from tests.access.routes import every_route
from tests.openapi import DOCUMENT

# What only concerns who sits at the browser.
OF_PEOPLE_ONLY = {
    "account": "one's own password",
    "account_keyboard": "one's own keys of the keyboard",
    "hide_first_steps": "what the overview shows to one",
    "rollout_columns": "how a table looks to one",
    "selected_compare": "where to look next",
    "settings_outbound": "asks what an address would be told, and changes nothing",
    "selected_export": "fills in a form",
    "selected_queue": "fills in a form",
    "invitation_accept": "sessions",
    "recovery_codes_replace": "one's own second factor",
    "second_factor": "one's own second factor",
    "second_factor_remove": "one's own second factor",
    "second_factor_start": "one's own second factor",
    "sessions_end": "one's own sessions, which the API ends one by one",
    "sign_in": "sessions",
    "sign_in_code": "sessions",
    "sign_in_link": "sessions",
    "sign_out": "sessions",
    "theme": "how pages look",
}
OPERATIONS = {
    "alert_create": "POST alert-subscriptions/",
    "alert_delete": "DELETE alert-subscriptions/{id}/",
    "alert_edit": "PATCH alert-subscriptions/{id}/",
    "alert_test": "POST alert-subscriptions/{id}/test/",
    "agent_create": "POST agents/",
    "agent_edit": "PATCH agents/{slug}/",
    "agent_never_strict": "PATCH agents/{slug}/",
    "comment_resolve": "POST comments/{id}/resolve/",
    "flag_withdraw": "POST flags/{id}/withdraw/",
    "override_withdraw": "POST reward-overrides/{id}/withdraw/",
    "queue_close": "POST queues/{id}/close/",
    "queue_create": "POST queues/",
    "queue_delete": "DELETE queues/{id}/",
    "queue_edit": "PATCH queues/{id}/",
    "queue_item": "POST queue-items/{id}/adjudicate/",
    "queue_open": "POST queues/{id}/open/",
    "queue_quick_pass": "POST reviews/{id}/submit/",
    "queue_work": "POST queues/{id}/claim/",
    "review_skip": "POST reviews/{id}/skip/",
    "review_submit": "POST reviews/{id}/submit/",
    "review_undo": "POST queues/{id}/undo/",
    "rollout_flag": "POST flags/",
    "rollout_override": "POST reward-overrides/",
    "rollout_score": "POST reviews/",
    "rollouts_flag": "POST flags/",
    "rollouts_judge": "POST queues/",
    "rubric_create": "POST rubrics/",
    "rubric_delete": "DELETE rubrics/{slug}/",
    "rubric_edit": "PATCH rubrics/{slug}/",
    "collection_adjust": "PATCH collections/{id}/",
    "collection_archive": "POST collections/{id}/archive/",
    "collection_cancel": "POST collections/{id}/cancel/",
    "collection_create": "POST collections/",
    "collection_delete": "DELETE collections/{id}/",
    "rollouts_delete": "POST collections/{id}/delete_rollouts/",
    "collection_import": "POST collections/import/",
    "collection_pause": "POST collections/{id}/pause/",
    "collection_resolve_flags": "POST collections/{id}/resolve_flags/",
    "collection_restore": "POST collections/{id}/restore/",
    "collection_resume": "POST collections/{id}/resume/",
    "collection_retry": "POST collections/{id}/retry/",
    "collection_server_metrics": "POST collections/{id}/request_server_metrics/",
    "delivery_replay": "POST alert-deliveries/{id}/replay/",
    "dataset_check": "POST datasets/{slug}/versions/{number}/gold/",
    "dataset_create": "POST datasets/",
    "dataset_delete": "DELETE datasets/{slug}/",
    "dataset_edit": "PATCH datasets/{slug}/",
    "dataset_mark": "POST tasks/mark/",
    "dataset_upload": "POST datasets/{slug}/uploads/",
    "environment_check": "POST environments/{slug}/check/",
    "environment_cases": "POST environments/{slug}/run_cases/",
    "environment_create": "POST environments/",
    "environment_edit": "PATCH environments/{slug}/",
    "environment_sample": "POST environments/",
    "environment_try": "POST environments/{slug}/try/",
    "environment_import": "POST gym-configs/",
    "trace_create": "POST trace-destinations/",
    "trace_delete": "DELETE trace-destinations/{id}/",
    "trace_edit": "PATCH trace-destinations/{id}/",
    "trace_send_cancel": "POST trace-sends/{id}/cancel/",
    "trace_send_create": "POST trace-sends/",
    "trace_send_resume": "POST trace-sends/{id}/resume/",
    "export_cancel": "POST exports/{id}/cancel/",
    "export_create": "POST exports/",
    "export_delete": "DELETE exports/{id}/",
    "invitation_create": "POST invitations/",
    "invitation_revoke": "DELETE invitations/{id}/",
    "key_create": "POST me/keys/",
    "key_revoke": "DELETE me/keys/{id}/",
    "mapping_delete": "DELETE column-mappings/{slug}/",
    "model_check": "POST policy-models/{slug}/check/",
    "model_check_logprobs": "POST policy-models/{slug}/check-logprobs/",
    "model_create": "POST policy-models/",
    "model_edit": "PATCH policy-models/{slug}/",
    "model_try": "POST policy-models/{slug}/try/",
    "pair_decide": "POST pairs/{id}/decide/",
    "pair_set_decide": "POST pairs/decide/",
    "pair_set_ask": "POST pair-sets/{id}/ask/",
    "pair_set_cancel": "POST pair-sets/{id}/cancel/",
    "pair_set_create": "POST pair-sets/",
    "pair_set_delete": "DELETE pair-sets/{id}/",
    "person_create": "POST people/",
    "person_edit": "PATCH people/{id}/",
    "person_factor_remove": "POST people/{id}/remove_second_factor/",
    "person_link": "POST people/{id}/link/",
    "person_sessions_end": "POST people/{id}/end_sessions/",
    "redaction": "POST redaction-patterns/",
    "session_end": "DELETE me/sessions/{id}/",
    "settings_storage": "POST retention/",
    "settings_secrets": "PATCH policy-models/{slug}/",
    "redaction_delete": "DELETE redaction-patterns/{id}/",
    "recheck_apply": "POST rechecks/{id}/apply/",
    "recheck_cancel": "POST rechecks/{id}/cancel/",
    "recheck_create": "POST rechecks/",
    "recheck_resume": "POST rechecks/{id}/resume/",
    "redaction_try": "POST redaction-patterns/try/",
    "reverification_apply": "POST reverifications/{id}/apply/",
    "reverification_cancel": "POST reverifications/{id}/cancel/",
    "reverification_create": "POST reverifications/",
    "rollout_comment": "POST comments/",
    "rollout_delete": "DELETE rollouts/{id}/",
    "rollout_resolve_flag": "POST rollouts/{id}/resolve_flag/",
    "rollout_view_delete": "DELETE saved-views/{id}/",
    "rollout_view_save": "POST saved-views/",
    "sample_data": "POST collections/",
    "collection_tracking": "POST tracked-runs/",
    "export_push": "POST hub-pushes/",
    "tracked_run_delete": "DELETE tracked-runs/{id}/",
    "tracked_run_resend": "POST tracked-runs/{id}/resend/",
    "tracked_run_stop": "POST tracked-runs/{id}/stop/",
    "tracker_create": "POST trackers/",
    "tracker_delete": "DELETE trackers/{id}/",
    "tracker_edit": "PATCH trackers/{id}/",
    "scan_cancel": "POST scans/{id}/cancel/",
    "scan_create": "POST scans/",
    "scan_resume": "POST scans/{id}/resume/",
    "scan_start": "POST scans/{id}/start/",
    "selected_delete": "POST collections/{id}/delete_rollouts/",
    "selected_resolve_flags": "POST rollouts/{id}/resolve_flag/",
    "selected_verify_again": "POST reverifications/",
    "suite_collect": "POST suites/{slug}/collect/",
    "suite_create": "POST suites/",
    "suite_delete": "DELETE suites/{slug}/",
    "suite_edit": "PATCH suites/{slug}/",
    "upload_commit": "POST uploads/{id}/commit/",
    "upload_discard": "DELETE uploads/{id}/",
    "upload_map": "POST uploads/{id}/check/",
    "verifier_detail": "POST verifiers/try/",
    "worker_drain": "POST workers/{id}/drain/",
}


def described() -> dict[str, str]:
    """Operations with the permission that each needs."""
    return {
        f"{method.upper()} {path.removeprefix('/api/v1/')}": operation["x-permission"]
        for path, operations in DOCUMENT["paths"].items()
        for method, operation in operations.items()
    }


@cache
def pages_that_change() -> dict[str, Permission]:
    """Names of pages that take POST, with the permission that they need."""
    names = {}
    resolver = get_resolver()
    for route in every_route():
        match = resolver.resolve(route.path)
        permission = route.rules.get("POST")
        if match.app_names == ["dashboard"] and permission is not None:
            names[match.url_name] = permission
    return names


def test_every_change_that_a_page_makes_the_api_makes_too():
    assert sorted(pages_that_change()) == sorted([*OPERATIONS, *OF_PEOPLE_ONLY])
    assert sorted(set(OPERATIONS.values()) - set(described())) == []


@pytest.mark.parametrize("page", sorted(OPERATIONS))
def test_and_under_the_same_permission(page):
    assert described()[OPERATIONS[page]] == pages_that_change()[page]
