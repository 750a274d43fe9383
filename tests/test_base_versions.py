"""Which TensorFlow: what is declared, what is said of one that is missing or too old."""

import configparser
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from importlib import metadata

import pytest
import tensorflow as tf

from trainer.base import versions

from conftest import HERE, run_python

ROOT = HERE.parent
NEEDS = "unbroken needs TensorFlow 2.16 or newer, and "
WAYS = [
    "import trainer; trainer.Trainer",
    "from trainer import Trainer",
    "from trainer import data",
    "from trainer.data import Indexed",
    "import trainer.app",
    "from trainer.testing import CrashAt",
    "import trainer.testing; trainer.testing.state_digest",
]


def declared(section, key):
    found = configparser.ConfigParser()
    found.read(ROOT / "setup.cfg")
    return found[section][key]


@pytest.fixture
def fake(tmp_path):
    """Puts a folder called `tensorflow` before the real one: fake(version) or fake(None)."""

    def make(version):
        folder = tmp_path / "fake" / "tensorflow"
        folder.mkdir(parents=True)
        if version is not None:
            (folder / "__init__.py").write_text(f"__version__ = {version!r}\n")
        return {"PYTHONPATH": os.pathsep.join([str(folder.parent), os.getenv("PYTHONPATH", "")])}

    return make


def error_of(code, env=None):
    """Returns the last line of what a program that must fail says."""
    result = run_python(code, env=env, check=False)
    assert result.returncode == 1, result.stdout
    return result.stderr.splitlines()[-1]


def test_one_oldest_version_is_declared():
    oldest = ".".join(map(str, versions.OLDEST))
    assert f"\ntensorflow>={oldest}\n" in f"{declared('options', 'install_requires')}\n"
    noxfile = (ROOT / "noxfile.py").read_text()
    pairs = re.findall(r'nox\.param\("([\d.]+)", "tensorflow(?:==([\d.]+))?"', noxfile)
    assert pairs[0][1].startswith(f"{oldest}.")
    assert pairs[-1][1] == ""  # the newest
    pythons = re.findall(r":: Python :: (3\.\d+)", declared("metadata", "classifiers"))
    assert pythons == [python for python, _ in pairs]
    assert declared("options", "python_requires") == f">={pythons[0]}"


def test_what_the_core_names_is_there():
    noxfile = (ROOT / "noxfile.py").read_text()
    core = re.findall(r'"(test_\w+\.py)"', noxfile)
    assert len(core) >= 5
    assert [name for name in core if not (HERE / name).exists()] == []


@pytest.mark.parametrize("way", WAYS)
def test_too_old(fake, way):
    said = error_of(way, fake("2.15.1"))
    assert NEEDS + "found 2.15.1 in " in said
    assert "-m pip install --upgrade 'tensorflow>=2.16'" in said


@pytest.mark.parametrize("way", WAYS)
def test_missing(way):
    said = error_of(f"import sys; sys.modules['tensorflow'] = None; {way}")
    assert NEEDS + f"there is none in {sys.prefix}; run: " in said


def test_a_folder_that_is_left_of_it(fake):
    """Python prefers a real package, wherever it is, so the folder alone may be seen here."""
    folder = fake(None)["PYTHONPATH"].split(os.pathsep)[0]
    code = "import sys, importlib, re; from trainer.base import versions\n"
    code += f"sys.path[:] = [{folder!r}]; versions.tensorflow()"
    assert f"{folder}/tensorflow is called tensorflow and holds none; run: " in error_of(code)


def test_a_module_that_tensorflow_lacks_is_not_tensorflow(fake, tmp_path):
    env = fake("2.21.0")
    (tmp_path / "fake" / "tensorflow" / "__init__.py").write_text("import nonsense_that_it_needs")
    assert error_of("import trainer.data", env) == (
        "ModuleNotFoundError: No module named 'nonsense_that_it_needs'"
    )


@pytest.mark.parametrize("version", ["2.16.0-rc0", "2.22.0-dev20260101", "3.0.0", "of my own"])
def test_new_enough(fake, version):
    code = "from trainer.base import versions\nprint(versions.tensorflow().__version__)"
    assert run_python(code, env=fake(version)).stdout.strip() == version


def test_the_command_line_says_it_in_a_line(fake, tmp_path):
    golden = shutil.copytree(HERE / "golden" / "Adam", tmp_path / "run")
    code = "import sys; from trainer.commands import cli; sys.exit(cli.main(sys.argv[1:]))"
    env = fake("2.15.1")
    result = run_python(code, "verify", golden, env=env, check=False)
    assert result.returncode == 1
    assert "Traceback" not in result.stderr
    assert NEEDS in result.stdout + result.stderr
    assert run_python(code, "list", golden, env=env).stdout  # needs none


def test_the_distribution_is_named_that_is_there(monkeypatch):
    found = {"tensorflow": ["tf_nightly"]}
    monkeypatch.setattr(metadata, "packages_distributions", lambda: found)
    assert versions._distribution() == "tf_nightly"
    found["tensorflow"].append("tensorflow")
    assert versions._distribution() == "tensorflow"
    found.clear()
    assert versions._distribution() == "tensorflow"


def test_the_version_is_found_under_whatever_name_it_is_installed(monkeypatch):
    def unknown(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", unknown)
    found = versions.installed()
    assert found["tensorflow"] == tf.__version__
    assert {"unbroken", "numpy"} <= set(found)


# Distribution to whether setup.py still asks for `tensorflow`.
@pytest.mark.parametrize(
    ("distributions", "asks"),
    [
        ([], True),
        (["tensorflow"], True),
        (["tensorflow_cpu"], False),
        (["tf_nightly"], False),
        (["tensorflow", "tensorflow_cpu"], True),
    ],
)
def test_another_distribution_is_not_installed_over(tmp_path, distributions, asks):
    """Built as pip builds: by the Python of an environment whose packages cannot be imported."""
    pytest.importorskip("setuptools", minversion="77")  # as pyproject.toml asks
    venv.create(tmp_path / "env", with_pip=False)
    python = str(tmp_path / "env" / "bin" / "python")
    where = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site = subprocess.run([python, "-c", where], capture_output=True, text=True, check=True)
    folder = site.stdout.strip()
    for name in distributions:
        info = os.path.join(folder, f"{name}-2.20.0.dist-info")
        os.makedirs(info)
        with open(os.path.join(info, "METADATA"), "w") as file:
            file.write(f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: 2.20.0\n")
        os.makedirs(os.path.join(folder, "tensorflow"), exist_ok=True)
        open(os.path.join(folder, "tensorflow", "__init__.py"), "w").close()
    source = tmp_path / "source"
    for name in ("setup.py", "setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        source.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, source / name)
    shutil.copytree(ROOT / "trainer", source / "trainer")
    build = "import sys; from setuptools import build_meta as b\n"
    build += "b.prepare_metadata_for_build_wheel(sys.argv[1])"
    subprocess.run(
        [python, "-c", build, str(tmp_path)],
        cwd=source,
        env=dict(os.environ, PYTHONPATH=sysconfig.get_path("purelib")),
        capture_output=True,
        check=True,
    )
    written = (next(tmp_path.glob("*.dist-info")) / "METADATA").read_text()
    asked = re.findall(r"^Requires-Dist: ([^;\n]*)$", written, re.MULTILINE)
    assert asked == ["absl-py", "numpy", *(["tensorflow>=2.16"] if asks else [])]
