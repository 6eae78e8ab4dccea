"""Read task files in constant memory: JSONL, a JSON array, CSV, TSV or Parquet, compressed or not."""
