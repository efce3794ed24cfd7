"""The pages of the API: each public name is on one of them."""

import ast
import re
from pathlib import Path

import varfilter

ROOT = Path(__file__).parent.parent


def test_every_public_name_is_on_a_page():
    pages = "".join(page.read_text() for page in (ROOT / "docs" / "api").glob("*.md"))
    listed = re.findall(r"^::: (\S+)$", pages, re.M)
    shown = set(listed)
    assert len(listed) == len(shown), "a name stands on two pages, or twice on one"
    assert {"load", "fit", "Run", "Iterative"} <= set(varfilter.__all__)
    for name in varfilter.__all__:
        value = getattr(varfilter, name)
        home = value.__module__
        assert {home, f"{home}.{name}"} & shown, f"{home}.{name} is on no page of docs/api"


def test_every_name_on_a_page_is_there():
    for page in (ROOT / "docs" / "api").glob("*.md"):
        for shown in re.findall(r"^::: (\S+)$", page.read_text(), re.M):
            path = ROOT / "src" / Path(*shown.split("."))
            if path.with_suffix(".py").exists():
                continue
            tree = ast.parse(path.parent.with_suffix(".py").read_text())
            defined = {node.name for node in tree.body if hasattr(node, "name")}
            assert path.name in defined, f"{page.name} shows {shown}, which is not there"
