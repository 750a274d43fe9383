"""Opens every page of the built site in headless Chromium, wide and narrow.

    make docs-check
    python docs/check_pages.py build/site [--shots=FOLDER]

Owns what is looked at: no message of an error on the console, nothing that is cut off at the side,
no request that leaves the machine, no link that leads nowhere, and a search that finds something.
Promises to end with status 1 and the page if one of them is wrong. Refuses to judge what is written
there. Needs chromium and chromium-driver (Debian's names).
"""

import argparse
import base64
import contextlib
import functools
import http.server
import json
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

WIDTHS = {1280: 900, 390: 844}
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--disable-dev-shm-usage", "--hide-scrollbars"),
)
TOO_WIDE = """
const most = document.documentElement.clientWidth;
const wide = document.scrollingElement.scrollWidth > most;
const names = [...document.querySelectorAll('article *')].filter(one => {
  for (let up = one.parentElement; up && up.tagName != 'ARTICLE'; up = up.parentElement)
    if (['auto', 'scroll', 'hidden'].includes(getComputedStyle(up).overflowX)) return false;
  return one.getBoundingClientRect().right > most + 1;
}).slice(0, 3).map(one => one.tagName + ': ' + one.textContent.slice(0, 60));
return wide || names.length ? [document.scrollingElement.scrollWidth, most, ...names] : [];
"""


class Browser:
    """A Chromium, by way of its driver (WebDriver, over HTTP)."""

    def __init__(self, driver, profile):
        port = _free_port()
        self._address = f"http://127.0.0.1:{port}"
        self._driver = subprocess.Popen(
            [driver, f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        options = {
            "args": [*FLAGS, f"--user-data-dir={profile}"],
            "perfLoggingPrefs": {"enableNetwork": True, "enablePage": False},
        }
        wanted = {
            "browserName": "chrome",
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
        }
        made = self._until_ready({"capabilities": {"alwaysMatch": wanted}})
        self._session = f"/session/{made['sessionId']}"

    def _until_ready(self, wanted):
        for _ in range(100):
            with contextlib.suppress(ConnectionError, urllib.error.URLError):
                return self._call("/session", wanted)
            time.sleep(0.1)
        sys.exit("chromedriver does not answer")

    def _call(self, path, content=None, method=None):
        data = None if content is None else json.dumps(content).encode()
        request = urllib.request.Request(self._address + path, data, method=method)
        request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise RuntimeError(json.load(error)["value"]["message"]) from None

    def resize(self, width, height):
        """Sets the size of the page, below the least size of a window too."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        command = {"cmd": "Emulation.setDeviceMetricsOverride", "params": size}
        self._call(f"{self._session}/goog/cdp/execute", command)

    def open(self, address):
        """Goes to a page and waits until it is loaded."""
        self._call(f"{self._session}/url", {"url": address})

    def run(self, script):
        """Returns what a script of the page returns."""
        return self._call(f"{self._session}/execute/sync", {"script": script, "args": []})

    def log(self, kind):
        """Returns what was logged since the last call: "browser" or "performance"."""
        return self._call(f"{self._session}/se/log", {"type": kind})

    def shot(self, path):
        """Writes what is seen as a PNG file."""
        path.write_bytes(base64.b64decode(self._call(f"{self._session}/screenshot")))

    def close(self):
        """Ends the browser and its driver."""
        with contextlib.suppress(RuntimeError, OSError):
            self._call(self._session, method="DELETE")
        self._driver.terminate()
        self._driver.wait()


def check(browser, address, shot=None):
    """Returns what is wrong with a page, a line each."""
    browser.open(address)
    time.sleep(0.2)  # what scripts of the page still ask for
    wrong = [f"console: {entry['message']}" for entry in browser.log("browser")]
    cut = browser.run(TOO_WIDE)
    if cut:
        wrong.append(f"cut off at the side: {cut}")
    wrong += [f"asks for {asked}" for asked in _left_the_machine(browser)]
    if shot:
        browser.shot(shot)
    return wrong


def dead_links(site, page):
    """Returns the links and images of a page that lead to nothing in the site."""
    text = (site / page).read_text()
    dead = []
    for link in set(re.findall(r"(?:href|src)=[\"']?([^\"' >]+)", text)):
        path = urllib.parse.unquote(urllib.parse.urlsplit(link).path)
        if re.match(r"\w+:|//", link) or not path:
            continue
        target = site / path.lstrip("/") if path.startswith("/") else (site / page).parent / path
        if not (target.is_file() or (target / "index.html").is_file()):
            dead.append(link)
    return dead


def _left_the_machine(browser):
    asked = []
    for entry in browser.log("performance"):
        message = json.loads(entry["message"])["message"]
        if message["method"] == "Network.requestWillBeSent":
            asked.append(message["params"]["request"]["url"])
    local = ("http://127.0.0.1:", "data:", "blob:", "about:", "chrome")
    return [url for url in asked if not url.startswith(local)]


def search_finds(browser, address, word):
    """Tells whether the search of the site lists a page for a word."""
    browser.open(f"{address}/?q={word}")
    type_it = (
        "const field = document.querySelector('.md-search__input');"
        "document.querySelector('#__search').checked = true; field.focus();"
        f"field.value = '{word}';"
        "field.dispatchEvent(new KeyboardEvent('keyup', {bubbles: true}));"
        "return document.querySelectorAll('.md-search-result__item').length"
    )
    return any(browser.run(type_it) or time.sleep(0.2) for _ in range(50))


@contextlib.contextmanager
def served(site):
    """Serves a folder on this machine; gives its address."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    handler = functools.partial(Quiet, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def main(arguments=None):
    """Checks every page at each width; returns the exit status."""
    parser = argparse.ArgumentParser(description="Opens each page of a site in headless Chromium.")
    parser.add_argument("site", type=pathlib.Path)
    parser.add_argument("--shots", type=pathlib.Path, help="folder for a picture of each page")
    options = parser.parse_args(arguments)
    driver = shutil.which("chromedriver")
    if driver is None:
        sys.exit("there is no chromedriver: apt-get install chromium chromium-driver")
    pages = sorted(path.relative_to(options.site) for path in options.site.rglob("*.html"))
    wrong = 0
    with served(options.site) as address, tempfile.TemporaryDirectory() as profile:
        browser = Browser(driver, profile)
        try:
            for width, height in WIDTHS.items():
                browser.resize(width, height)
                for page in pages:
                    shot = options.shots and _shot(options.shots, page, width)
                    found = [f"dead link: {link}" for link in dead_links(options.site, page)]
                    found += check(browser, f"{address}/{urllib.parse.quote(str(page))}", shot)
                    if page.name == "404.html":  # names its files from the root of a host
                        found = [line for line in found if "404" not in line]
                    for line in found:
                        print(f"{page} at {width}: {line}")
                    wrong += len(found)
            if not search_finds(browser, address, "rollback"):
                print("the search finds nothing for 'rollback'")
                wrong += 1
        finally:
            browser.close()
    print(f"{len(pages)} pages at {' and '.join(map(str, WIDTHS))} pixels: {wrong} things wrong")
    return 1 if wrong else 0


def _shot(folder, page, width):
    folder.mkdir(parents=True, exist_ok=True)
    name = str(page).removesuffix("index.html").strip("/").replace("/", "-") or "home"
    return folder / f"{name}-{width}.png"


def _free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


if __name__ == "__main__":
    sys.exit(main())
