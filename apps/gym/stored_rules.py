"""The version of the rules that derive columns and links of a rollout from its events."""

RULES = 4
"""Increase it with every change of a rule, so that the overview lists the collections that need a recheck.

Version 0 is that of GymWeb 0.2. Version 2 chooses the main path by the answer, counts the tool calls of all agents,
fails rollouts whose model failed, and has verifiers that read answers more exactly. Version 3 finds set-up notices,
and version 4 more of them.
"""


def current_rules() -> int:
    """Return the version of the rules that new collections are stored under."""
    return RULES
