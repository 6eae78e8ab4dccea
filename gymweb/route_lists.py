"""Lists of route names with special treatment, used as settings."""

# The only routes whose bodies may be larger than DATA_UPLOAD_MAX_MEMORY_SIZE.
LARGE_BODY_ROUTES = frozenset(
    {
        "dashboard:dataset_upload",
        "api:dataset-uploads",
        "dashboard:collection_import",
        "api:collection-import-stored",
    }
)
# Routes that accept POST while the disk is full: they free space, stop work, or store very little.
FULL_DISK_ROUTES = frozenset(
    {
        "api:collection-archive",
        "api:collection-cancel",
        "api:collection-delete-rollouts",
        "api:collection-estimate",
        "api:collection-pause",
        "api:collection-resume",
        "api:export-cancel",
        "api:export-preview",
        "api:pairset-cancel",
        "api:pairset-count",
        "api:redactionpattern-attempt",
        "api:recheck-cancel",
        "api:reverification-cancel",
        "api:scan-cancel",
        "api:scan-estimate",
        "api:user-end-sessions",
        "api:verifier_try",
        "api:worker-drain",
        "apps.api.gym_protocol.gym_views.AgentView",
        "apps.api.gym_protocol.gym_views.EnvironmentView",
        "apps.api.gym_protocol.gym_views.ModelView",
        "mcp",  # reading tools work; writing tools check the disk themselves
        "dashboard:alert_delete",
        "dashboard:collection_archive",
        "dashboard:collection_cancel",
        "dashboard:collection_delete",
        "dashboard:collection_pause",
        "dashboard:collection_resume",
        "dashboard:dataset_delete",
        "dashboard:export_cancel",
        "dashboard:export_delete",
        "dashboard:invitation_revoke",
        "dashboard:key_revoke",
        "dashboard:mapping_delete",
        "dashboard:pair_set_cancel",
        "dashboard:pair_set_delete",
        "dashboard:person_sessions_end",
        "dashboard:queue_delete",
        "dashboard:recheck_cancel",
        "dashboard:redaction_delete",
        "dashboard:redaction_try",
        "dashboard:reverification_cancel",
        "dashboard:rollout_delete",
        "dashboard:rollout_view_delete",
        "dashboard:rollouts_delete",
        "dashboard:rubric_delete",
        "dashboard:scan_cancel",
        "dashboard:selected_compare",
        "dashboard:selected_delete",
        "dashboard:session_end",
        "dashboard:sessions_end",
        "dashboard:sign_in",
        "dashboard:sign_in_code",
        "dashboard:sign_in_link",
        "dashboard:sign_out",
        "dashboard:theme",
        "dashboard:upload_discard",
        "dashboard:verifier_detail",
        "dashboard:worker_drain",
    }
)
# Routes with POST or PUT but without audit entries: they change nothing, or only the user's own preferences.
UNAUDITED_ROUTES = frozenset(
    {
        "dashboard:theme",
        "dashboard:redaction_try",
        "dashboard:verifier_detail",
        "dashboard:sign_in",  # signing in writes its own entry
        "api:verifier_try",
        "api:collection-estimate",
        "api:upload-parts",  # sent thousands of times; the upload itself has an entry
        # Protocol calls of served environments, agents and models: frequent, and they store nothing.
        "apps.api.gym_protocol.gym_views.EnvironmentView",
        "apps.api.gym_protocol.gym_views.AgentView",
        "apps.api.gym_protocol.gym_views.ModelView",
        "mcp",  # each operation that a tool calls writes its own entry
    }
)
