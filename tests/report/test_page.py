import csv
import io
import itertools
import json
import re
import shutil
import urllib.parse
from pathlib import Path

import pytest

from onebasin.report import build, figures, palette
from onebasin.report.figures import safe_json
from onebasin.report.numbers import interval, number, seconds
from onebasin.studies import (
    Axis,
    Cell,
    Figure,
    Panel,
    Section,
    Series,
    Study,
    StudyConfig,
    StudyError,
    sections,
)
from report import toy
from report.pages import Page

AXIS = Axis(label="x")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy.run(tmp_path_factory.mktemp("runs") / "first")


@pytest.fixture(scope="module")
def page(finished: Path) -> Page:
    return Page(build([finished]))


@pytest.fixture(scope="module")
def compared(finished: Path) -> Page:
    other = toy.run(finished.parent / "second", width=64, seed=3)
    return Page(build([finished, other], finished.parent / "both.html"))


def test_the_page_lies_in_the_run_and_asks_for_nothing_outside(finished: Path, page: Page) -> None:
    assert (finished / "report.html").is_file()
    for _, attrs, _ in page.found:
        for name in ("src", "href"):
            assert (attrs.get(name) or "#").startswith(("#", "data:text/csv"))
    assert "default-src 'none'" in page.text


def test_headings_come_in_order(page: Page) -> None:
    levels = [int(tag[1]) for tag, _, _ in page.found if re.fullmatch(r"h\d", tag)]
    main = levels[levels.index(1) :]
    assert main.count(1) == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(main))


def test_names_of_places_are_unique(page: Page, compared: Page) -> None:
    for one in (page, compared):
        ids = [attrs["id"] for _, attrs, _ in one.found if "id" in attrs]
        assert len(ids) == len(set(ids))
        targets = {attrs["href"] for attrs, _ in one.all("a") if attrs["href"].startswith("#")}
        assert targets <= {f"#{id}" for id in ids}


def test_summary_says_what_was_run(page: Page) -> None:
    facts = dict(zip((t for _, t in page.all("dt")), (t for _, t in page.all("dd")), strict=True))
    assert facts["Study"] == "toy"
    assert facts["Data"] == "digits"
    assert facts["Seed"] == "0"
    cards = [text for _, text in page.all("p", class_="card-value")]
    assert cards == ["0.9897", "97.2 %", "0.004 nats", "1 / 512"]


def test_every_machine_of_a_run_is_named(finished: Path, tmp_path: Path) -> None:
    run = shutil.copytree(finished, tmp_path / "run")
    first = next((run / "stages").iterdir()) / "stage.json"
    content = json.loads(first.read_text())
    del content["sha256"]
    first.write_text(json.dumps({**content, "machine": {"device": "A Large GPU"}}))
    text = Page(build([run], tmp_path / "page.html")).text
    assert "A Large GPU (1 stages)" in text
    assert "A Large GPU" not in Page(build([finished], tmp_path / "other.html")).text


def test_bars_with_many_names_take_the_whole_width() -> None:
    def wide(count: int) -> bool:
        names = [f"method {n}" for n in range(count)]
        bars = Series(name="raw", x=range(count), y=range(count), labels=names, style="bars")
        figure = Figure(name="f", title="F", panels=[Panel(x=AXIS, y=AXIS, series=[bars])])
        return figures.view(figure, "f", palette.slots([figure])).wide

    assert wide(9)
    assert not wide(8)


def test_the_picture_opens_the_page_once(page: Page) -> None:
    figures = [attrs["id"] for attrs, _ in page.all("figure")]
    assert figures[0] == "p0-opening-0"
    assert "p0-picture-clouds" not in figures
    assert "p0-picture-walk" in figures


def test_texts_are_escaped(page: Page) -> None:
    assert toy.NASTY not in page.text
    assert len(list(page.all("b"))) == 0
    titles = [text for _, text in page.all("h3")]
    assert toy.NASTY in titles


def test_json_cannot_leave_its_element() -> None:
    content = {"a": "</script><!-- & \u2028"}
    text = safe_json(content)
    assert not set("<>&\u2028") & set(text)
    assert json.loads(text) == content


