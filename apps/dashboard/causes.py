"""What an error kind means, in words for the reader of a page."""

CAUSES = {
    "policy_error": "The policy model could not be reached, refused, or sent no reply",
    "environment_error": "The resource server could not be reached or broke its protocol",
    "verifier_error": "The verifier failed or gave no reward",
    "judge_error": "The judge model failed",
    "timed_out": "A call or the whole rollout ran out of time",
    "worker_lost": "Its worker was lost three times",
    "cancelled": "It was cancelled",
}
