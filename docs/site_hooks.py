"""What MkDocs does beside its plugins, for `make docs`.

Owns the pages of the site that are files elsewhere in the repository: the documents at its top, and
whatever a page links to outside `docs/`. Promises that such a link, right on a code host, is right
on the site too. Refuses to fetch anything.
"""

import os
import pathlib
import re

from mkdocs.structure import files as mkdocs_files

ROOT = pathlib.Path(__file__).parent.parent
PROJECT = "project"  # where files from outside docs/ are on the site
LINK = re.compile(r"\]\(([^)\s#]+)(#[^)\s]*)?\)")
LANGUAGES = {".py": "python", ".yml": "yaml", ".cfg": "ini"}


def on_files(files, config):
    """Adds each file that the navigation or a link names and that is not in `docs/`."""
    wanted = ["README.md", "BUILD.md", "CHANGELOG.md", "CONTRIBUTING.md", "benchmarks/README.md"]
    pages = [(f"docs/{file.src_uri}", file.content_string) for file in files.documentation_pages()]
    pages += [(name, (ROOT / name).read_text()) for name in wanted]
    for source, text in pages:
        for link in LINK.finditer(text):
            target = _outside(source, link[1])
            if target is not None and target not in wanted:
                wanted.append(target)
    for name in wanted:
        files.append(mkdocs_files.File.generated(config, _uri(name), content=_content(name)))
    return files


def on_page_markdown(markdown, page, config, files):
    """Turns links that leave `docs/` into links to the pages added above."""
    uri = page.file.src_uri
    inside = uri.startswith(f"{PROJECT}/")
    source = uri.removeprefix(f"{PROJECT}/") if inside else f"docs/{uri}"

    def turned(link):
        target = _outside(source, link[1]) or (_inside(source, link[1]) if inside else None)
        if target is None:
            return link[0]
        there = target.removeprefix("docs/") if _is_page(target) else _uri(target)
        return f"]({os.path.relpath(there, os.path.dirname(uri) or '.')}{link[2] or ''})"

    parts = re.split(r"(^```.*?^```$)", markdown, flags=re.DOTALL | re.MULTILINE)
    return "".join(part if part.startswith("```") else LINK.sub(turned, part) for part in parts)


def _path(source, link):
    """Returns the path in the repository that a link leads to, or None for an address."""
    if ":" in link:
        return None
    path = os.path.normpath(os.path.join(os.path.dirname(source), link))
    return path if (ROOT / path).exists() else None


def _outside(source, link):
    path = _path(source, link)
    if path is not None and (ROOT / path).is_dir():
        raise ValueError(f"{source} links to the folder {path}; link to a file of it")
    return None if path is None or _is_page(path) else path


def _inside(source, link):
    path = _path(source, link)
    return path if path is not None and _is_page(path) else None


def _is_page(path):
    return path.startswith("docs/") and not path.endswith(".py")


def _uri(name):
    return f"{PROJECT}/{name}" if name.endswith(".md") else f"{PROJECT}/{name}.md"


def _content(name):
    path = ROOT / name
    if path.suffix == ".md":
        return path.read_text()
    language = LANGUAGES.get(path.suffix, "text")
    return f"# {name}\n\n````{language}\n{path.read_text()}````\n"
