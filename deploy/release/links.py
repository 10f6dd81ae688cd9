"""Leads links of a document that leave a set of files to the repository.

As a program it is a preprocessor of mdBook: links of the chapters that leave `docs/` lead to the
repository. `ASYNCLANE_REPOSITORY` has its address, such as `https://github.com/OWNER/NAME`, and
`ASYNCLANE_REVISION` a branch or tag, `main` by default. Without an address such links become text.
"""

import json
import os
import pathlib
import re
import sys
from collections.abc import Callable

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
# `[text](target)` with a target inside the repository; an image has `!` before it.
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s:#]+)(#[^)\s]*)?\)")
FENCE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)


def outside(text: str, folder: pathlib.Path, base: str | None,
            leaves: Callable[[pathlib.Path], bool]) -> str:
    """Leads the links of a text that lies in `folder` to `base`, where `leaves` says so.

    `base` is the address of the files of a revision (`.../blob/main`). Without it the link's text
    is left. Images lead to the file itself. Fences stay as they are.
    """
    def lead(found: re.Match[str]) -> str:
        image, label, target, anchor = found.groups()
        path = (folder / target).resolve()
        if not leaves(path):
            return found[0]
        if base is None:
            return label
        relative = path.relative_to(ROOT)
        address = base.replace("/blob/", "/raw/") if image else base
        return f"{image}[{label}]({address}/{relative}{anchor or ''})"

    parts = FENCE.split(text)
    return "".join(part if part.startswith("```") else LINK.sub(lead, part) for part in parts)


def chapters(items: list) -> list[dict]:
    """All chapters of a book, nested ones too."""
    found = [item["Chapter"] for item in items if isinstance(item, dict) and "Chapter" in item]
    return [one for chapter in found for one in (chapter, *chapters(chapter["sub_items"]))]


def main() -> None:
    if sys.argv[1:2] == ["supports"]:
        return
    context, book = json.load(sys.stdin)
    docs = (pathlib.Path(context["root"]) / context["config"]["book"]["src"]).resolve()
    repository = os.environ.get("ASYNCLANE_REPOSITORY")
    revision = os.environ.get("ASYNCLANE_REVISION", "main")
    base = f"{repository}/blob/{revision}" if repository else None
    # Older versions of mdBook say `sections`.
    for chapter in chapters(book.get("items", book.get("sections", []))):
        folder = docs / pathlib.Path(chapter["path"]).parent
        chapter["content"] = outside(chapter["content"], folder, base,
                                     lambda path: not path.is_relative_to(docs))
    json.dump(book, sys.stdout)


if __name__ == "__main__":
    main()
