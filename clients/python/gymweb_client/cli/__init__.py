"""The command line `gymweb`. It needs the extra: pip install 'gymweb-client[cli]'."""

import sys


def main() -> None:
    """Run the command; docs/use/cli.md explains the exit codes."""
    try:
        from gymweb_client.cli.app import build_app
    except ModuleNotFoundError as missing:
        sys.exit(f"gymweb needs the package {missing.name}. Install it: pip install 'gymweb-client[cli]'")
    build_app()()
