"""A page as its elements."""

from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

VOID = {"meta", "input", "path", "rect", "br", "link"}


class Page(HTMLParser):
    """Elements of a page in order, each with its attributes, its text and what it is inside of."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None], list[str]]] = []
        self._open: list[int] = []
        self.text = path.read_text(encoding="utf-8")
        self.feed(self.text)
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs), []))
        if tag not in VOID:
            self._open.append(len(self.found) - 1)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs), []))

    def handle_endtag(self, tag: str) -> None:
        assert self.found[self._open.pop()][0] == tag

    def handle_data(self, data: str) -> None:
        for place in self._open:
            self.found[place][2].append(data)

    def all(self, tag: str, **attributes: str) -> Iterator[tuple[dict[str, str | None], str]]:
        for name, attrs, text in self.found:
            wanted = {key.rstrip("_"): value for key, value in attributes.items()}
            if name == tag and wanted.items() <= attrs.items():
                yield attrs, " ".join("".join(text).split())