def test_figures_reach_the_script_whole(page: Page) -> None:
    [(_, text)] = page.all("script", id="figures")
    specs = {spec["name"]: spec for spec in json.loads(text)}
    assert set(specs) == {attrs["id"] for attrs, _ in page.all("figure")}
    frames = specs["p0-curves-temperatures"]["frames"]
    assert [frame["label"] for frame in frames] == ["T = 1", "T = 0.5", "T = 0.25", "T = 0.125"]
    assert frames[0]["series"][0]["labels"] == ["A", "B", toy.NASTY]
    walk = specs["p0-picture-walk"]["panels"][0]["range"]
    xs = [x for f in specs["p0-picture-walk"]["frames"] for s in f["series"] for x in s["x"]]
    assert walk["x"][0] < min(xs) < max(xs) < walk["x"][1]


def test_a_method_looks_alike_in_all_panels(page: Page) -> None:
    [(_, text)] = page.all("script", id="figures")
    [spec] = [spec for spec in json.loads(text) if spec["name"] == "p0-curves-ways"]
    colours: dict[str, set[int]] = {}
    for panel in spec["panels"]:
        for series in panel["series"]:
            colours.setdefault(series["group"], set()).add(series["look"]["colour"])
    assert [len(found) for found in colours.values()] == [1, 1, 1, 1]
    assert len({min(found) for found in colours.values()}) == 4
    first = spec["panels"][0]["series"]
    assert len({(s["look"]["colour"], s["look"]["dash"]) for s in first}) == len(first)


def test_cells_say_value_interval_and_published(page: Page) -> None:
    start = page.text.index(">HMC</th>")
    row = page.text[start : page.text.index("</tr>", start)]
    assert '<td class="value" data-value="0.99"><strong>0.9900</strong></td>' in row
    assert '<td class="interval">[0.986, 0.993]</td>' in row
    assert '<td class="published" data-value="0.989">0.9890</td>' in row


def test_heads_say_how_to_sort(page: Page) -> None:
    heads = [
        (text, attrs["data-sort"], attrs["data-better"])
        for attrs, text in page.all("th")
        if "data-sort" in attrs
    ]
    assert heads[:4] == [
        ("Accuracy↑", "0", "higher"),
        ("NLL (nats)a↓", "3", "lower"),
        ("ECE↓", "5", "lower"),
        ("Bytes", "6", ""),
    ]


def test_best_is_marked_in_weight_with_ties_and_over_groups(page: Page) -> None:
    table = page.text[page.text.index('id="p0-quality-quality"') :]
    table = table[: table.index("</table>")]
    assert re.findall(r"<strong>(.*?)</strong>", table) == [
        *("0.9900", "0.012"),
        *("0.012", "0.012", "0.012"),
        "3.10e\N{MINUS SIGN}7",
    ]


def test_csv_is_the_table(finished: Path, page: Page) -> None:
    links = {a["download"]: a["href"] for a, _ in page.all("a") if "download" in a}
    text = urllib.parse.unquote(links["p0-quality-quality.csv"].partition(",")[2])
    assert text.removeprefix("\ufeff") == sections(finished)["quality"].table("quality").to_csv()


def test_foot_has_configuration_times_and_versions(page: Page) -> None:
    rows = [text for _, text in page.all("tr")]
    assert "sampler.num_samples100" in rows
    assert any(row.startswith("curves") and row.endswith(" s") for row in rows)
    assert any(row.startswith("jax") for row in rows)


def test_comparison_shows_both_and_the_difference(compared: Page) -> None:
    start = compared.text.index(">HMC</th>")
    row = compared.text[start : compared.text.index("</tr>", start)]
    cells = re.findall(r'<td class="(\w+)".*?>(?:<strong>)?([^<]*)', row)
    assert cells[:6] == [
        ("value", "0.9900"),
        ("interval", "[0.986, 0.993]"),
        ("value", "0.9996"),
        ("interval", "[0.996, 1.003]"),
        ("difference", "+0.0096"),
        ("published", "0.9890"),
    ]
    assert "<strong>+0.0096</strong>" in row


def test_comparison_lists_what_differs(compared: Page) -> None:
    start = compared.text.index("What differs in the configuration</h2>")
    table = compared.text[start : compared.text.index("</table>", start)]
    assert re.findall(r"<code>(.*?)</code>", table) == ["seed", "width"]


def test_comparison_names_the_run_of_each_figure(compared: Page) -> None:
    titles = [text for _, text in compared.all("h3") if text.startswith("The barrier is gone")]
    assert [title.split()[-1] for title in titles] == ["first", "second"]


def test_comparison_as_csv(compared: Page) -> None:
    links = {a["download"]: a["href"] for a, _ in compared.all("a") if "download" in a}
    text = urllib.parse.unquote(links["p0-quality-quality.csv"].partition(",")[2])
    rows = list(csv.DictReader(io.StringIO(text.removeprefix("\ufeff"))))
    assert rows[0]["row"] == "HMC"
    change = float(rows[0]["second: acc"]) - float(rows[0]["first: acc"])
    assert float(rows[0]["second - first: acc"]) == pytest.approx(change)
    assert rows[-1]["second: ece"] == ""


