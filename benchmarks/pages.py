"""Every page as its readers meet it: made by the commands, opened in Chromium at two widths, light and dark.

    python -m benchmarks.pages --out out/pages        # five pages and two lists: three minutes

Writes the pages and a picture of each first screen, and prints how tall a page is, whether the sentence, the badge and the
picture that answers are on the first screen, and what axe-core finds serious or critical. Exits with 1 where something is
missing or found.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from importlib import resources
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from . import commands

MOLECULES = """name,smiles
aspirin,CC(=O)Oc1ccccc1C(=O)O
caffeine,Cn1c(=O)c2c(ncn2C)n(C)c1=O
ibuprofen,CC(C)Cc1ccc(cc1)C(C)C(=O)O
"""

PAGES: dict[str, list[str]] = {
    "photo": ["image", "cat.png", "--out", "photo.html"],
    "eye": ["retina", "eye.png", "--out", "eye.html"],
    "question": ["questions", "did charles oakley play more minutes than robert parish?", "--out", "question.html"],
    "translation": ["translate", "good morning ladies and gentlemen", "--out", "translation.html"],
    "molecule": ["molecule", "COc1ccc(C(=O)Nc2nc3cc4c(cc3s2)OCCO4)c(OC)c1", "--out", "molecule.html"],
    "questions": ["questions", "who wrote hamlet?", "how many people live in paris?", "is it late?", "--out", "questions.html"],
    "molecules": ["molecule", "--file", "molecules.csv", "--out", "molecules.html"],
}
"""The commands that make the pages, by the name of the page."""

SIZES = {"desktop": (1400, 900), "phone": (390, 844)}


def first_screen(page: Page, selector: str) -> bool:
    """Whether an element of the selector lies within the window before any scrolling."""
    size = page.viewport_size
    for i in range(page.locator(selector).count()):
        box = page.locator(selector).nth(i).bounding_box()
        if box and size and box["y"] + box["height"] <= size["height"] + 1 and box["x"] + box["width"] <= size["width"] + 1:
            return True
    return False


def serious(page: Page) -> list[str]:
    """What axe-core finds serious or critical on a page."""
    page.evaluate(resources.files("axe_core_python").joinpath("axe.min.js").read_text(encoding="utf-8"))
    found = page.evaluate("async () => (await axe.run(document, {resultTypes: ['violations']})).violations")
    return [f"{one['id']} ({len(one['nodes'])})" for one in found if one["impact"] in ("serious", "critical")]


def main() -> None:
    """Make the pages, look at them, print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out/pages"), help="the folder to write to")
    parser.add_argument("--only", default="", help="only pages whose name contains this")
    parser.add_argument("--kept", action="store_true", help="look at the pages that are there, make none")
    parser.add_argument("--googlenet", type=Path, help="GoogLeNet's weights, for a page of two models on one photo")
    options = parser.parse_args()
    pages = dict(PAGES)
    if options.googlenet is not None:
        two = ["--model", "efficientnet-lite0", "--model", "googlenet", "--weights", str(options.googlenet.resolve())]
        pages["two models"] = ["image", "cat.png", *two, "--out", "two.html"]
    options.out.mkdir(parents=True, exist_ok=True)
    commands.inputs(options.out)
    (options.out / "molecules.csv").write_text(MOLECULES, encoding="utf-8")
    failed = False
    with sync_playwright() as driver:
        found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
        browser = driver.chromium.launch(executable_path=found, args=["--no-sandbox"])
        print("| page | window | height | on the first screen | axe-core: serious |\n|---|---|---|---|---|")
        for name, arguments in pages.items():
            if options.only not in name:
                continue
            file = options.out / arguments[-1]
            if not options.kept:
                file.unlink(missing_ok=True)
                subprocess.run(
                    [sys.executable, "-m", "integrand.cli", *arguments], cwd=options.out, check=True, capture_output=True
                )
            for window, (width, height) in SIZES.items():
                for theme in ("light", "dark"):
                    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=theme)
                    page = context.new_page()
                    page.goto(file.resolve().as_uri())
                    page.screenshot(path=options.out / f"{name.replace(' ', '-')}-{window}-{theme}.png")
                    tall = page.evaluate("document.documentElement.scrollHeight")
                    wide = page.evaluate("document.documentElement.scrollWidth")
                    parts = {"sentence": ".says", "badge": ".badge", "picture": ".glance > *, .glance .stage, .models.maps"}
                    seen = [part for part, selector in parts.items() if first_screen(page, selector)]
                    bad = serious(page)
                    failed |= bool(bad) or len(seen) < len(parts) or wide > width
                    over = f", {wide - width} px too wide" if wide > width else ""
                    print(f"| {name} | {window}, {theme} | {tall}{over} | {', '.join(seen)} | {', '.join(bad) or 'nothing'} |")
                    context.close()
        browser.close()
    sys.exit(int(failed))


if __name__ == "__main__":
    main()
