"""HTML pages: MathML, the drawing of the plan, and their layout in a browser."""

import contextlib
import io
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from itertools import combinations
from xml.etree import ElementTree

import pytest
from fast_cases import slow_except
from house import ROOT

from derive import Formula, build, check, cli, parse
from derive.backend.to_data import to_plan_data
from derive.backend.to_html import find_reads, to_mathml, to_svg, write_equations
from derive.backend.to_latex import to_rows
from derive.formulas import load_formulas
from derive.frontend.from_sympy import to_system

ATTENTION = "Q, K, V[B, S, D]; p[b,i,j] = softmax[j](sum[d](Q[b,i,d] * K[b,j,d])); " + (
    "z[b,i,d] = sum[j](p[b,i,j] * V[b,j,d])"
)
WRONG = """\
import torch


def attend(q, k, v):
    scores = q @ k.transpose(-2, -1)  # <b> & "more"
    return torch.softmax(scores, dim=-2) @ v
"""
TEXTS = [
    "x[N]; y[n] = where(n % 2 == 0 and not x[n] > 1, x[n], -x[n]**2 / 3)",
    "x[N]; s[n] = sum[m, m <= n](exp(x[m]) * x[n]); y = max[n](abs(s[n])) + floor(s[0])",
    "log_size[N]; größe[n] = silu(log_size[n]) * sqrt(2)",
    "x[N]; y[n] = prod[m](1 - x[m])**2 + log_softmax[n](x[n]) * (n // 2)",
]


def read_signs(formula):
    """The visible characters of a formula in MathML."""
    (math,) = re.findall(r"<math.*</math>", write_equations(to_rows(to_system(formula))), re.DOTALL)
    return "".join(ElementTree.fromstring(math).itertext())


@pytest.mark.parametrize("text", TEXTS)
def test_mathml_is_well_formed_and_leaves_no_latex(text):
    assert "\\" not in read_signs(parse(text))


def test_all_formulas_of_the_library_are_rendered():
    """No LaTeX command, brace or ampersand is left; `{` may open cases."""
    for name, formula in load_formulas().items():
        assert not set(read_signs(formula)) & set("\\}^&"), name


@pytest.mark.parametrize(
    ("latex", "mathml"),
    [
        ("W_{Q}", "<msub><mi>W</mi><mrow><mi>Q</mi></mrow></msub>"),
        ("\\frac{1}{2}", "<mfrac><mrow><mn>1</mn></mrow><mrow><mn>2</mn></mrow></mfrac>"),
        ("\\operatorname{log\\_softmax}", "<mi>log_softmax</mi>"),
        ("\\text{a \\textbackslash{} \\{b\\}}", "<mtext>a\xa0\\\xa0{b}</mtext>"),
        ("a < b \\wedge c", "<mi>a</mi><mo>&lt;</mo><mi>b</mi><mo>∧</mo><mi>c</mi>"),
        ("\\strange", "<mi>strange</mi>"),
    ],
)
def test_mathml(latex, mathml):
    assert to_mathml(latex) == mathml


def read_boxes(svg):
    """Read the rectangles of an SVG by tensor name, and the end points of its lines."""
    tree = ElementTree.fromstring(svg)
    space = {"s": "http://www.w3.org/2000/svg"}
    boxes = {
        group.find("s:text", space).text: {
            key: float(value) for key, value in group.find("s:rect", space).attrib.items()
            if key != "style"
        }
        for group in tree.findall("s:g", space)
    }  # fmt: skip
    return boxes, [path.get("d") for path in tree.findall("s:path", space)]


DRAWN = [
    *("relative_attention", "ccd_quadratic", "layer_norm", "causal_linear_attention", "linear"),
    "a, x[T]; scalar h0; h[-1] = h0; h[t] = a[t] * h[t - 1] + x[t]",
    "size N = 4; index n < N; y[n] = n",
]


@pytest.mark.parametrize(
    "formula", slow_except(DRAWN, "relative_attention", "layer_norm", "linear")
)
def test_every_tensor_is_drawn_below_its_operands(formula):
    plan = build(formula).plan
    boxes, _ = read_boxes(to_svg(plan, to_plan_data(plan)))
    reads = find_reads(plan)
    assert set(boxes) == {*reads, *(name for names in reads.values() for name in names)}
    for reader, names in reads.items():
        for each in names:
            assert boxes[each]["y"] + boxes[each]["height"] < boxes[reader]["y"]
    for one, other in combinations(boxes.values(), 2):
        apart = abs(one["x"] + one["width"] / 2 - other["x"] - other["width"] / 2)
        is_beside = apart >= (one["width"] + other["width"]) / 2
        assert is_beside or abs(one["y"] - other["y"]) >= min(one["height"], other["height"])


def test_what_notebooks_show():
    formula = parse(ATTENTION)
    assert formula._repr_latex_().startswith("$$\\begin{aligned}\np_{b,i,j} &= ")
    assert Formula(1)._repr_latex_() is None
    html = build(formula)._repr_html_()
    assert html.startswith('<div class="derive"><style>')
    assert html.count("<svg") == 1
    style = html.partition("<style>")[2].partition("</style>")[0]
    rules = re.findall(r"^([^{}\n]+) \{", style, re.MULTILINE)
    assert all(".derive" in rule for rule in rules)  # the style of the notebook itself is unchanged
    assert len(rules) > 50
    verdict = check(WRONG, ATTENTION)
    shown = verdict._repr_html_()
    assert '<tr class="bad">' in shown
    assert '<tr class="good">' in shown
    assert '&lt;b&gt; &amp; "more"' in shown


