"""An office: e-mail, calendar, contacts and tasks, and requests to change them."""
