"""Take the screenshots of the docs: page, label map, report and API of the demo's model.

python tools/screenshots.py            trains the demo in build/screenshots; needs the dev extra
                                       and a Chromium
python tools/screenshots.py --keep     takes the model that is there
"""

import io
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

ROOT = Path(__file__).parent.parent
WORK = ROOT / "build" / "screenshots"
MODEL, REPORT = WORK / "icd10.labelry", WORK / "icd10-report.html"
LABELRY = [sys.executable, "-m", "labelry"]
DESKTOP, PHONE = (1120, 700), (390, 780)  # pixels of the browser's window
TEXT = "Acute bronchitis with asthma"
COLOURS = 256  # of a PNG: text stays sharp, and a file is below 200 KB
NO_HOSTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]


@contextmanager
def served() -> Iterator[str]:
    """Serve the model; yield the address."""
    command = [*LABELRY, "serve", str(MODEL), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            yield re.search(r"http://[\w.:]+", server.stdout.readline())[0]
        finally:
            server.terminate()


@contextmanager
def opened(browser: Browser, address: str, size: tuple[int, int], scheme: str) -> Iterator[Page]:
    width, height = size
    context = browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme=scheme,
        reduced_motion="reduce",
        device_scale_factor=2 if size == PHONE else 1.25,
    )
    page = context.new_page()
    page.goto(address)
    yield page
    context.close()


def keep(name: str, png: bytes) -> None:
    """Write a screenshot into the docs, with few colours, among them those of small areas."""
    out = ROOT / "docs" / "_static" / f"{name}.png"
    image = Image.open(io.BytesIO(png)).convert("RGB")
    few = image.quantize(COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    few.save(out, optimize=True)
    print(f"{out.name}: {image.width} x {image.height}, {out.stat().st_size / 1000:.0f} KB")


def take(browser: Browser, address: str) -> None:
    views = {"light": (DESKTOP, "light"), "dark": (DESKTOP, "dark"), "phone": (PHONE, "light")}
    for view, (size, scheme) in views.items():
        with opened(browser, address, size, scheme) as page:
            page.wait_for_load_state("networkidle")
            keep(f"start-{view}", page.screenshot())
            page.fill("#text", TEXT)
            page.wait_for_selector("#marks mark")
            page.wait_for_selector("#map-frame:not([hidden])", timeout=300_000)
            page.wait_for_load_state("networkidle")
            keep(f"page-{view}", page.screenshot())
            page.locator("#map-section").scroll_into_view_if_needed()
            page.wait_for_load_state("networkidle")
            keep(f"map-{view}", page.locator("#map-section").screenshot())
        with opened(browser, REPORT.as_uri(), size, scheme) as page:
            keep(f"report-{view}", page.screenshot())
        with opened(browser, f"{address}/docs", size, scheme) as page:
            page.wait_for_load_state("networkidle")
            keep(f"api-{view}", page.screenshot())


def main() -> None:
    WORK.mkdir(parents=True, exist_ok=True)
    if "--keep" not in sys.argv:
        subprocess.run([*LABELRY, "demo", "--out", str(MODEL)], check=True)
    with served() as address, sync_playwright() as playwright:
        chromium = shutil.which("chromium")  # else that of playwright
        browser = playwright.chromium.launch(executable_path=chromium, args=NO_HOSTS)
        take(browser, address)
        browser.close()


if __name__ == "__main__":
    main()