# Tests that open the pages in a browser.


BROWSERS = ("chromium", "chromium-browser", "google-chrome")
VOID = {"meta", "link", "br"}


class Outline(HTMLParser):
    """The elements of a page as rows (depth, tag, class)."""

    def __init__(self, text):
        super().__init__()
        self.depth, self.rows = 0, []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.rows.append((self.depth, tag, dict(attrs).get("class")))
        self.depth += tag not in VOID

    def handle_startendtag(self, tag, attrs):
        self.rows.append((self.depth, tag, dict(attrs).get("class")))

    def handle_endtag(self, tag):
        self.depth -= tag not in VOID


# A script that reports layout errors: elements without height, pages wider than the window, and
# texts of the drawing that are wider than their boxes.
PROBE = """<script>
const errors = [];
for (const e of document.querySelectorAll("math, table, svg, pre, h1, h2"))
  if (e.getBoundingClientRect().height < 8) errors.push(e.tagName + " has no height");
if (document.documentElement.scrollWidth > innerWidth) errors.push("it is wider than the window");
for (const g of document.querySelectorAll("svg g")) {
  const room = g.querySelector("rect").getBoundingClientRect();
  for (const t of g.querySelectorAll("text"))
    if (t.getBoundingClientRect().width > room.width) errors.push(t.textContent + " is cut");
}
for (const e of document.querySelectorAll("math"))
  if (/[\\\\{}]/.test(e.textContent) && !e.querySelector(".cases")) errors.push(e.textContent);
document.documentElement.dataset.errors = errors.join("; ");
document.documentElement.dataset.done = "yes";
</script>"""


def open_page(browser, page, folder):
    """Open a page; return its DOM, its layout errors and the lines of its console."""
    page.write_text(page.read_text(encoding="utf-8") + PROBE, encoding="utf-8")
    command = [
        browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
        "--disable-background-networking", "--disable-component-update", "--disable-sync",
        "--enable-logging=stderr", f"--user-data-dir={folder}", "--window-size=1200,900",
        "--dump-dom", page.as_uri(),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    (errors,) = re.findall(r'<html[^>]* data-errors="([^"]*)"', done.stdout)
    assert 'data-done="yes"' in done.stdout
    return done.stdout, errors, console


@pytest.fixture(scope="module")
def browser():
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.skip("no Chromium is installed: no page was opened")
    return found


def write_pages(folder):
    """Write one page of each kind, and the notebooks of tests/examples."""
    (folder / "attend.py").write_text(WRONG)
    runs = [
        ("show", "relative_attention", "--derivation", "--html", "show.html"),
        ("show", "ccd_quadratic", "--html", "chemistry.html"),
        ("list", "--html", "list.html"),
        ("check", "attend.py", "--formula", ATTENTION, "--html", "different.html"),
    ]
    codes = []
    with contextlib.chdir(folder), contextlib.redirect_stdout(io.StringIO()):
        for arguments in runs:
            with pytest.raises(SystemExit) as left:
                cli.main(arguments)
            codes.append(left.value.code)
    assert codes == [0, 0, 0, 1]
    notebooks = sorted((ROOT / "tests" / "examples").glob("*.ipynb"))
    command = [sys.executable, "-W", "error", "-m", "tests.notebook_pages", folder]
    done = subprocess.run(
        [*command, *notebooks], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    pages = sorted(folder.glob("*.html"))
    assert [page.stem for page in pages] == [
        "check", "chemistry", "different", "import", "list", "show", "write",
    ]  # fmt: skip
    return pages


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    return write_pages(tmp_path_factory.mktemp("pages"))


@pytest.mark.slow
def test_pages_load_no_other_file(pages):
    for page in pages:
        text = page.read_text(encoding="utf-8")
        addresses = re.findall(r'(?:src|href|url)\s*[=(]\s*["\']?([^"\')\s>]+)', text)
        assert all(each.startswith(("#", "data:")) for each in addresses), page.name
        assert "@import" not in text
        assert "<script" not in text


@pytest.mark.slow
@pytest.mark.processes  # a browser takes more memory
def test_a_browser_shows_the_pages_as_they_are_written(browser, pages, tmp_path):
    """The DOM equals the file, no element is cut or empty, and the console has no error."""
    for page in pages:
        copy = tmp_path / page.name
        shutil.copy(page, copy)
        dom, errors, console = open_page(browser, copy, tmp_path / f"{page.stem}_data")
        assert (errors, console) == ("", []), page.name
        written = Outline(page.read_text(encoding="utf-8")).rows
        found = [row for row in Outline(dom).rows if row[1] != "script"]
        assert found == written, page.name


@pytest.mark.slow
@pytest.mark.processes  # a browser takes more memory
def test_layout_and_script_errors_are_found(browser, tmp_path):
    page = tmp_path / "page.html"
    page.write_text(
        "<html><body><h1></h1><p style='width: 3000px'>x</p><img src='no.png'></body></html>"
    )
    errors = open_page(browser, page, tmp_path / "data")[1]
    assert errors == "H1 has no height; it is wider than the window"
    page.write_text("<html><body><script>missing()</script></body></html>")
    assert "missing is not defined" in open_page(browser, page, tmp_path / "more")[2][0]