def test_runs_of_one_name_are_told_apart(finished: Path) -> None:
    other = toy.run(finished.parent / "elsewhere" / "first")
    text = Page(build([finished, other], finished.parent / "two.html")).text
    assert "elsewhere/first" in text


def test_studies_of_two_kinds_are_two_parts(finished: Path, tmp_path: Path) -> None:
    other = Study("other", "Another question", "It asks something else.", StudyConfig)

    @other.stage("Nothing much")
    def only(step: object) -> None: ...

    folder = other.run(StudyConfig.model_validate({}), tmp_path / "other")
    page = Page(build([finished, folder], tmp_path / "page.html"))
    titles = [text for _, text in page.all("h2")]
    assert titles[1:] == ["One Gaussian is enough", "Another question"]
    assert [text for _, text in page.all("h1")] == [
        "Studies: One Gaussian is enough, Another question"
    ]


def test_an_unfinished_run_says_what_is_missing(tmp_path: Path) -> None:
    page = Page(build(toy.run(tmp_path / "run", stop=True)))
    [(_, note)] = page.all("div", class_="note")
    assert note.startswith("This run is not finished. Missing: curves (What one meets on the way)")
    assert "p0-quality" in page.text
    assert "p0-curves" not in page.text


def test_a_damaged_stage_counts_as_missing(tmp_path: Path) -> None:
    folder = toy.run(tmp_path / "run")
    section = Section(title="Another").model_dump_json()
    (folder / "stages" / "quality" / "section.json").write_text(section)
    [(_, note)] = Page(build(folder)).all("div", class_="note")
    assert "quality" in note


def test_a_stage_of_another_configuration_counts_as_missing(tmp_path: Path) -> None:
    folder = toy.run(tmp_path / "run")
    toy.run(folder, sampler={"num_chains": 2}, stop=True)
    [(_, note)] = Page(build(folder)).all("div", class_="note")
    assert "curves" in note


def test_comparing_with_an_unfinished_run(finished: Path, tmp_path: Path) -> None:
    half = toy.run(tmp_path / "half", stop=True)
    page = Page(build([finished, half], tmp_path / "page.html"))
    notes = [text for _, text in page.all("div", class_="note")]
    assert notes[0].startswith("The run half is not finished.")
    assert notes[1:] == ["Not in half."]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "has no run.json"),
        ('{"format": 99}', "another version"),
        ('{"format": 1, "study": "toy"}', "damaged"),
        ("{", "cannot be read"),
    ],
)
def test_what_is_no_run_is_refused(tmp_path: Path, content: str | None, said: str) -> None:
    if content is not None:
        (tmp_path / "run.json").write_text(content)
    with pytest.raises(StudyError, match=said):
        build([tmp_path])


def test_bad_places_are_refused(finished: Path, tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="not there"):
        build([tmp_path / "nowhere"])
    with pytest.raises(StudyError, match="twice"):
        build([finished, finished])
    with pytest.raises(StudyError, match="no run"):
        build([])
    with pytest.raises(StudyError, match="is a folder"):
        build([finished], tmp_path)
    with pytest.raises(StudyError, match="make it first"):
        build([finished], tmp_path / "no" / "page.html")


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (0.98969, 4, "0.9897"),
        (-0.00001, 3, "-1.00e-5"),
        (-1234567.0, 0, "-1,234,567"),
        (0.0, 2, "0.00"),
        (2.5e12, 1, "2.50e12"),
        (None, 2, "\N{EN DASH}"),
    ],
)
def test_numbers(value: float | None, digits: int, text: str) -> None:
    assert number(value, digits) == text.replace("-", "\N{MINUS SIGN}")


def test_intervals_show_their_width() -> None:
    assert interval(Cell(value=0.5, low=0.45, high=0.55), 4) == "[0.450, 0.550]"
    assert interval(Cell(value=0.5, low=0.49996, high=0.50004), 4) == "[0.499960, 0.500040]"
    assert interval(Cell(value=0.0, low=0.0, high=0.0), 4) == "[0.000, 0.000]"
    assert interval(Cell(value=0.5), 4) == ""


def test_times() -> None:
    assert [seconds(s) for s in (0.04, 75.2, 7384.0)] == ["0.0 s", "1 min 15 s", "2 h 03 min"]
