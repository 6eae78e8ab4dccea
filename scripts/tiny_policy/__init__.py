"""What trains examples/tiny_policy: tasks, a teacher, a tokenizer, and a policy that plays in GymWeb's own loop."""
