"""Checks the built site: every link of its pages leads to a page, an anchor or a file that exists.

Usage: pages.py FOLDER REPOSITORY, with the folder that mdBook wrote and the repository's address
that `links.py` was given. Addresses of other hosts are counted, not asked.
"""

import html.parser
import pathlib
import re
import sys
import urllib.parse

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


class Page(html.parser.HTMLParser):
    """The targets of a page's links and images, and its anchors."""

    def __init__(self, path: pathlib.Path) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.anchors: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("href", "src") and value:
                self.targets.append(value)
            elif name == "id" and value:
                self.anchors.add(value)


def problem(site: pathlib.Path, pages: dict[pathlib.Path, Page], page: pathlib.Path,
            target: str) -> str | None:
    """What is wrong with a link inside the site."""
    path, _, anchor = target.partition("#")
    file = (page.parent / urllib.parse.unquote(path)).resolve() if path else page
    if not file.is_file() or not file.is_relative_to(site):
        return "no such page"
    if anchor and file in pages and urllib.parse.unquote(anchor) not in pages[file].anchors:
        return "no such anchor"
    return None


def main() -> None:
    site, repository = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2].rstrip("/")
    pages = {path: Page(path) for path in site.rglob("*.html")}
    inside, outside, foreign, wrong = 0, 0, 0, []
    for path, page in pages.items():
        # Every page on one; 404.html is served from any address, with a base of its own.
        if path.name in ("print.html", "404.html"):
            continue
        for target in page.targets:
            if target.startswith(f"{repository}/"):
                # blob/REVISION/FILE or raw/REVISION/FILE
                file = target.removeprefix(f"{repository}/").split("/", 2)[2].split("#")[0]
                found = None if (ROOT / file).exists() else "no such file of the repository"
                outside += 1
            elif re.match(r"[a-z]+:", target):
                foreign += 1
                continue
            else:
                found = problem(site, pages, path, target)
                inside += 1
            if found:
                wrong.append(f"{path.name}: {target}: {found}")
    summary = (ROOT / "docs" / "SUMMARY.md").read_text(encoding="utf-8")
    for name in re.findall(r"^- \[[^\]]+\]\(([^)]+)\.md\)", summary, re.MULTILINE):
        if site / f"{name}.html" not in pages:
            wrong.append(f"{name}.md has no page")
    print("\n".join(wrong))
    print(f"{len(pages)} pages, links: {inside} inside, {outside} to files of the repository, "
          f"{foreign} elsewhere")
    if wrong or len(pages) < 15 or inside < 100 or outside < 20:
        sys.exit(1)


if __name__ == "__main__":
    main()
