"""The site: it builds without a warning, its links lead somewhere, and it needs no network."""

import html
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit

import pytest

from browser import look_at
from pages import DOCS, PAGES, ROOT, blocks, python_of

WIDTHS = (1280, 400)
# Longer lines scroll inside of their frame at 1280 pixels.
MOST_LETTERS = 100
# A page that says what it would have to scroll, of tables and of Python.
CUT = """<script>
for (const each of document.querySelectorAll("table:not([class]), .language-python code"))
  if (each.scrollWidth > each.clientWidth + 1) wrong.push(each.textContent.slice(0, 60));
</script>"""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    pytest.importorskip("material")
    pytest.importorskip("latex2mathml")
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-q", "-d", str(folder)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder


class Links(HTMLParser):
    """Where a page points to, what it loads, and the places in it that can be pointed to."""

    def __init__(self, page):
        super().__init__()
        self.targets, self.loaded, self.places = [], [], {""}
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.places |= {given[name] for name in ("id", "name") if given.get(name)}
        if tag == "a" and given.get("href"):
            self.targets.append(given["href"])
        if tag in ("img", "script", "source", "audio", "video") and given.get("src"):
            self.loaded.append(given["src"])
        if tag == "link" and given.get("rel") in ("stylesheet", "icon"):
            self.loaded.append(given["href"])


def test_every_link_and_anchor_leads_somewhere(site):
    pages = {page: Links(page) for page in site.rglob("*.html") if page.name != "404.html"}
    assert len(pages) >= len(PAGES)
    for page, links in pages.items():
        for target in links.targets + links.loaded:
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                continue
            path = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            assert path.exists(), f"{page.relative_to(site)} -> {target}"
            if path in pages:
                assert unquote(parts.fragment) in pages[path].places | {"__top"}, (
                    page.name,
                    target,
                )


def test_nothing_is_loaded_from_elsewhere(site):
    for page in site.rglob("*.html"):
        for target in Links(page).loaded:
            assert not urlsplit(target).netloc, (page.name, target)


def test_links_of_the_readme_lead_somewhere():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    targets = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text)
    targets += re.findall(r'(?:src|srcset)="([^"]+)"', text)
    assert len(targets) > 10
    for target in targets:
        assert "://" in target or (ROOT / target).exists(), target


def test_formulas_are_mathml(site):
    text = (site / "how.html").read_text(encoding="utf-8")
    assert text.count("<math ") == text.count("</math>") >= 10
    assert 'display="block"' in text
    for page in site.rglob("*.html"):
        said = page.read_text(encoding="utf-8")
        assert "arithmatex" not in said, page.name
        assert "\\mathcal" not in said, page.name


def test_pages_fit_on_a_screen_and_on_a_phone(site, tmp_path):
    # The page with formulas, pictures, tables and code; those of the others are of the same kinds.
    copy = shutil.copytree(site, tmp_path / "site")
    measured, said, _ = look_at(copy / "how.html", WIDTHS, copy)
    assert set(measured) == set(WIDTHS)
    for width, page in measured.items():
        assert page["scroll"] <= width
        assert not page["blank"]
    # A phone shows pictures that were drawn for it.
    assert max(measured[400]["drawn"]) < min(measured[1280]["drawn"])
    assert "ERROR" not in said


def test_no_table_and_no_line_of_python_is_cut_off_on_a_screen(site, tmp_path):
    """The widest table, that of the paper's results, and the longest lines stand there whole."""
    copy = shutil.copytree(site, tmp_path / "site")
    longest = max(PAGES, key=lambda page: max(map(len, python_of(page).splitlines()), default=0))
    for name in ("paper.html", longest.relative_to(DOCS).with_suffix(".html")):
        page = copy / name
        page.write_text(page.read_text(encoding="utf-8").replace("</body>", CUT + "</body>"))
        measured, _, _ = look_at(page, (1280,), page.parent)
        assert measured[1280]["wrong"] == [], name


def test_phones_get_the_pictures_that_were_drawn_for_them(site):
    narrow = {path.name for path in (DOCS / "pictures").glob("*_narrow.png")}
    assert len(narrow) >= 2
    pages = "".join(path.read_text(encoding="utf-8") for path in site.rglob("*.html"))
    for name in narrow:
        assert f'pictures/{name}"' in pages, f"no page shows {name}"
        assert (site / "pictures" / name).exists()


def test_formulas_need_no_font_for_mathematics(site):
    """Braces that stretch and letters that touch come out as lines and as room."""
    text = (site / "how.html").read_text(encoding="utf-8")
    assert "&#x23DF;" not in text
    assert "\u23df" not in text
    assert text.count('<mrow class="braced">') == 4
    assert '<mi>log</mi><mspace width="0.167em"/>' in text


def test_words_with_dashes_stay_whole(site):
    """A command that ended in `goes-` and went on with `on.mid` below read like two words."""
    text = (site / "tutorials" / "music.html").read_text(encoding="utf-8")
    for word in ("goes-on.mid", "--num-steps", "new/test-000.mid"):
        assert f'<span class="option">{word}</span>' in text, word
    blocks_of_commands = re.findall(r'<div class="language-sh highlight">.*?</div>', text, re.S)
    plain = html.unescape("".join(re.sub("<[^>]*>", "", each) for each in blocks_of_commands))
    # What is copied is what stands in the page's source.
    for line in "\n".join(blocks(DOCS / "tutorials" / "music.md", "sh")).splitlines():
        assert line in plain


def test_pages_follow_the_system_until_a_reader_says_otherwise(site):
    text = (site / "index.html").read_text(encoding="utf-8")
    media = re.findall(r'data-md-color-media="([^"]*)"', text)
    assert media[0] == "(prefers-color-scheme)"
    assert set(media[1:]) == {"(prefers-color-scheme: light)", "(prefers-color-scheme: dark)"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_code_is_not_wider_than_a_screen(page):
    for block in blocks(page, "python"):
        assert max(map(len, block.splitlines())) <= MOST_LETTERS, page.name


def test_every_picture_has_its_script_and_its_page():
    drawn = {path.name for path in (DOCS / "pictures").glob("*.png")}
    # Those for phones are drawn with the others, by the same script.
    narrow = {name for name in drawn if name.endswith("_narrow.png")}
    assert {name.replace("_narrow", "") for name in narrow} <= drawn
    drawn -= narrow
    said = "".join(path.read_text() for path in (DOCS / "pictures").glob("*.py"))
    shown = "".join(page.read_text() for page in (*PAGES, ROOT / "README.md"))
    for name in drawn:
        assert f'"{name}"' in said, f"no script makes {name}"
        assert name in shown, f"no page shows {name}"
    for name in set(re.findall(r"pictures/([\w.]+\.(?:png|gif|mid|wav))", shown)):
        path = DOCS / "pictures" / name
        assert path.exists(), name
        assert path.stat().st_size < 200_000, name
