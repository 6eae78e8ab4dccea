"""Traces and metrics of GymWeb itself, sent over OTLP.

Off by default: without the setting, no module of OpenTelemetry is imported. See docs/operate/monitoring.md.
"""
