"""What task files come as: packed or not, JSONL, a JSON array, CSV, TSV or Parquet; read in constant memory."""
