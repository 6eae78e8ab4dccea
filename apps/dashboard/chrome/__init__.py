"""What every page shows around its content, and how views answer."""
