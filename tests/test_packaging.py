"""The wheel and the sdist, and the wheel installed alone."""

import os
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile

import pytest
from house import ROOT, find_tracked

# NumPy is made unavailable: derive works without it.
NO_NUMPY = "import sys\nsys.modules['numpy'] = None\n"


def run_command(*command, cwd, **environment):
    """Standard output of a command that succeeds without writing to standard error."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, env=kept | environment, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, ""), done.stderr + done.stdout
    return done.stdout


@pytest.mark.slow
def test_wheel_and_sdist_are_built_and_the_wheel_works_alone(tmp_path):
    copy = tmp_path / "source"
    for path in find_tracked():
        target = copy / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
    command = [sys.executable, "-m", "build", "--outdir", tmp_path / "dist", copy]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    (sdist,) = (tmp_path / "dist").glob("*.tar.gz")
    inside = zipfile.ZipFile(wheel).namelist()
    ours = [
        p.relative_to(ROOT).as_posix()
        for p in find_tracked()
        if p.parts[len(ROOT.parts)] == "derive"
    ]
    assert set(ours) <= set(inside)
    assert {name.split("/")[0] for name in inside} - {"derive"} == {
        name.split("/")[0] for name in inside if ".dist-info/" in name
    }
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", *ours} <= names

    # The environment sees the installed libraries, and the wheel instead of the source tree.
    home = tmp_path / "venv"
    venv.create(home, with_pip=True)
    paths = sysconfig.get_paths(vars={"base": str(home), "platbase": str(home)})
    python = f"{paths['scripts']}/python"
    run_command(
        python,
        "-m",
        "pip",
        "install",
        "-q",
        "--no-deps",
        "--disable-pip-version-check",
        wheel,
        cwd=tmp_path,
    )
    libraries = sysconfig.get_path("purelib")
    (tmp_path / "venv.pth").write_text(libraries)
    (tmp_path / "venv.pth").rename(f"{paths['purelib']}/libraries.pth")
    (tmp_path / "sitecustomize.py").write_text(NO_NUMPY)
    there = {"cwd": tmp_path, "PYTHONPATH": str(tmp_path), "PYTHONWARNINGS": "error"}
    derive = f"{paths['scripts']}/derive"
    assert run_command(derive, "--version", **there).startswith("derive 0.1.0")
    assert "relative_attention" in run_command(derive, "list", **there)
    assert run_command(derive, "build", "linear", **there).count("linear")
    assert run_command(derive, "show", "linear", **there)
    code = "import sys, derive; assert sys.modules['numpy'] is None; print(derive.__file__)"
    where = run_command(python, "-c", code, **there)
    assert str(home) in where
