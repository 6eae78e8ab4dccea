"""Back up an installation into folders with a manifest, verify these backups, and restore them."""
