"""Settings of Django REST Framework and drf-spectacular for the API."""

REST_FRAMEWORK = {
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["apps.api.framework.request_bodies.BoundedJSONParser"],
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "apps.api.framework.authentication.ApiKeyAuthentication",
        "rest_framework.authentication.SessionAuthentication",
    ],
    # Closed by default: the page middleware skips API views, so this class must check them.
    "DEFAULT_PERMISSION_CLASSES": ["apps.api.framework.table_permissions.TablePermission"],
    "DEFAULT_THROTTLE_CLASSES": ["apps.api.framework.request_rates.RateThrottle"],
    "DEFAULT_PAGINATION_CLASS": "apps.api.framework.pagination.KeysetPagination",
    "DEFAULT_FILTER_BACKENDS": ["apps.api.framework.query_filters.DeclaredFilterBackend"],
    "DEFAULT_SCHEMA_CLASS": "apps.api.framework.operation_schemas.DescribedSchema",
    "EXCEPTION_HANDLER": "apps.api.framework.problems.answer_problem",
    "DEFAULT_METADATA_CLASS": None,
    "URL_FORMAT_OVERRIDE": None,
}
SPECTACULAR_SETTINGS = {
    "TITLE": "GymWeb API",
    "DESCRIPTION": "Collect rollouts of tasks, review them, and export training data.",
    "VERSION": "1",
    "SCHEMA_PATH_PREFIX": "/api/v1",
    "SERVE_INCLUDE_SCHEMA": False,
    "SERVE_PERMISSIONS": ["apps.api.framework.table_permissions.TablePermission"],
    "COMPONENT_SPLIT_REQUEST": True,
    # Enums of several components need explicit names.
    "ENUM_NAME_OVERRIDES": {
        "PairStatusEnum": "apps.pairs.models.PreferencePair.Status",
        "ModeEnum": "apps.tasks.models.Upload.Mode",
        "PairModeEnum": "apps.gym.pairs.pair_rule.MODES",
        "KeyStateEnum": "apps.accounts.models.KEY_STATES",
        "CollectionStateEnum": "apps.rollouts.models.Collection.State",
        "ProviderEnum": "apps.policies.models.Provider",
        "EndpointProviderEnum": "apps.api.collections.stream_viewsets.PROVIDERS",
        "WireEnum": "apps.policies.models.Wire",
        "EndpointWireEnum": "apps.api.collections.stream_viewsets.WIRES",
        "FailureSourceEnum": "apps.gym.traces.cause_texts.SOURCES",
        "FlagKindEnum": "apps.reviews.models.Flag.Kind",
        "QueueKindEnum": "apps.reviews.models.Queue.Kind",
        "TrackerKindEnum": "apps.tracking.models.Tracker.Kind",
        "ScanKindEnum": "apps.rollouts.models.Scan.Kind",
        "ReviewStatusEnum": "apps.reviews.models.Review.Status",
        "DeletionStateEnum": "apps.tasks.models.Deletion.State",
        "ErrorKindsEnum": "apps.gym.outcomes.ERROR_KINDS",
        "LevelEnum": "apps.gym.pairs.pair_rule.LEVELS",
        "ReasonLevelEnum": "apps.gym.trainability.LEVELS",
    },
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "apps.api.framework.openapi_schema.add_problems",
    ],
}
