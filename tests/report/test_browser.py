import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from onebasin.report import build
from report import browser, toy

CHROMIUM = browser.find()
pytestmark = pytest.mark.skipif(
    CHROMIUM is None or os.name != "posix",
    reason="no Chromium here: install the package chromium, or set ONEBASIN_CHROMIUM to one",
)
WALK = "document.getElementById('p0-picture-walk')"
WAYS = "document.getElementById('p0-curves-ways')"
QUALITY = "document.querySelector('table.sortable')"


@pytest.fixture(scope="module")
def artefacts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where screenshots are kept: ONEBASIN_ARTEFACTS, or pytest's own folder."""
    kept = os.environ.get("ONEBASIN_ARTEFACTS")
    folder = Path(kept) / "report" if kept else tmp_path_factory.mktemp("screenshots")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("runs")
    first, second = toy.run(folder / "first"), toy.run(folder / "second", width=64, seed=3)
    return {"one": build(first), "two": build([first, second], folder / "two.html")}


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[browser.Browser]:
    assert CHROMIUM is not None
    with browser.started(CHROMIUM, tmp_path_factory.mktemp("profile")) as started:
        yield started


@pytest.fixture
def page(chromium: browser.Browser, pages: dict[str, Path]) -> Iterator[browser.Browser]:
    chromium.screen(1400)
    chromium.open(pages["one"])
    chromium.js("localStorage.clear()")
    yield chromium
    assert not chromium.errors


def background(page: browser.Browser) -> str:
    return page.js("getComputedStyle(document.body).backgroundColor")


def test_every_figure_is_drawn_without_a_network(page: browser.Browser) -> None:
    assert page.js("document.documentElement.dataset.ready") == "true"
    assert page.js("document.querySelectorAll('.plot').length") == 10
    assert page.js("document.querySelectorAll('.plot:not(.js-plotly-plot)').length") == 0
    assert [url for url in page.requests if not url.startswith(("file:", "data:"))] == []


def test_labels_are_shown_as_they_are_written(page: browser.Browser) -> None:
    shown = page.js(
        "document.querySelector('#p0-curves-landscape .annotation-text:last-of-type') && "
        "[...document.querySelectorAll('#p0-curves-landscape .annotation-text')]"
        ".map(node => node.textContent)"
    )
    assert shown == ["A", "B", toy.NASTY]


def test_the_slider_changes_the_figure_from_the_keyboard(page: browser.Browser) -> None:
    path = f"{WALK}.querySelector('.point').getAttribute('transform')"
    before = page.js(path)
    page.js(f"{WALK}.querySelector('input[type=range]').focus()")
    page.press("ArrowRight", 39)
    page.wait(f"{path} !== '{before}'")
    assert page.js(f"{WALK}.querySelector('output').textContent") == "1 of 4 steps"
    assert page.js(f"{WALK}.querySelector('input[type=range]').ariaValueText") == "1 of 4 steps"
    page.press("ArrowLeft", 37)
    page.wait(f"{path} === '{before}'")


def test_a_switch_hides_a_method_in_all_panels(page: browser.Browser) -> None:
    names = f"[...{WAYS}.querySelectorAll('.plot')].map(p => p.data.map(t => t.name || ''))"
    assert all(any("HMC" in name for name in panel) for panel in page.js(names))
    page.js(f"{WAYS}.querySelector('[data-key=\"g:HMC\"]').click()")
    assert not any("HMC" in name for panel in page.js(names) for name in panel)
    page.js(f"{WAYS}.querySelector('[data-key=\"g:HMC\"]').click()")
    assert all(any("HMC" in name for name in panel) for panel in page.js(names))


