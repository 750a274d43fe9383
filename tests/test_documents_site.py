"""The look at the built pages (`make docs-check`) sees what it is there to see."""

import importlib.util
import shutil

import pytest

from conftest import HERE

ICON = '<link rel="icon" href="data:,">'
GOOD = f"<!doctype html><title>good</title>{ICON}<article><p>A page.</p></article>"
WRONG = f"""<!doctype html><title>wrong</title>{ICON}
<script>console.error("an error")</script><img src="https://example.invalid/a.png" alt="">
<article><p style="width: 3000px">wide</p></article>"""


def check_pages():
    spec = importlib.util.spec_from_file_location("pages", HERE.parent / "docs" / "check_pages.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_page_that_is_wrong_is_found_out(tmp_path):
    driver = shutil.which("chromedriver")
    if driver is None or shutil.which("chromium") is None:
        pytest.skip("THE PAGES WERE NOT LOOKED AT: apt-get install chromium chromium-driver")
    pages = check_pages()
    for name, text in {"good.html": GOOD, "wrong.html": WRONG}.items():
        (tmp_path / name).write_text(text)
    with pages.served(tmp_path) as address:
        browser = pages.Browser(driver, tmp_path / "profile")
        try:
            browser.resize(390, 844)
            assert pages.check(browser, f"{address}/good.html") == []
            found = pages.check(browser, f"{address}/wrong.html")
        finally:
            browser.close()
    assert any("an error" in line for line in found), found
    assert any("cut off" in line for line in found), found
    assert any("asks for https://example.invalid/a.png" in line for line in found), found
