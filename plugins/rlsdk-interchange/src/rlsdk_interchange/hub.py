"""Upload and download agents with huggingface_hub (extra `hub`): the agent file, its model card, and a video of an episode.

An agent file contains only tensors and JSON, so reading a file from a hub runs no code. huggingface_hub reads access tokens and
the hub's address itself (`HF_TOKEN`, `HF_ENDPOINT`, `hf auth login`).
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType

from rlsdk import load
from rlsdk.agent import inspect_file
from rlsdk.errors import ArtifactError, RlsdkError, SettingsError, one_line, shown
from rlsdk.runs import find_agent, load_agent
from rlsdk.runtime import is_edited, pip_install, sealed
from rlsdk_interchange.cards import Results, model_card, results_of, usage

FILE = "agent.rlsdk"
PAGE = "README.md"
REPLAY = "replay"
"""Name of the video without its suffix. Hugging Face shows `replay.mp4` beside the results."""


def push(
    path: str | Path,
    repo: str,
    *,
    private: bool = False,
    results: Results | None = None,
    video: bool = True,
    trust: bool = False,
) -> str:
    """Upload an agent file, its model card and a video to a repository, which is created if it does not exist.

    A README.md there that somebody has written or edited stays as it is. If no video can be made, a warning has the reason.

    Args:
        path: the agent file, or a run directory, of which the best agent is taken; it is uploaded as `agent.rlsdk`.
        repo: the repository that receives the files, as `owner/name`.
        private: create the repository as private if it does not exist.
        results: the evaluation in the model card; by default that of the run, if the file is in a run directory.
        video: play an episode and upload it as `replay.mp4`, or as `replay.gif` where ffmpeg is missing (needs rlsdk-lab).
        trust: the file may name a module to import for its environment, which the video needs.

    Returns:
        The address of the repository.

    Raises:
        SettingsError: the extra is missing, or there is no such file.
        ArtifactError: the agent file is damaged, `repo` has another form, or the upload failed.
    """
    library = _library()
    _require_name(repo)
    source = find_agent(Path(path))
    agent, package, results = load(source), _package_of(source), results or results_of(source)
    api = library.HfApi()
    with _uploading(source, repo):
        address = api.create_repo(repo, private=private, exist_ok=True)
    # after the first answer of the hub, as a video may take minutes
    replay = _replay(source, trust) if video else None
    card = sealed(model_card(agent, usage(repo, package), results=results, replay=replay[0] if replay else None))
    with _uploading(source, repo):
        files = [(FILE, source.read_bytes()), *([] if _has_own_page(library, repo) else [(PAGE, card.encode())])]
        files += [replay] if replay else []
        changes = [library.CommitOperationAdd(path_in_repo=name, path_or_fileobj=data) for name, data in files]
        api.create_commit(repo, operations=changes, commit_message=f"Agent {source.name}")
    return str(address)


@contextmanager
def _uploading(source: Path, repo: str) -> Iterator[None]:
    """Inside the block, errors of the network or the hub are ArtifactErrors."""
    try:
        yield
    except Exception as error:
        raise ArtifactError(f"{source} was not uploaded to {repo!r}: {_reason(error, _is_answer(error))}") from error


def _package_of(file: Path) -> str:
    """Return the package of the algorithm that a file names."""
    plugin = inspect_file(file).get("plugin")
    return str(plugin.get("distribution")) if isinstance(plugin, dict) else "of its algorithm"


def _replay(file: Path, trust: bool) -> tuple[str, bytes] | None:
    """Play an episode. Return the name and the bytes of its video; None, with a warning, if there can be none."""
    try:
        if find_spec("rlsdk_lab") is None:
            raise SettingsError(f"videos need rlsdk-lab: {pip_install('rlsdk-lab[video]')}")
        from rlsdk_lab import record_video

        agent, env = load_agent(file, None, trust=trust)
        suffix = ".gif" if find_spec("imageio_ffmpeg") is None else ".mp4"
        with TemporaryDirectory() as folder:
            made = record_video(agent, env, Path(folder) / f"{REPLAY}{suffix}")
            return made.path.name, made.path.read_bytes()
    except RlsdkError as error:
        warnings.warn(f"the repository gets no video: {error}", stacklevel=3)
        return None


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
