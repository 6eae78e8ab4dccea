"""Training of examples/tiny_policy: tasks, a teacher, a tokenizer, and a policy for GymWeb's loop."""