def test_tables_sort_within_their_groups_from_the_keyboard(page: browser.Browser) -> None:
    rows = f"[...{QUALITY}.tBodies].map(b => [...b.rows].map(r => r.cells[0].textContent))"
    state = f"[...{QUALITY}.querySelectorAll('th[data-sort]')].map(th => th.ariaSort)"
    order = page.js(rows)
    page.js(f"{QUALITY}.querySelectorAll('th[data-sort] button')[1].focus()")
    page.press("Enter", 13)
    assert page.js(state) == ["none", "ascending", "none", "none"]
    assert page.js(rows) == [
        ["Draws", "HMC", "Deep ensemble"],
        ["Gaussians", "Ours, aligned", "SWAG", "Mean field"],
    ]
    page.press("Enter", 13)
    assert page.js(state)[1] == "descending"
    assert page.js(rows)[0] == ["Draws", "Deep ensemble", "HMC"]
    page.press("Enter", 13)
    assert page.js(rows) == order
    page.js(f"{QUALITY}.querySelectorAll('th[data-sort] button')[2].click()")
    assert page.js(rows)[1][-1] == "Ours, aligned"


def test_dark_mode_follows_the_system_and_the_button(page: browser.Browser) -> None:
    tick = "document.querySelector('.xtick text').style.fill"
    light, light_tick = background(page), page.js(tick)
    page.screen(1400, dark=True)
    page.wait(f"{tick} !== '{light_tick}'")
    assert background(page) != light
    page.js("document.getElementById('theme').click()")
    page.wait(f"{tick} === '{light_tick}'")
    assert background(page) == light
    assert page.js("document.getElementById('theme').ariaPressed") == "false"
    page.js("localStorage.clear()")


@pytest.mark.parametrize("which", ["one", "two"])
@pytest.mark.parametrize("width", [360, 400, 800, 1400])
def test_the_page_never_scrolls_sideways(
    chromium: browser.Browser, pages: dict[str, Path], which: str, width: int
) -> None:
    chromium.screen(width)
    chromium.open(pages[which])
    assert chromium.js("document.documentElement.scrollWidth <= innerWidth")
    assert not chromium.errors


def test_it_prints_light(page: browser.Browser, artefacts: Path) -> None:
    page.screen(1400, dark=True)
    page.js("dispatchEvent(new Event('beforeprint'))")
    page.send("Emulation.setEmulatedMedia", media="print")
    assert background(page) == "rgb(255, 255, 255)"
    assert page.js("getComputedStyle(document.getElementById('theme')).display") == "none"
    page.shot(artefacts / "print.png")
    page.js("dispatchEvent(new Event('afterprint'))")
    page.send("Emulation.setEmulatedMedia", media="screen")
    page.screen(1400, dark=True)
    assert background(page) != "rgb(255, 255, 255)"
    page.send("Emulation.setEmulatedMedia", media="")


def test_tables_can_be_read_without_scripts(
    chromium: browser.Browser, pages: dict[str, Path], artefacts: Path
) -> None:
    chromium.screen(1000)
    chromium.send("Emulation.setScriptExecutionDisabled", value=True)
    try:
        chromium.send("Page.navigate", url=pages["one"].as_uri())
        chromium.send("Page.getLayoutMetrics")
        chromium.wait("document.readyState === 'complete'")
        shown = "getComputedStyle(document.querySelector('%s')).display"
        assert chromium.js(shown % "table.data") == "table"
        assert chromium.js(shown % "#theme") == "none"
        assert chromium.js(shown % ".plot") == "none"
        assert chromium.js(shown % "noscript p") == "block"
        chromium.shot(artefacts / "no-scripts.png")
    finally:
        chromium.send("Emulation.setScriptExecutionDisabled", value=False)


@pytest.mark.parametrize(
    ("name", "which", "width", "dark"),
    [
        ("light", "one", 1400, False),
        ("dark", "one", 1400, True),
        ("narrow", "one", 400, False),
        ("compared", "two", 1400, False),
    ],
)
def test_screenshots(
    chromium: browser.Browser,
    pages: dict[str, Path],
    artefacts: Path,
    name: str,
    which: str,
    width: int,
    dark: bool,
) -> None:
    chromium.screen(width, dark=dark)
    chromium.open(pages[which])
    kept = chromium.shot(artefacts / f"{name}.png")
    assert kept.read_bytes().startswith(b"\x89PNG")
    assert kept.stat().st_size > 50_000
