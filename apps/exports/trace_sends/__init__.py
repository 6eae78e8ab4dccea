"""Send exported GenAI spans to OTLP receivers, for example Langfuse, Phoenix or MLflow."""
