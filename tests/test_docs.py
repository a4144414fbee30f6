"""The docs are true: their blocks run, their reference is whole, the site asks nothing of others.

Blocks of Python and of shell commands run in order, page by page, in a folder of their own. A
comment on the line before a block, which readers do not see, says what is special about it:

- ``not run: reason``
- ``background: until the end of the page``, a server; port 8000 becomes a free one
- ``file: NAME``, to be written, not run

A block of ``text`` after a block that runs is what it prints, but for numbers; ``varies: reason``
says that words may differ too, as there are fewer rows here than a reader has. ``lines: reason``
says that other lines are printed between those of the block.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, chdir, contextmanager, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer.main

import labelry
from labelry.cli.app import app
from labelry.data import write
from labelry.data.icd import Classification, icd10cm
from labelry.estimators import SYSTEMS

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
README = ROOT / "README.md"
POSTS = ROOT / "examples" / "standard_library.py"  # writes the files of the README
TUTORIAL = DOCS / "tutorial.md"
PAGES = [README, TUTORIAL, *sorted((DOCS / "how-to").glob("*.md"))]
BLOCK = re.compile(r"^(?:<!-- ([\w ]+): (.+?) -->\n)?```([\w{}-]*)[^\n]*\n(.*?)^```$", re.M | re.S)
NUMBER = re.compile(r"(?<!\w)[-+]?\d[\d,]*(?:\.\d+)?")
THINNED = 20  # one row of so many is enough here
PORT = "8000"


class Block(NamedTuple):
    """A block of a page: its language and text, and what its comment says."""

    language: str
    text: str
    mark: str = ""
    said: str = ""


def blocks(page: Path) -> list[Block]:
    found = BLOCK.findall(page.read_text())
    return [Block(language, text, mark, said) for mark, said, language, text in found]


class Reader:
    """Someone who does what a page says."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self.stack = stack
        self.names: dict[str, Any] = {"__name__": "__main__"}
        self.port = _free_port()
        # Colour and width of the terminal must not depend on who runs the tests.
        bin_first = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        self.environment = {**os.environ, "PATH": bin_first, "COLUMNS": "80", "NO_COLOR": "1"}

    def follow(self, block: Block) -> str:
        """Do it; what is printed to standard output comes back."""
        text = block.text.replace(PORT, str(self.port))
        if block.mark == "not run" or block.language not in ("python", "sh"):
            return ""
        if block.mark == "file":
            (self.folder / block.said).write_text(text)
            return ""
        if block.mark == "background":
            self.stack.enter_context(self._serving(text))
            return ""
        return self._run_python(text) if block.language == "python" else self._run_shell(text)

    def _run_python(self, text: str) -> str:
        said = io.StringIO()
        with chdir(self.folder), redirect_stdout(said):
            exec(compile(text, "<docs>", "exec"), self.names)
        return said.getvalue()

    def _run_shell(self, text: str) -> str:
        done = subprocess.run(
            ["bash", "-eo", "pipefail", "-c", text],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,  # a person sees both
            text=True,
        )
        assert done.returncode == 0, f"{text}\n{done.stdout}"
        return done.stdout

    @contextmanager
    def _serving(self, text: str) -> Iterator[None]:
        command = ["bash", "-c", f"exec {text}"]
        process = subprocess.Popen(
            command, cwd=self.folder, env=self.environment, stdout=subprocess.PIPE, text=True
        )
        try:
            assert process.stdout is not None
            assert f"http://127.0.0.1:{self.port}" in process.stdout.readline()
            yield
        finally:
            process.terminate()
            process.communicate()


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def shape(printed: str) -> list[list[str]]:
    """The words of each line, with 0 in place of each number; lines and bars of tables left out."""
    lines = re.sub(r"[┃│]", " ", printed).splitlines()
    words = [NUMBER.sub("0", line).split() for line in lines]
    return [line for line in words if line and not set("".join(line)) & set("━─")]


@pytest.fixture(scope="session")
def icd() -> Classification:
    """The data of the tutorial, with fewer rows."""
    whole = icd10cm()
    train, test = (data.take(range(0, data.n_rows, THINNED)) for data in (whole.train, whole.test))
    return whole._replace(train=train, test=test)


