"""Push a folder to the Hugging Face Hub as a dataset, in one commit, with its package."""

import importlib
import os
from typing import Any


def write(request: dict[str, Any]) -> dict[str, Any]:
    """Create the repository if it does not exist, upload the folder, and return the URL and the commit."""
    # Files then go through the endpoint itself, and nothing is counted.
    os.environ.update(HF_HUB_DISABLE_XET="1", HF_HUB_DISABLE_TELEMETRY="1", HF_HUB_DISABLE_PROGRESS_BARS="1")
    hub = importlib.import_module("huggingface_hub")
    api = hub.HfApi(endpoint=request["address"], token=request["secret"])
    repository = request["repository"]
    api.create_repo(repository, repo_type="dataset", private=request["private"], exist_ok=True)
    # The repository may have existed, with another visibility.
    found = api.repo_info(repository, repo_type="dataset")
    if request["private"] and not found.private:
        raise Public(f"{repository} exists and is public. Choose another repository, or turn off Private.")
    done = api.upload_folder(
        repo_id=repository,
        repo_type="dataset",
        folder_path=request["folder"],
        allow_patterns=request["files"],
        commit_message=request["message"],
    )
    return {"url": f"{request['address'].rstrip('/')}/datasets/{repository}", "commit": done.oid or ""}


class Public(Exception):
    """Raised if a private push would publish its files."""

    is_final = True
