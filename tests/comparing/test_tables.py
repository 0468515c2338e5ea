import csv
import io
import json
import re
from typing import Any

import pytest
from tests.comparing.conftest import LIMITS, make_result, make_run

from safestitch.comparing.page import page_of
from safestitch.comparing.summary import Comparison, summarise
from safestitch.comparing.tables import bands_csv, latex, limits_csv, markdown
from safestitch.report.html import render

HOSTILE = '=1+1,"x"|a_b & 50% \\cmd{y}\n% #$^~ </script><script>alert(1)'


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    car = make_run("CarRun", seeds=1)
    return summarise(
        [
            make_result("gas", [40.0, 60.0], [0.5, 0.9]),
            make_result("caps-iql", [80.0], [1.2], make_run(algorithm="caps_iql", seeds=1)),
            make_result("gas", [30.0], [0.9], car),
        ],
        "gas",
    )


@pytest.fixture(scope="module")
def hostile() -> Comparison:
    return summarise([make_result("gas", [40.0], [0.5], make_run(HOSTILE, seeds=1))], "gas")


def table(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_csv_of_bands(comparison):
    rows = table(bands_csv(comparison))
    assert len(rows) == 6  # three cells in two bands
    gas, caps = rows[:2]
    assert [gas[name] for name in ("task", "band", "mark")] == ["BallRun", "tight", "best"]
    assert float(gas["reward_norm"]) == pytest.approx(0.5)
    assert (gas["reward_difference"], gas["cost_norm_std"] != "") == ("", True)
    assert float(caps["reward_difference"]) == pytest.approx(0.3)
    assert (caps["algorithm"], caps["seeds"], caps["reward_norm_std"]) == ("caps_iql", "1", "")
    assert (caps["paper_method"], caps["paper_reward"]) == ("CAPS", "0.15")
    assert caps["paper_mark"] == "unsafe"
    assert caps["paper_data"] == "public DSRL data"
    assert caps["data"] == "made by safestitch (BallRun-made-by-safestitch.hdf5)"


def test_csv_of_limits(comparison):
    rows = table(limits_csv(comparison))
    assert len(rows) == 3 * len(LIMITS)
    first = rows[0]
    assert (first["limit"], first["limit_fraction"], first["episodes"]) == ("8.0", "0.1", "2")
    assert float(first["reward"]) == pytest.approx(50.0)
    assert float(first["reward_low"]) == pytest.approx(40.0)


def test_csv_escapes(hostile):
    for text in (bands_csv(hostile), limits_csv(hostile)):
        assert {row["task"] for row in table(text)} == {f"'{HOSTILE}"}  # no formula


def test_markdown(comparison):
    text = markdown(comparison)
    assert "| BallRun | **0.50 ± 0.14 / 0.70 ± 0.28** | *0.80 / 1.20* unsafe |" in text
    assert "| CarRun | **0.30 / 0.90** | – |" in text
    assert "+0.30 [+0.20, +0.40]" in text
    assert "public DSRL data" in text and "made by safestitch" in text
    assert "One seed only: caps-iql, gas." in text
    widths = {line.count("|") for line in text.splitlines() if line.startswith("| CarRun")}
    assert widths == {4, 13}


def test_markdown_escapes(hostile):
    row = next(line for line in markdown(hostile).splitlines() if "**0.40 / 0.50**" in line)
    assert len(re.findall(r"(?<!\\)\|", row)) == 3
    assert "\\</script>" in row


def test_latex(comparison):
    lines = latex(comparison).splitlines()
    body = [line for line in lines if not line.startswith("%")]
    assert body[0] == "\\begin{tabular}{lrrrr}"
    row = next(line for line in body if line.startswith("BallRun"))
    assert row == (
        "BallRun & \\textcolor{blue}{\\textbf{0.50{\\tiny$\\pm$0.14}}} & "
        "\\textcolor{blue}{\\textbf{0.70{\\tiny$\\pm$0.28}}} & "
        "\\textcolor{gray}{0.80} & \\textcolor{gray}{1.20} \\\\"
    )
    assert next(line for line in body if line.startswith("CarRun")).endswith("& -- & -- \\\\")


def test_latex_escapes(hostile):
    body = [line for line in latex(hostile).splitlines() if not line.startswith("%")]
    row = next(line for line in body if "0.40" in line)
    assert row.startswith(
        '=1+1,"x"|a\\_b \\& 50\\% \\textbackslash{}cmd\\{y\\} \\% \\#\\$'
        "\\textasciicircum{}\\textasciitilde{} </script>"
    )
    assert len(re.findall(r"(?<!\\)&", row)) == 2


def values_of(text: str) -> dict[str, Any]:
    found = re.search(r'id="page-data">(.*?)</script>', text, re.DOTALL)
    assert found
    return json.loads(found[1])


def test_the_page_holds_every_line(comparison):
    text = render(page_of(comparison, ["safestitch compare x"]), "compare.html")
    page = values_of(text)
    assert [task["name"] for task in page["tasks"]] == ["BallRun", "CarRun"]
    ball = page["tasks"][0]
    assert [each["method"] for each in ball["lines"]] == ["gas", "caps-iql"]
    assert [row["limit"] for row in ball["lines"][0]["rows"]] == list(LIMITS)
    assert ball["lines"][1]["rows"][0]["cost"][0] == pytest.approx(9.6)
    assert ball["cells"][1]["gap"][0] == pytest.approx([0.3, 0.2, 0.4])
    assert ball["cells"][0]["paper"]["reward"] == 0.33
    assert page["commands"] == ["safestitch compare x"]
    asked = set(re.findall(r"""(?:byId|setText)\("([\w-]+)\"""", text))
    assert len(asked) > 8 and all(f'id="{name}"' in text for name in asked)
    assert not re.search(r"innerHTML|document\.write|\bfetch\(|<(?:link|img)\b", text)


def test_hostile_names_stay_data(hostile):
    text = render(page_of(hostile), "compare.html")
    assert text.count("<script") == 2
    assert values_of(text)["tasks"][0]["name"] == HOSTILE
