"""The card of a model, from flags or a file: title, description and examples."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from labelry.cli.reading import with_fields

if TYPE_CHECKING:
    from labelry.storage.about import Card

_PARTS = ("title", "description", "examples")


def _option(help: str, **more: Any) -> Any:
    return Option(help=help, rich_help_panel="The card of the model, for people", **more)


@dataclass(frozen=True)
class CardFlags:
    """The description of a model for people; each field is an option of the command line."""

    title: Annotated[str | None, _option("Title of the model, on the page of a server.")] = None
    description: Annotated[str | None, _option("What the model is for.")] = None
    examples: Annotated[
        list[str] | None,
        _option(
            "A document to try the model on, or a file with one per line; may be repeated.",
            metavar="TEXT|FILE",
        ),
    ] = None
    card: Annotated[
        Path | None,
        _option(
            "TOML file with title, description and examples (a list); the flags overrule it.",
            metavar="FILE",
        ),
    ] = None

    def read(self) -> Card:
        """Return the card that the flags describe."""
        from labelry.storage.about import Card

        found = {} if self.card is None else _read_toml(self.card)
        found |= {name: getattr(self, name) for name in _PARTS if getattr(self, name)}
        if self.examples:
            found["examples"] = [line for example in self.examples for line in _lines(example)]
        try:
            return Card(**found)
        except ValueError as error:
            raise typer.BadParameter(f"--card {self.card}: {error}") from error


def has_card(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command that takes `card: CardFlags` an option for each field of it."""
    return with_fields(command, "card", CardFlags, {})


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        found = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise typer.BadParameter(f"--card {path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise typer.BadParameter(f"--card {path} is not TOML: {error}") from error
    if unknown := sorted(set(found) - set(_PARTS)):
        names = ", ".join(unknown)
        raise typer.BadParameter(f"--card {path} has {names}; expected {', '.join(_PARTS)}")
    return found


def _lines(example: str) -> list[str]:
    """Return the lines of the file if the text names one; otherwise return the text itself."""
    path = Path(example)
    if len(example) > 255 or not path.is_file():
        return [example]
    return [line for line in path.read_text("utf-8").splitlines() if line.strip()]
