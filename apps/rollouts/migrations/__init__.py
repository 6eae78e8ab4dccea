REPLACED = [
    "0002_figure_blocks",
    "0003_compressed_payloads",
    "0004_reservations",
    "0005_external_agents",
    "0006_solve_threshold_and_recount",
    "0007_server_metrics",
    "0008_failure_causes",
    "0009_scans",
    "0010_traces_deleted",
    "0011_help_texts",
    "0012_trace_images",
    "0013_throttle_limited_since",
    "0014_cheaper_reservations",
]
"""The other migrations of version 0.2.0, which 0001_initial replaces."""
