"""A comparison as Markdown, CSV and LaTeX. Names come from files, so each is escaped."""

import csv
import io
import re
from collections.abc import Iterable, Sequence
from typing import Any

from safestitch.comparing.figures import Cell
from safestitch.comparing.published import PAPER_DATA, Published
from safestitch.comparing.summary import Comparison
from safestitch.comparing.wording import (
    MARKS,
    NONE,
    apart,
    data_lines,
    notes,
    number,
    spread,
    title,
)

# --- Markdown ----------------------------------------------------------------------------------


def markdown(comparison: Comparison) -> str:
    """One table per band, tasks x methods, then the details behind it."""
    parts = ["# Comparison", *(f"{note}" for note in notes(comparison))]
    parts += ["## Data", "\n".join(f"- {_md(line)}" for line in data_lines(comparison))]
    for band in comparison.bands:
        parts += [f"## {title(band)}", _md_grid(comparison, band), _md_summary(comparison, band)]
    parts += ["## Details", _md_details(comparison)]
    return "\n\n".join(parts) + "\n"


def _md_grid(comparison: Comparison, band: str) -> str:
    def show(cell: Cell | None) -> str:
        if cell is None:
            return NONE
        words = f"{spread(cell.reward, cell.reward_std)} / {spread(cell.cost, cell.cost_std)}"
        return {"best": f"**{words}**", "safe": words, "unsafe": f"*{words}* unsafe"}[cell.mark]

    rows = [
        [task, *(show(comparison.cell(task, m, band)) for m in comparison.methods)]
        for task in comparison.tasks
    ]
    shown = _md_table(["R/R_max / C/L", *comparison.methods], rows)
    return f"Bold: safe and best. Italic: unsafe.\n\n{shown}"


def _md_summary(comparison: Comparison, band: str) -> str:
    head = ["method", "tasks", "safe", "best safe", "R/R_max", "C/L", "frontier ratio"]
    rows = [
        [
            s.method,
            str(s.tasks),
            f"{s.safe}/{s.tasks}",
            f"{s.best}/{s.tasks}",
            number(s.reward),
            number(s.cost),
            number(s.frontier_ratio, 3),
            apart(s.gap, 0),
            apart(s.gap, 1),
        ]
        for s in comparison.summaries
        if s.band == band
    ]
    return _md_table([*head, "difference of R/R_max", "difference of C/L"], rows)


def _md_details(comparison: Comparison) -> str:
    head = ["task", "limits", "method", "R/R_max", "C/L", "", "frontier ratio (kept)"]
    head += ["difference of R/R_max", "difference of C/L", "paper: R/R_max", "paper: C/L", "paper"]
    rows = [
        [
            cell.task,
            cell.band,
            cell.method,
            spread(cell.reward, cell.reward_std),
            spread(cell.cost, cell.cost_std),
            MARKS[cell.mark],
            f"{number(cell.frontier_ratio, 3)} ({cell.kept}/{cell.limits})",
            apart(cell.gap, 0),
            apart(cell.gap, 1),
            spread(cell.paper.reward, cell.paper.reward_std) if cell.paper else NONE,
            spread(cell.paper.cost, cell.paper.cost_std) if cell.paper else NONE,
            f"{cell.paper.method}, {MARKS[cell.paper.mark]}" if cell.paper else NONE,
        ]
        for cell in comparison.cells
    ]
    return _md_table(head, rows)