@pytest.fixture(scope="session")
def workplace(icd: Classification, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that the tutorial leaves."""
    folder = tmp_path_factory.mktemp("workplace")
    write(icd.train, folder / "train.jsonl")
    write(icd.test, folder / "test.jsonl")
    names = "".join(f"{code}\t{title}\n" for code, title in icd.titles.items())
    (folder / "names.tsv").write_text(names)
    labelry.Tagger().fit(icd.train, names=icd.titles).save(folder / "tagger.labelry")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page(page: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if "curl" in page.read_text() and shutil.which("curl") is None:
        pytest.skip("no curl")
    folder = tmp_path / "work"
    if page in (README, TUTORIAL):
        folder.mkdir()
    else:
        shutil.copytree(request.getfixturevalue("workplace"), folder)
    printed = ""
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        if page == README:
            subprocess.run([sys.executable, POSTS, folder], check=True)
        else:
            icd = request.getfixturevalue("icd")
            patch.setattr("labelry.data.icd.icd10cm", lambda: icd)
        patch.syspath_prepend(str(folder))  # as for a script in that folder
        patch.setattr("labelry.estimators.registry.SYSTEMS", systems := dict(SYSTEMS))
        patch.setattr("labelry.estimators.SYSTEMS", systems)
        person = Reader(folder, stack)
        for block in blocks(page):
            if block.language == "text" and block.mark != "varies":
                found = shape(printed)
                if block.mark == "lines":
                    found = [line for line in found if line in shape(block.text)]
                assert found == shape(block.text), printed
            if block.language == "csv":
                assert set(block.text.splitlines()) <= set(
                    (folder / "posts.csv").read_text().splitlines()
                )
            printed = person.follow(block)


def test_what_does_not_run_says_why() -> None:
    found = [block for page in PAGES for block in blocks(page)]
    assert {block.mark for block in found} == {
        "",
        "not run",
        "background",
        "file",
        "varies",
        "lines",
    }
    assert sum(block.mark == "not run" for block in found) < len(found) / 5
    for page in PAGES:  # a comment that is misspelt would be no mark
        assert page.read_text().count("<!--") == sum(bool(b.mark) for b in blocks(page))


def test_the_readme_reads_well_elsewhere() -> None:
    """Every link is absolute, and leads to a file or a page that the repository has."""
    text = README.read_text()
    homes = {
        "https://github.com/labelry/labelry/blob/main/": "",
        "https://raw.githubusercontent.com/labelry/labelry/main/": "",
        "https://labelry.readthedocs.io/en/latest/": "docs/",
    }
    links = re.findall(r'(?:\]\(|src(?:set)?=")([^)"]+)', text)
    assert len(links) > 10
    for link in links:
        home = next((home for home in homes if link.startswith(home)), None)
        assert home is not None, link
        path = homes[home] + link.removeprefix(home)
        assert (ROOT / (path.removesuffix("html") + "md" if homes[home] else path)).is_file(), link


def test_every_public_name_is_in_the_reference() -> None:
    text = "".join(page.read_text() for page in (DOCS / "reference").glob("*.md"))
    described = set(re.findall(r"auto\w+:: labelry\.(\w+)$", text, re.M)) | {"__version__"}
    assert set(labelry.__all__) <= described
    assert "`labelry.__version__`" in text


def test_every_system_is_listed() -> None:
    text = (DOCS / "reference" / "systems.md").read_text()
    listed = re.findall(r"^\| `([\w-]+)` \| `labelry\.(\w+)` \|$", text, re.M)
    assert dict(listed) == {name: home.split(":")[1] for name, home in SYSTEMS.items()}


def test_every_command_has_a_section() -> None:
    text = (DOCS / "reference" / "command-line.md").read_text()
    sections = re.findall(r"^### labelry (\w+)\n\n```\{labelry-command\} (\w+)\n```$", text, re.M)
    assert all(heading == directive for heading, directive in sections)
    assert {name for name, _ in sections} == set(typer.main.get_command(app).commands)  # type: ignore[attr-defined]


@pytest.mark.slow
def test_the_site_is_built_without_a_warning_and_asks_nothing_of_others() -> None:
    pytest.importorskip("sphinx")
    site = DOCS.parent / "build" / "site"  # as `make docs` has it: what is built is not built again
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", DOCS, site]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    pages = {page.relative_to(site): page.read_text() for page in site.rglob("*.html")}
    assert {page.relative_to(DOCS).with_suffix(".html") for page in DOCS.rglob("*.md")} < set(pages)
    for name, text in pages.items():
        fetched = re.findall(r'<(?:script|img|link|iframe)\b[^>]*(?:src|href)="([^"]+)"', text)
        assert not [url for url in fetched if re.match(r"(?:https?:)?//", url)], name
    options = pages[Path("reference/command-line.html")]
    assert "--embedding-dim" in options
    papers = pages[Path("papers.html")]
    assert 'href="reference/building-blocks.html#labelry.linalg.sketch.range_finder"' in papers
