"""What all commands share: the global options, and the run that they belong to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dsv4port.cli.render import print_notice
from dsv4port.manifest.project import Project, find_project

if TYPE_CHECKING:
    import click

    from dsv4port.cli.bars import Bars


class Run:
    """One run of the program.

    Attributes:
        command: the command, once it is known.
        project_folder, checkout_folder, json: the global options.
        notices: what a person may wonder about, one line each.
        fields: parts of the JSON object that are known before the command ends; an error is
            printed together with them.
    """

    def __init__(self) -> None:
        self.command: str | None = None
        self.project_folder: Path | None = None
        self.checkout_folder: Path | None = None
        self.json = False
        self.notices: list[str] = []
        self.fields: dict[str, Any] = {}
        self._progress: Bars | None = None

    @classmethod
    def of(cls, context: click.Context) -> Run:
        """The run that a command's context belongs to."""
        run = context.find_object(cls)
        assert run is not None
        return run

    @property
    def project(self) -> Project:
        """The project of ``--project``, or the one around the current folder.

        Raises:
            UsageError: there is none.
        """
        return find_project(self.project_folder or Path.cwd())

    @property
    def checkout(self) -> Path:
        """The checkout of ``--checkout``, or the project's ``vendor/vllm``. Absolute."""
        if self.checkout_folder is not None:
            return self.checkout_folder.absolute()
        return self.project.default_checkout

    @property
    def progress(self) -> Bars:
        """Where the library reports how far it is."""
        if self._progress is None:
            from dsv4port.cli.bars import Bars

            self._progress = Bars(self.notice, silent=self.json)
        return self._progress

    def finish_progress(self) -> None:
        """Take a bar that is still drawn off the terminal."""
        if self._progress is not None:
            self._progress.finish()

    def notice(self, text: str) -> None:
        """Tell something worth knowing: at once to people, in the end as JSON."""
        self.notices.append(text)
        if not self.json:
            print_notice(text)


def global_options() -> list[click.Parameter]:
    """Fresh copies of the options that every command takes, before and after its name."""
    import click

    folder = click.Path(file_okay=False, path_type=Path)
    existing = click.Path(exists=True, file_okay=False, path_type=Path)
    return [
        click.Option(
            ["--project"], type=existing, metavar="DIR", expose_value=False,
            callback=_record("project_folder"),
            help="The project, or a folder in it. Default: the current folder.",
        ),
        click.Option(
            ["--checkout"], type=folder, metavar="DIR", expose_value=False,
            callback=_record("checkout_folder"),
            help="The checkout. Default: vendor/vllm of the project.",
        ),
        click.Option(
            ["--json"], is_flag=True, expose_value=False, callback=_record("json"),
            help="Print one JSON object and nothing else.",
        ),
    ]  # fmt: skip


def _record(name: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    def record(context: click.Context, _: click.Parameter, value: Any) -> None:
        if value:
            setattr(Run.of(context), name, value)

    return record
