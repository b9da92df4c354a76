"""Upload and download agents with huggingface_hub (extra `hub`): the agent file and its model card.

An agent file contains only tensors and JSON, so reading a file from a hub runs no code. huggingface_hub reads access tokens and
the hub's address itself (`HF_TOKEN`, `HF_ENDPOINT`, `hf auth login`).
"""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from types import ModuleType

from rlsdk import load
from rlsdk.agent import inspect_file
from rlsdk.errors import ArtifactError, SettingsError, one_line, shown
from rlsdk.runs import find_agent
from rlsdk.runtime import is_edited, pip_install, sealed
from rlsdk_interchange.exporting import model_card

FILE = "agent.rlsdk"
PAGE = "README.md"
HEADER = "---\nlibrary_name: rlsdk\ntags: [reinforcement-learning, rlsdk]\n---\n\n"


def push(path: str | Path, repo: str, *, private: bool = False, results: str | None = None) -> str:
    """Upload an agent file and its model card to a repository, which is created if it does not exist. Return its address.

    A README.md there that somebody has written or edited stays as it is.

    Args:
        path: the agent file; it is uploaded as `agent.rlsdk`.
        repo: the repository that receives the files, as `owner/name`.
        private: create the repository as private if it does not exist.
        results: a sentence with scores for the model card.

    Raises:
        SettingsError: the extra is missing.
        ArtifactError: the agent file is missing or damaged, `repo` has another form, or the upload failed.
    """
    library = _library()
    _require_name(repo)
    card = sealed(HEADER + model_card(load(path), results=results))
    source = find_agent(Path(path))  # with the suffix that `load` found
    try:
        api = library.HfApi()
        address = api.create_repo(repo, private=private, exist_ok=True)
        files = [(FILE, source.read_bytes()), *([] if _has_own_page(library, repo) else [(PAGE, card.encode())])]
        changes = [library.CommitOperationAdd(path_in_repo=name, path_or_fileobj=data) for name, data in files]
        api.create_commit(repo, operations=changes, commit_message=f"Agent {source.name}")
    except Exception as error:  # any error of the network or the hub
        raise ArtifactError(f"{source} was not uploaded to {repo!r}: {_reason(error, _is_answer(error))}") from error
    return str(address)


def _has_own_page(library: ModuleType, repo: str) -> bool:
    """Whether a repository has a README.md that is not an unedited model card; if so, a warning names it."""
    from huggingface_hub.errors import EntryNotFoundError

    try:
        text = Path(library.hf_hub_download(repo, PAGE)).read_bytes().decode(errors="replace")
    except EntryNotFoundError:
        return False
    if own := is_edited(text):
        warnings.warn(
            f"{PAGE} of {repo} was edited and stays as it is; delete it to get a new model card", stacklevel=3
        )
    return own


def pull(repo: str, *, revision: str | None = None) -> Path:
    """Download the agent file of a repository, unless the local copy is up to date. Return its path, which `rlsdk.load`
    accepts.

    Raises:
        SettingsError: the extra is missing.
        ArtifactError: `repo` is not `owner/name`, the download failed, or the file is not an intact agent file.
    """
    library = _library()
    _require_name(repo)
    problem = _no_answer(library, repo, revision)
    try:
        found = Path(library.hf_hub_download(repo, FILE, revision=revision, local_files_only=problem is not None))
    except Exception as error:  # any error of the network or the hub
        reason = _reason(problem or error.__cause__ or error, answered=problem is None)
        raise ArtifactError(f"no agent file came from {repo!r}: {reason}") from error
    inspect_file(found)
    return found


def _no_answer(library: ModuleType, repo: str, revision: str | None) -> Exception | None:
    """Why the hub cannot be reached; None where it answers. Asked once, as a download of the hub's library asks six times and
    waits for half a minute."""
    try:
        library.get_hf_file_metadata(library.hf_hub_url(repo, FILE, revision=revision))
    except Exception as error:  # any error of the network
        return None if _is_answer(error) else error
    return None


def _is_answer(error: Exception) -> bool:
    """Whether an error of the hub's library is what the hub answered, or one of a name that the library itself refuses."""
    from huggingface_hub.errors import HfHubHTTPError

    return isinstance(error, HfHubHTTPError | ValueError)


def _reason(error: BaseException, answered: bool) -> str:
    """An error of the hub's library, in one line."""
    from huggingface_hub.constants import ENDPOINT

    message = str(error).partition("\nFor more information")[0]
    text = one_line(f"{type(error).__name__}: {message.rstrip('.')}", 500)
    return text if answered else f"the hub {ENDPOINT} cannot be reached; check the network, or HF_ENDPOINT: {text}"


def _require_name(repo: str) -> None:
    """Check that `repo` is `owner/name`, because huggingface_hub would send several requests before it reports an error."""
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", repo):
        raise ArtifactError(f"{shown(repo, 80)} does not name a repository; write OWNER/NAME, such as me/pendulum")


def _library() -> ModuleType:
    try:
        import huggingface_hub
    except ImportError:
        raise SettingsError(f"a model hub needs its library: {pip_install('rlsdk-interchange[hub]')}") from None
    return huggingface_hub
