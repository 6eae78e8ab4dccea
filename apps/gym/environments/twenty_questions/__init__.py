"""Find out what a scripted user is thinking of, by questions that are answered yes or no."""
