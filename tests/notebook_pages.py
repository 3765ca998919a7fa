"""Convert notebooks to HTML pages: run the cells in IPython and render their output.

python -m tests.notebook_pages FOLDER NOTEBOOK..
"""

import json
import sys
from html import escape
from pathlib import Path

from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from markdown_it import MarkdownIt

from derive.backend.to_html import colour_code, to_mathml, to_page


def to_html(shell, value):
    """The richest representation of a value, as Jupyter selects it."""
    bundle, _ = shell.display_formatter.format(value)
    if "text/html" in bundle:
        return bundle["text/html"]
    if "text/latex" in bundle:
        math = to_mathml(bundle["text/latex"].strip("$"))
        return f'<div class="wide"><math display="block">{math}</math></div>'
    return f"<pre>{escape(bundle['text/plain'])}</pre>"


def run_notebook(path):
    """Run a notebook and return its page; an error in a cell is raised."""
    shell = InteractiveShell()
    shell.display_formatter.active_types = shell.display_formatter.format_types
    shown = []
    shell.display_trap.hook = shown.append
    parts = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(MarkdownIt().render(source))
            continue
        with capture_output(display=False) as output:
            result = shell.run_cell(source, store_history=True)
        result.raise_error()
        parts.append(f'<pre class="code">{colour_code(source)}</pre>')
        parts += [f"<pre>{escape(output.stdout)}</pre>"] if output.stdout else []
        parts += [to_html(shell, value) for value in shown if value is not None]
        shown.clear()
    return to_page(path.stem, *parts)


if __name__ == "__main__":
    folder, *names = sys.argv[1:]
    for name in names:
        page = run_notebook(Path(name))
        (Path(folder) / f"{Path(name).stem}.html").write_text(page, encoding="utf-8")
