"""Write about something under several constraints, each of which is checked."""
