"""The only place that starts git, and the environment it is started in.

Every call sees the same git whatever the user, the machine or the repository has configured: no
system or user configuration, no hooks, no filters, no attributes of the user's, fixed locale, no
prompt. Settings that a repository's own configuration could change are overridden one by one,
because that file cannot be switched off.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from pathlib import Path

from dsv4port.errors import GitError
from dsv4port.quick_dataclass import dataclass

MINIMUM_VERSION = (2, 38)
"""Oldest git that has everything used here (``merge-tree --write-tree``, batched cat-file)."""

_FIXED_CONFIG: tuple[tuple[str, str], ...] = (
    # What a file looks like on disk is what the blob holds, byte for byte.
    ("core.autocrlf", "false"),
    ("core.eol", "lf"),
    ("core.safecrlf", "false"),
    ("core.attributesFile", os.devnull),
    ("core.symlinks", "true"),
    ("core.fileMode", "true"),
    ("core.ignoreCase", "false"),
    ("core.precomposeUnicode", "false"),
    ("core.sparseCheckout", "false"),
    ("core.protectHFS", "true"),
    ("core.protectNTFS", "true"),
    # Nothing of the user's runs.
    ("core.hooksPath", os.devnull),
    ("core.fsmonitor", "false"),
    ("core.pager", "cat"),
    ("core.alternateRefsCommand", "false"),
    ("commit.gpgSign", "false"),
    ("tag.gpgSign", "false"),
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
    ("submodule.recurse", "false"),
    ("protocol.ext.allow", "never"),
    # The stat cache must not be weakened: with these two loosened a changed file can look clean.
    ("core.trustctime", "true"),
    ("core.checkStat", "default"),
    ("core.untrackedCache", "false"),
    ("core.splitIndex", "false"),
    ("core.excludesFile", os.devnull),
    ("index.sparse", "false"),
    # Diffs come out the same everywhere.
    ("core.quotePath", "true"),
    ("diff.algorithm", "myers"),
    ("diff.context", "3"),
    ("diff.interHunkContext", "0"),
    ("diff.mnemonicPrefix", "false"),
    ("diff.noprefix", "false"),
    ("diff.srcPrefix", "a/"),
    ("diff.dstPrefix", "b/"),
    ("diff.orderFile", os.devnull),
    ("diff.renameLimit", "10000"),
    ("diff.suppressBlankEmpty", "false"),
    ("diff.indentHeuristic", "true"),
    ("i18n.commitEncoding", "UTF-8"),
    ("i18n.logOutputEncoding", "UTF-8"),
)

_NO_INDEX = re.compile(rb"index file (?:smaller|corrupt)|bad index file|index entry format")
# A full disk is often all that git tells of in these words.
_UNWRITTEN = re.compile(rb"unable to write|write error|No space left|quota exceeded|File too large")

NEUTRAL_ATTRIBUTES = b"* -text -filter -ident !eol !diff !merge !working-tree-encoding\n"
"""Content of ``info/attributes``: wins over any ``.gitattributes`` that the tree ships."""


def _environment(extra: Mapping[str, str], *, user_config: bool) -> dict[str, str]:
    kept_git_variables = {"GIT_SSH", "GIT_SSH_COMMAND", "GIT_SSL_CAINFO", "GIT_PROXY_SSL_CAINFO"}
    environment = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith("GIT_") or (user_config and key in kept_git_variables)
    }
    environment.update(
        LC_ALL="C",
        LANGUAGE="C",
        TZ="UTC",
        GIT_CONFIG_NOSYSTEM="1",
        GIT_CONFIG_GLOBAL=os.devnull,
        GIT_ATTR_NOSYSTEM="1",
        GIT_TERMINAL_PROMPT="0",
        GIT_ASKPASS="true",
        GIT_EDITOR="false",
        GIT_OPTIONAL_LOCKS="0",
        GIT_NO_REPLACE_OBJECTS="1",
        GIT_NO_LAZY_FETCH="1",
        GIT_CONFIG_COUNT=str(len(_FIXED_CONFIG)),
    )
    if user_config:
        del environment["GIT_CONFIG_NOSYSTEM"], environment["GIT_CONFIG_GLOBAL"]
        del environment["GIT_ASKPASS"]
    for number, (key, value) in enumerate(_FIXED_CONFIG):
        environment[f"GIT_CONFIG_KEY_{number}"] = key
        environment[f"GIT_CONFIG_VALUE_{number}"] = value
    environment.update(extra)
    return environment


@dataclass(frozen=True, slots=True)
class Finished:
    """A git process that ended with an accepted exit code."""

    code: int
    stdout: bytes
    stderr: bytes

    @property
    def text(self) -> str:
        """Standard output without its final newline, undecodable bytes kept as surrogates."""
        return os.fsdecode(self.stdout).rstrip("\n")


@dataclass(frozen=True, slots=True)
class Git:
    """git bound to one repository (and work tree), never to whatever surrounds the folder.

    Parameters:
        git_dir: the repository folder (``.git`` or a bare repository); always given explicitly,
            so that a folder inside another repository can never be mistaken for that repository.
        work_tree: the work tree, for commands that need one.
    """

    git_dir: Path | None = None
    work_tree: Path | None = None

    def command(self, arguments: Iterable[str]) -> list[str]:
        """The whole command line for `arguments`."""
        command = [_executable()]
        if self.git_dir is not None:
            command.append(f"--git-dir={self.git_dir}")
        if self.work_tree is not None:
            command.append(f"--work-tree={self.work_tree}")
        command.extend(arguments)
        return command

    def run(
        self,
        *arguments: str,
        stdin: bytes = b"",
        accept: Collection[int] = (0,),
        environment: Mapping[str, str] | None = None,
        user_config: bool = False,
        timeout: float | None = None,
        inherit: Collection[int] = (),
    ) -> Finished:
        """Run one git command to its end.

        Parameters:
            accept: exit codes that are an answer; any other raises.
            user_config: keep the user's configuration (proxies, credentials, ``insteadOf``); only
                for transport, whose result is checked against a recorded id.
            inherit: file descriptors that stay open in git. A lock held on one of them lasts
                until git has ended, even when this process is killed before.

        Raises:
            GitError: git is missing, was killed, timed out or ended with another code.
        """
        try:
            process = subprocess.run(
                self.command(arguments),
                input=stdin,
                capture_output=True,
                check=False,
                cwd=self.work_tree,
                env=_environment(environment or {}, user_config=user_config),
                timeout=timeout,
                pass_fds=tuple(inherit),
            )
        except subprocess.TimeoutExpired as error:
            raise GitError(
                f"`git {arguments[0]}` did not end within {timeout:.0f} s",
                fix="check the network or the remote, then run the command again",
            ) from error
        except OSError as error:
            raise GitError(f"git could not be started: {error.strerror}") from error
        if process.returncode not in accept:
            raise failed(arguments, process.returncode, process.stderr)
        return Finished(process.returncode, process.stdout, process.stderr)

    def begin(self, *arguments: str) -> Running:
        """Start one git command that reads nothing, and do not wait for its end.

        Raises:
            GitError: git is missing or could not be started.
        """
        try:
            process = subprocess.Popen(
                self.command(arguments),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=self.work_tree,
                env=_environment({}, user_config=False),
            )
        except OSError as error:
            raise GitError(f"git could not be started: {error.strerror}") from error
        return Running(arguments, process)

    def start(self, *arguments: str, user_config: bool = False) -> subprocess.Popen[bytes]:
        """Start a git process with pipes on standard input and output; the caller ends it."""
        try:
            return subprocess.Popen(
                self.command(arguments),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE if user_config else subprocess.DEVNULL,
                cwd=self.work_tree,
                env=_environment({}, user_config=user_config),
            )
        except OSError as error:
            raise GitError(f"git could not be started: {error.strerror}") from error


class Running:
    """A git command that was begun; `finish` or `abandon` it."""

    def __init__(self, arguments: tuple[str, ...], process: subprocess.Popen[bytes]) -> None:
        self._arguments = arguments
        self._process = process

    def finish(self, accept: Collection[int] = (0,)) -> Finished:
        """Wait for its end.

        Raises:
            GitError: it was killed, or ended with a code that is not in `accept`.
        """
        stdout, stderr = self._process.communicate()
        if self._process.returncode not in accept:
            raise failed(self._arguments, self._process.returncode, stderr)
        return Finished(self._process.returncode, stdout, stderr)

    def abandon(self) -> None:
        """End it, if it still runs; nobody wants its answer."""
        process = self._process
        if process.poll() is None:
            process.kill()
            process.communicate()


def failed(arguments: Iterable[str], code: int, stderr: bytes) -> GitError:
    """The error for a git command that ended with a code nobody expected."""
    words = stderr.decode("utf-8", "backslashreplace").strip().splitlines()
    if _UNWRITTEN.search(stderr) is not None:
        fix = "free some space, or make the place writable for this user; then run it again"
    elif _NO_INDEX.search(stderr) is not None:
        fix = "remove the file `index` of its .git folder; `apply STACK --force` makes it anew"
    else:
        fix = "run `dsv4port doctor`; if git itself is fine, this is a defect worth reporting"
    return GitError(
        f"`git {' '.join(arguments)}` ended with exit code {code}",
        fix=fix,
        details=words[-10:],
    )


@lru_cache(maxsize=1)
def _executable() -> str:
    # `shutil.which`, without importing compression modules at every start.
    for folder in os.get_exec_path():
        found = os.path.join(folder, "git")  # noqa: PTH118
        if os.access(found, os.X_OK) and not Path(found).is_dir():
            return found
    raise GitError("git is not installed", fix="install git 2.38 or newer")


@lru_cache(maxsize=1)
def version() -> tuple[int, ...]:
    """The version of the installed git, for example ``(2, 39, 5)``."""
    text = Git().run("--version").text
    match = re.search(r"(\d+)\.(\d+)(?:\.(\d+))?", text)
    if match is None:
        raise GitError(f"cannot read git's version from `{text}`")
    return tuple(int(part) for part in match.groups() if part is not None)


def require_version() -> None:
    """Raise GitError when the installed git is older than MINIMUM_VERSION."""
    if version() < MINIMUM_VERSION:
        have = ".".join(map(str, version()))
        need = ".".join(map(str, MINIMUM_VERSION))
        raise GitError(f"git {have} is too old", fix=f"install git {need} or newer")
