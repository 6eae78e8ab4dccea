"""The storage of collected static files."""

from whitenoise.storage import CompressedManifestStaticFilesStorage


class ModuleStaticFilesStorage(CompressedManifestStaticFilesStorage):  # type: ignore[misc]
    """Hash names, and write the hashed names into the imports of our JavaScript modules.

    Django's own switch reads every script, and fails at examples in the comments of foreign ones.
    """

    patterns = (
        *CompressedManifestStaticFilesStorage.patterns,
        ("js/*.js", ((r"""(?P<matched>(?P<word>from|import) "(?P<url>\./[^"]+)")""", '%(word)s "%(url)s"'),)),
    )
