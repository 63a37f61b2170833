"""What PyPI shows of the project: README as the long description, and the project's links. pyproject.toml has all else.

Links of README lead into the repository; on PyPI they would be dead. The release workflow sets PROJECT_URL and PROJECT_REF, the
repository's address and the released tag, and the links lead there. Without them a link's text stays, and the link is left out.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from setuptools import setup

_IMAGE = re.compile(r"!\[([^\]]*)\]\(([^)\s]+)\)")
_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)\s]+)\)")
_ABSOLUTE = re.compile(r"\w+:")
PYPI = "https://pypi.org/project/pykafka-wire/"


def long_description(readme: str, url: str, ref: str) -> str:
    """README with links that work outside of the repository; `url` is empty where the repository's address is unknown."""

    def image(found: re.Match[str]) -> str:
        if _ABSOLUTE.match(found[2]):
            return found[0]
        return f"![{found[1]}]({url}/raw/{ref}/{found[2]})" if url else ""

    def link(found: re.Match[str]) -> str:
        if _ABSOLUTE.match(found[2]):
            return found[0]
        if not url:
            return found[1]
        target = f"README.md{found[2]}" if found[2].startswith("#") else found[2]
        return f"[{found[1]}]({url}/blob/{ref}/{target})"

    return _LINK.sub(link, _IMAGE.sub(image, readme))


def project_urls(url: str, ref: str) -> dict[str, str]:
    """The project's links; PyPI's own page where the repository's address is unknown."""
    if not url:
        return {"Documentation": PYPI}
    return {
        "Source": url,
        "Documentation": f"{url}/blob/{ref}/docs/index.md",
        "Changelog": f"{url}/blob/{ref}/CHANGELOG.md",
        "Issues": f"{url}/issues",
    }


if __name__ == "__main__":
    given_url, given_ref = os.environ.get("PROJECT_URL", "").rstrip("/"), os.environ.get("PROJECT_REF", "HEAD")
    setup(
        long_description=long_description(Path("README.md").read_text(encoding="utf-8"), given_url, given_ref),
        long_description_content_type="text/markdown",
        project_urls=project_urls(given_url, given_ref),
    )
