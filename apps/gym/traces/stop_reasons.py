"""Which stop reasons mean that the attempt came to its own end."""

ENDED_BY_ITSELF = frozenset({"answered", "environment_done"})
"""Every other stop reason is a cut: by tokens, context, time, steps, a content filter, or a reply that says nothing.

Cut attempts are verified and keep their reward, but they teach no ending, and in a pair they would teach the length of
the limit: demonstrations and preference pairs are made of attempts that ended by themselves, on both sides.
"""