def _md_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *([_md(word) for word in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _md(words: str) -> str:
    """Text that cannot end a cell or begin markup."""
    return re.sub(r"([|<`\\])", r"\\\1", " ".join(words.split()))


# --- CSV ---------------------------------------------------------------------------------------


def bands_csv(comparison: Comparison) -> str:
    """One row per task, band and method."""
    algorithms = {r.entry.method: r.entry.run.algorithm for r in comparison.results}
    rows = []
    for c in comparison.cells:
        reward, cost = c.gap or ((None,) * 3,) * 2
        rows.append(
            {
                "task": c.task,
                "band": c.band,
                "method": c.method,
                "algorithm": algorithms[c.method],
                "seeds": c.seeds,
                "reward_norm": c.reward,
                "reward_norm_std": c.reward_std,
                "cost_norm": c.cost,
                "cost_norm_std": c.cost_std,
                "mark": c.mark,
                "frontier_ratio": c.frontier_ratio,
                "limits_kept": c.kept,
                "limits": c.limits,
                "against": comparison.against,
                **_with_ends("reward_difference", reward),
                **_with_ends("cost_difference", cost),
                "data": comparison.data(c.task),
                **{f"paper_{name}": getattr(c.paper, name, None) for name in Published._fields},
                "paper_data": PAPER_DATA if c.paper else None,
            }
        )
    return _csv(rows)


def limits_csv(comparison: Comparison) -> str:
    """One row per task, method and limit, with 95% intervals over seeds and episodes."""
    figures = ("reward", "cost", "reward_norm", "cost_norm", "violation_rate", "frontier_ratio")
    rows = []
    for result, row in comparison.limit_rows():
        seeds, _, episodes = result.rollout.rewards.shape
        found = {
            "task": result.entry.task,
            "method": result.entry.method,
            "limit": row.limit,
            "limit_fraction": row.limit_fraction,
            "seeds": seeds,
            "episodes": episodes,
        }
        for name in figures:
            found |= _with_ends(name, getattr(row, name))
        rows.append(found)
    return _csv(rows)


def _with_ends(name: str, figure: Sequence[float | None]) -> dict[str, float | None]:
    """A figure and the ends of its interval."""
    return dict(zip((name, f"{name}_low", f"{name}_high"), figure, strict=True))


def _csv(rows: Sequence[dict[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _csv_cell(value) for name, value in row.items()} for row in rows)
    return text.getvalue()


def _csv_cell(value):
    """Empty for what is unknown; text that a spreadsheet would run as a formula is quoted."""
    if value is None or value != value:
        return ""
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r"):
        return f"'{value}"
    return value


# --- LaTeX -------------------------------------------------------------------------------------


def latex(comparison: Comparison) -> str:
    """One `tabular` with two columns per method, as the paper prints it."""
    methods = comparison.methods
    lines = [
        "% needs \\usepackage{booktabs,xcolor}",
        *(f"% {line}" for line in [*notes(comparison), *map(_one_line, data_lines(comparison))]),
        "\\begin{tabular}{l" + "rr" * len(methods) + "}",
        "\\toprule",
        " & ".join(["", *(f"\\multicolumn{{2}}{{c}}{{{_tex(m)}}}" for m in methods)]) + " \\\\",
        " & ".join(["task", *["$R/R_{\\max}\\uparrow$", "$C/L\\downarrow$"] * len(methods)])
        + " \\\\",
    ]
    for band in comparison.bands:
        width = 1 + 2 * len(methods)
        lines += ["\\midrule", f"\\multicolumn{{{width}}}{{l}}{{{_tex(title(band))}}} \\\\"]
        for task in comparison.tasks:
            cells = [_tex_cell(comparison.cell(task, method, band)) for method in methods]
            lines.append(" & ".join([_tex(task), *cells]) + " \\\\")
    return "\n".join([*lines, "\\bottomrule", "\\end{tabular}"]) + "\n"


def _tex_cell(cell: Cell | None) -> str:
    if cell is None:
        return "-- & --"
    looks = {
        "best": "\\textcolor{{blue}}{{\\textbf{{{}}}}}",
        "safe": "\\textbf{{{}}}",
        "unsafe": "\\textcolor{{gray}}{{{}}}",
    }
    figures = ((cell.reward, cell.reward_std), (cell.cost, cell.cost_std))
    return " & ".join(looks[cell.mark].format(_tex_number(*figure)) for figure in figures)


def _tex_number(value: float | None, std: float | None) -> str:
    small = "" if std is None else f"{{\\tiny$\\pm${number(std)}}}"
    return f"{number(value)}{small}".replace(NONE, "--")


_TEX = {
    "\\": "\\textbackslash{}",
    "~": "\\textasciitilde{}",
    "^": "\\textasciicircum{}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
}


def _tex(words: str) -> str:
    """Text as LaTeX prints it."""
    return _one_line(words).translate(str.maketrans(_TEX))


def _one_line(words: str) -> str:
    """A name with a line break must not end a comment."""
    return " ".join(words.split())
