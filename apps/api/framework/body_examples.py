"""Examples of request bodies, by schema component. A test sends all of them."""

from typing import Any

import orjson

TASK_ROW = {
    "responses_create_params": {"input": [{"role": "user", "content": "What is 17 + 25?"}]},
    "expected_answer": "42",
}
AGENT = {
    "slug": "careful",
    "name": "Careful",
    "system_prompt": "Use the tools. Answer with a number.",
    "max_steps": 8,
    "sampling": {"temperature": 0.7},
}
PLAN = {"dataset": "sums", "agent": "default", "policy_model": "qwen", "repeats": 4, "splits": ["train"], "seed": 7}
ENVIRONMENT = {"slug": "arithmetic", "name": "Arithmetic", "adapter": "builtin", "builtin": "exact_match"}
MODEL = {
    "slug": "qwen",
    "name": "Qwen",
    "provider": "vllm",
    "base_url": "https://models.example.com/v1",
    "model_name": "Qwen/Qwen3-8B",
    "capture_tokens": True,
}
MAPPING = {
    "slug": "questions",
    "name": "Questions",
    "mapping": {"input": "question", "fields": {"expected_answer": "answer"}},
}
LIMITS = {"priority": 5, "concurrency": 32, "max_tokens": 5_000_000}
RUBRIC = {
    "slug": "clarity",
    "name": "Clarity",
    "criteria": [
        {"key": "clear", "label": "How clear is it?", "kind": "numeric", "minimum": 1, "maximum": 5},
        {"key": "tone", "label": "Tone", "kind": "category", "choices": ["dry", "warm"], "required": False},
    ],
}
MARKS = {"split": "validation", "add_tags": ["hard"], "retired": False}
GYM_CONFIG = """\
calculator:
  resources_servers:
    calculator:
      entrypoint: app.py
      host: models.example.com
      port: 8123
"""

