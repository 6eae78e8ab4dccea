"""Request ids, ids of log records, and traces and metrics of GymWeb itself, sent over OTLP.

Spans and metrics are off by default: no module of OpenTelemetry's SDK is imported then. See docs/operate/monitoring.md.
"""
