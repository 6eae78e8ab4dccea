"""A text and a JSON schema: the reply is the object that the text describes."""
