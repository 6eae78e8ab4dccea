"""Reviews: what people submit, draft, take back, and the rewards, flags and rubrics of people."""
