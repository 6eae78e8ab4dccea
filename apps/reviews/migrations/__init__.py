REPLACED = [
    "0002_review_could_see_results",
    "0003_reviewers_help",
]
"""The other migrations of version 0.2.0, which 0001_initial replaces."""