REQUESTS: dict[str, dict[str, Any]] = {
    "AgentRequest": AGENT,
    "PatchedAgentRequest": {"max_steps": 12},
    "TakeAttemptRequest": {"collection": 12, "wait_seconds": 10},
    "AttemptNumberRequest": {"attempt": 1},
    "FinishRequest": {"attempt": 1, "answer": "\\boxed{42}"},
    "FailRequest": {"attempt": 1, "message": "The tool server does not answer."},
    "PlanRequest": PLAN,
    "SuiteRequest": {"slug": "math", "name": "Mathematics", "datasets": ["sums"]},
    "PatchedSuiteRequest": {"name": "Mathematics"},
    "SuitePlanRequest": {"agent": "default", "policy_model": "qwen", "repeats": 4},
    "RetentionRuleRequest": {"what": "traces", "older_than_days": 90, "archived": "archived"},
    "PatchedPlanRequest": {"repeats": 8, "name": "The same, eight times"},
    "ScanSpecRequest": {
        "name": "Ignored failures",
        "question": "Did the agent report success although a tool call had failed?",
        "judge_model": "qwen",
        "filter": "collection:7 reward:<0.5",
        "budget": 5.0,
    },
    "ResumeRequest": {"budget": 20.0},
    "PatchedLimitsRequest": LIMITS,
    "ChosenRequest": {"status": "completed", "max_reward": 0.1},
    "RetryRequest": {"error_kinds": ["policy_error", "timed_out"]},
    "ColumnMappingRequest": MAPPING,
    "PatchedColumnMappingRequest": {"name": "Questions and answers"},
    "RubricRequest": RUBRIC,
    "PatchedRubricRequest": {"description": "Read the last reply first."},
    "QueuePlanRequest": {"name": "Sums, by hand", "kind": "pairwise", "collection": 7, "overlap": 2},
    "PatchedQueueChangeRequest": {"overlap": 3, "lease_minutes": 30},
    "AdjudicationRequest": {"token": "f3b1", "choice": "a_much", "reasons": ["correctness"], "saw_votes": False},
    "SubmissionRequest": {"token": "f3b1", "choice": "a_much", "reasons": ["correctness"], "claim": True},
    "DraftRequest": {"draft": {"choice": "a"}},
    "SkipRequest": {"reason": "I do not read this language."},
    "UndoRequest": {"review": 512},
    "ScoreRequest": {"rollout": 41, "rubric": "clarity", "scores": {"clear": 4}},
    "FlagRequest": {"rollout": 41, "seq": 3, "kind": "wrong_tool", "note": "A search would have told."},
    "RewardOverrideRequest": {"rollout": 41, "reward": 1.0, "reason": "Right, in other units."},
    "CommentRequest": {"rollout": 41, "seq": 3, "text": "It guessed here."},
    "DatasetRequest": {"slug": "sums", "name": "Sums", "environment": "arithmetic", "description": "Up to a thousand."},
    "PatchedDatasetNamesRequest": {"description": "Sums of two numbers."},
    "PartsRequest": {"filename": "sums.jsonl.gz", "on_error": "skip", "split": "train"},
    "EnvironmentRequest": ENVIRONMENT,
    "PatchedEnvironmentRequest": {"concurrency": 64},
    "PlayRequest": {
        "row": {**TASK_ROW, "expected_answer": "42"},
        "moves": [
            {"calls": [{"name": "calculator", "arguments": {"expression": "6 * 7"}}]},
            {"text": "\\boxed{42}"},
        ],
        "verify": True,
    },
    "OrderRequest": {"format": "trl_sft", "collection": 7, "filters": {"min_reward": 0.7}},
    "ExportPreviewOrderRequest": {"format": "trl_sft", "collection": 7, "options": {"reasoning": "inline"}, "limit": 2},
    "PairRuleRequest": {"collection": 7, "further": [8], "name": "sums", "mode": "all", "per_task": 4, "margin": 0.5},
    "RecheckOrderRequest": {"collection": 7},
    "TemplateCheckRequest": {"template": "{% for one in messages %}{{ one.content }}{% endfor %}", "every_row": True},
    "PairPreviewRuleRequest": {"collection": 7, "level": "step", "max_length_ratio": 2.0, "limit": 5},
    "AskRequest": {"name": "Close calls", "limit": 40, "overlap": 2},
    "PairVerdictRequest": {"status": "rejected", "reason": "The verifier took a lucky guess for an answer."},
    "PairVerdictsRequest": {"pairs": [5, 6], "status": "accepted"},
    "PolicyModelRequest": MODEL,
    "PatchedPolicyModelRequest": {"version": "step-120", "sampling": {"temperature": 1.0}},
    "TryRequest": {"prompt": "Say hello."},
    "CheckLogprobsRequest": {"rollouts": 64},
    "WishRequest": {"collection": 7, "filters": {"judge_failures": True}},
    "StreamRequestRequest": {
        "rows": [TASK_ROW],
        "environment": "arithmetic",
        "endpoint": {"base_url": "https://models.example.com/v1", "model_name": "policy", "version": "step-120"},
        "repeats": 8,
        "group": True,
        "seconds": 600,
    },
    "PatchedMarkRequest": MARKS,
    "MarkManyRequest": {"tasks": [11, 12], **MARKS},
    "ChoicesRequest": {"mapping": "questions", "split_ratios": {"train": 0.9, "validation": 0.1}},
    "ApiKeyRequest": {"name": "nightly", "scopes": ["tasks:write", "rollouts:run"], "days": 90},
    "NewPersonRequest": {"username": "nora", "email": "nora@example.com", "role": "annotator"},
    "InvitationRequest": {"email": "nora@example.com", "role": "annotator", "days": 7},
    "PatchedPersonEditRequest": {"role": "engineer", "is_active": True},
    "SubscriptionRequest": {
        "name": "Team",
        "channel": "webhook",
        "address": "https://alerts.example.com/gymweb",
        "secret": "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=",
        "event_kinds": ["collection.ended", "endpoint.down"],
    },
    "PatchedSubscriptionRequest": {"min_failure_share": 0.1, "is_enabled": False},
    "TraceDestinationRequest": {
        "name": "Langfuse",
        "url": "https://langfuse.example.com/api/public/otel/v1/traces",
        "headers": {"Authorization": "Basic cGstbGYtMTIzOnNrLWxmLTQ1Ng=="},
    },
    "PatchedTraceDestinationRequest": {"name": "Langfuse, team A"},
    "TraceSendOrderRequest": {"export": 4, "destination": 1},
    "TrackerRequest": {
        "name": "Team MLflow",
        "kind": "mlflow",
        "address": "https://mlflow.example.com",
        "project": "gymweb",
        "secret": "mlflow-token",
    },
    "PatchedTrackerRequest": {"project": "nightly"},
    "TrackingRequest": {"collection": 12, "tracker": 1, "project": "nightly", "samples": 20},
    "PushRequest": {"export": 7, "repository": "my-org/rollouts", "token": "hf_token", "private": True},
    "RedactionPatternRequest": {"kind": "prefix", "text": "acme_live_", "least": 16},
    "NewSavedViewRequest": {"name": "Cut and wrong", "query": "flag:truncated reward:<0.5", "sort": "-tokens"},
    "PatchedSavedViewRequest": {"is_shared": True},
    "SampleRequest": {"sample": "Authorization: Bearer acme_live_0123456789abcdef"},
    "GymConfigRequest": {"text": GYM_CONFIG, "without_data": True},
    "VerifierTryRequest": {
        "verifier": {"type": "numeric", "absolute_tolerance": 0.01},
        "row": {"expected_answer": "42"},
        "reply": "It is 42.",
    },
}

ANSWER = {
    "type": "message",
    "role": "assistant",
    "content": [{"type": "output_text", "text": "17 + 25 is 42.", "annotations": []}],
}
STORED_ROW = {**TASK_ROW, "response": {"id": "resp_1", "model": "step-120", "output": [ANSWER]}, "reward": 1.0}

FILES = {
    "collections_import_create": orjson.dumps(STORED_ROW).decode() + "\n",
    "datasets_uploads_create": orjson.dumps(TASK_ROW).decode() + "\n",
}
"""Bodies that are files: NDJSON, by operation."""
