"""Sign in at an OpenID Connect provider, whose groups decide the role."""
