"""Stop reasons by which an attempt ended by itself."""

ENDED_BY_ITSELF = frozenset({"answered", "environment_done"})
"""Every other stop reason is a cut: by tokens, context, time, steps, a content filter, or an empty reply.

Cut attempts are verified and keep their reward, but they do not show how to end, and a model trained on pairs of them
would learn the length of the limit. Demonstrations and preference pairs therefore only use attempts that ended by
themselves.
"""
