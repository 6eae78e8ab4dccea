"""The storage of collected static files."""

from whitenoise.storage import CompressedManifestStaticFilesStorage


class ModuleStaticFilesStorage(CompressedManifestStaticFilesStorage):  # type: ignore[misc]
    """Hashes file names, and rewrites the imports of our JavaScript modules to hashed names.

    Django's own option rewrites every script, and fails on examples in comments of third-party ones.
    """

    patterns = (
        *CompressedManifestStaticFilesStorage.patterns,
        ("js/*.js", ((r"""(?P<matched>(?P<word>from|import) "(?P<url>\./[^"]+)")""", '%(word)s "%(url)s"'),)),
    )
