"""The page of the tuning database in a real browser: facets, order and columns in the address, and the search space."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.service.phone import fits
from tests.service.running import Service, filled, serving

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service whose database has the trials of :func:`filled`, and no worker."""
    folder = tmp_path_factory.mktemp("recorded")
    filled(str(folder / "tuning.sqlite3"))
    with serving(str(folder / "tuning.sqlite3"), folder / "data") as service:
        yield service


@pytest.fixture
def page(browser: Browser, recorded: Service) -> Iterator[Page]:
    opened = browser.new_page(base_url=recorded.url, viewport={"width": 1280, "height": 900})
    wrong: list[str] = []
    opened.on("pageerror", lambda error: wrong.append(str(error)))
    yield opened
    opened.close()
    assert wrong == []


def told(seconds: float) -> str:
    """A time as the page has it."""
    return f"{1e3 * seconds:.3g} ms" if seconds >= 1e-3 else f"{1e6 * seconds:.3g} µs"


def rows(page: Page) -> list[list[str]]:
    region = page.get_by_role("region", name=re.compile("of the newest"))
    return [row.locator("td").all_inner_texts() for row in region.locator("tbody tr").all()]


def test_a_view_of_the_database_is_in_the_address(page: Page, recorded: Service) -> None:
    with recorded.client() as client:
        trials: list[dict[str, Any]] = client.get("/api/v1/trials", params={"limit": 500}).json()["trials"]
    page.goto("/")
    page.get_by_role("link", name="Database").click()
    expect(page.get_by_text(f"{len(trials)} of the newest {len(trials)} trials")).to_be_visible()
    fits(page)

    device = next(trial["device"] for trial in trials if "Test GPU 1" in trial["device"])
    mine = [trial for trial in trials if trial["device"] == device and trial["problem"]["K"] == 256]
    page.get_by_role("combobox", name="Device").select_option(device)
    problem = page.get_by_role("combobox", name="Problem").locator("option", has_text="K=256 ")
    expect(problem).to_have_text(re.compile(rf" \({len(mine)}\)$"))
    page.get_by_role("combobox", name="Problem").select_option(problem.get_attribute("value"))
    page.get_by_label("Order").select_option("time")
    page.get_by_text("Columns", exact=True).click()
    for name in ("Kernel", "Device", "Of the roof", "Status"):
        page.get_by_role("checkbox", name=name, exact=True).uncheck()
    expect(page.get_by_text(f"{len(mine)} of the newest")).to_be_visible()
    fastest_first = sorted(trial["median_s"] for trial in mine)
    assert [row[1] for row in rows(page)] == [told(seconds) for seconds in fastest_first]
    of_time = {told(trial["median_s"]): trial["configuration"] for trial in mine}
    for configuration, time in rows(page):
        assert configuration.split()[0] == f"block_size={of_time[time]['block_size']}"

    view = page.url
    assert "K%3D256" in view
    page.goto("about:blank")
    page.goto(view)
    expect(page.get_by_text(f"{len(mine)} of the newest")).to_be_visible()
    assert [row[1] for row in rows(page)] == [told(seconds) for seconds in fastest_first]
    expect(page.get_by_role("combobox", name="Device")).to_have_value(device)

    page.goto(f"{recorded.url}/#database/status=compile_error&columns=status,message,rate")
    expect(page.get_by_text(f"1 of the newest {len(trials)} trials")).to_be_visible()
    assert rows(page) == [["compile_error", "error: no second line", "\u2013"]]
    page.goto(f"{recorded.url}/#database/status=crashed")
    expect(page.get_by_text("No trial passes these filters.")).to_be_visible()


def test_importance_is_the_share_of_variance_that_a_parameter_explains(page: Page) -> None:
    """All of it if time depends on nothing else, a half of it for each of two equal effects, else about nothing."""
    page.goto("/#database")

    def importance(axis: str, time: Callable[[int, int], float]) -> float | None:
        tried = [{"a": at % 4, "b": at // 4 % 4, "c": at // 16} for at in range(4096)]
        trials = [{"configuration": one, "median_s": time(one["a"], one["b"])} for one in tried]
        found: float | None = page.evaluate(
            # As text: values are passed one by one, which takes seconds for so many.
            "async ([trials, axis]) => (await import('/space.js')).importance(JSON.parse(trials), axis)",
            [json.dumps(trials), axis],
        )
        return found

    random = np.random.default_rng(1)
    assert importance("a", lambda a, _: 2.0**a) == pytest.approx(1)
    assert importance("b", lambda a, _: 2.0**a) == 0
    # Both effects have the same variance. The correction takes 3 of 4092 degrees of freedom.
    for axis in "ab":
        assert importance(axis, lambda a, b: 2.0 ** (a + b)) == pytest.approx(0.5, abs=0.001)
    # 256 groups of 16 random times explain 1/16 by chance, which is taken off: its deviation is below 0.006.
    chance = importance("c", lambda *_: float(np.exp(random.normal())))
    assert chance is not None
    assert chance < 0.03
    assert importance("a", lambda *_: 1.0) is None
