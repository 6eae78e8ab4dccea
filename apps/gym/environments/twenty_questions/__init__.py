"""Find out by yes-or-no questions what a scripted user is thinking of."""
